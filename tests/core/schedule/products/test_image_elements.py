"""Convolutions of bytes, and in bfloat16, of images whose extents are known only when they run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graft.core.graph.view import NodeView
from graft.core.machine.target import target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering, Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import reordered
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, Variable
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.arrays import passed
from tests.core.schedule.strategies.convolutions.varying_images import (
    ACROSS,
    DOWN,
    Kind,
    computed,
    kernel_of,
    result_extents,
    with_channels_last,
)

MACHINES = ["generic", "x86-64-v2", "x86-64-v4+avx512vnni"]
SIZES = [(1, 5, 4), (2, 3, 1), (0, 4, 4)]
KINDS: dict[str, Kind] = {
    "pointwise": ((19, 8, 1, 1), {}),
    "strides, dilations, and words that are not full": (
        (5, 3, 3, 2),
        {"pads": [2, 1, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "groups of whole words": ((6, 4, 2, 2), {"pads": [1, 1, 0, 0], "group": 2}),
    "groups of parts of words": ((4, 3, 2, 2), {"group": 2}),
    "depthwise": ((18, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 18}),
}


def bytes_kernel(kind: Kind, image: str = "uint8", weight: str = "int8", points: tuple[int, int] = (7, 0)) -> Kernel:
    """A ConvInteger with zero points of image and weights, quantised behind; batch, height and width vary."""
    weights, attributes = kind
    made = onnx.helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], name="conv", **attributes)
    node = NodeView(ir.from_proto(made))
    n, h, w = (Variable(name) for name in ("n", "h", "w"))
    channels = weights[1] * int(attributes.get("group", 1))
    x = Buffer("x", image, (n, b.index(channels), h, w))
    y = Buffer("y", "int32", (n, b.index(weights[0]), DOWN, ACROSS))
    out = replace(y, name="out", dtype="uint8")
    weight_buffer = Buffer("w", weight, tuple(map(b.index, weights)))
    own, other = Buffer("xz", image, ()), Buffer("wz", weight, ())
    operator = OPERATORS.get("ConvInteger")
    assert operator is not None and operator.lower is not None
    inputs = (x, weight_buffer, own, other)
    stages = (
        *operator.lower(Lowering(node, inputs, (y,))),
        b.compute(out, lambda i: b.cast(b.minimum(b.maximum(b.divide(b.load(y, *i), 64), 0), 255), "uint8")),
    )
    limits = np.iinfo(weight)
    random = np.random.default_rng(0).integers(max(limits.min, -127), limits.max, weights, endpoint=True)
    constants = {
        weight_buffer: random.astype(weight),
        own: np.array(points[0], image),
        other: np.array(points[1], weight),
    }
    return Kernel("kernel", inputs, (out,), stages, Trait.CONVOLUTION, node, 0, constants)


def check(kernel: Kernel, kind: Kind, machine: str) -> dict[str, int | str]:
    """Check that a kernel's function computes exactly its stages at all sizes; return its knobs."""
    target = target_named(machine)
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    assert scheduled.strategy == "direct_nhwc"
    image = kernel.inputs[0]
    for size in SIZES:
        known = dict(zip(("n", "h", "w"), size, strict=True))
        shape = [known[one.name] if isinstance(one, Variable) else one for one in b.extents(image)]
        x = np.random.default_rng(1).integers(np.iinfo(image.dtype).min, np.iinfo(image.dtype).max, shape)
        x = x.astype(image.dtype)
        result = result_extents(*kind, size[1:])
        if min(result) < 0:
            continue
        extents = Buffer("extents", "float32", (DOWN, ACROSS))  # binds the extents of the result
        arrays = {image: x, **kernel.constants, extents: np.zeros(result, np.float32)}
        expected = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
        inputs = [scheduled.packed.get(one, x if one is image else kernel.constants.get(one)) for one in kernel.inputs]
        (found,) = run_function(scheduled.function, passed(scheduled.function, inputs), [expected.shape])
        np.testing.assert_array_equal(found, expected, err_msg=f"{size}")
    return dict(scheduled.knobs)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_every_size_are_convolved_exactly(kind: str, machine: str) -> None:
    knobs = check(with_channels_last(bytes_kernel(KINDS[kind])), KINDS[kind], machine)
    assert ("dot" in knobs) == (machine != "generic" and kind not in ("groups of parts of words", "depthwise"))


@pytest.mark.parametrize(
    ("image", "weight", "points", "is_dot"),
    [
        ("int8", "int8", (-3, 0), True),
        ("int8", "int8", (0, 0), True),
        ("uint8", "uint8", (200, 128), True),
        ("uint8", "uint8", (9, 3), False),
        ("int8", "uint8", (5, 128), True),
    ],
)
def test_zero_points_lie_around_the_image_and_in_the_starts_of_sums(
    image: str, weight: str, points: tuple[int, int], is_dot: bool
) -> None:
    kind: Kind = ((5, 4, 3, 3), {"pads": [1, 1, 1, 1]})
    assert ("dot" in check(bytes_kernel(kind, image, weight, points), kind, MACHINES[-1])) == is_dot


def test_a_transposed_image_is_read_where_it_lies() -> None:
    kind: Kind = ((18, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 18})
    kernel = bytes_kernel(kind)
    image, *others = kernel.inputs
    n, c, h, w = image.shape
    source = replace(image, name="source", shape=(n, h, w, c))
    transposed = b.compute(image, lambda i: b.load(source, i[0], i[2], i[3], i[1]))
    stages = tuple(reordered([transposed, *kernel.stages]))
    check(replace(kernel, inputs=(source, *others), stages=stages, anchor_stage=1), kind, MACHINES[-1])


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("kind", [one for one in KINDS if one != "depthwise"])
def test_floats_are_pairs_of_bfloat16_where_these_are_wanted(kind: str, layout: str) -> None:
    kernel, constants = kernel_of(*KINDS[kind])  # whole numbers, which bfloat16 holds
    kernel = with_channels_last(kernel) if layout == "last" else kernel
    target = replace(target_named("x86-64-v4"), precision="bf16")
    strategy, knobs = computed(kernel, constants, KINDS[kind], target, SIZES), schedule(kernel, target).knobs
    if layout == "last":
        assert ("dot" in knobs, strategy) == (kind != "groups of parts of words", "direct_nhwc")
    else:  # those of few channels have pixels in their vectors, as floats
        assert strategy == ("direct_nhwc" if "dot" in knobs else "varying_register_tiles")
