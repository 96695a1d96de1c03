"""Convolutions of images whose extents are known only when they run: one function, many sizes, on several machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.operators.convolution import OPERATORS
from graft.core.operators.table import Lowering, Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.select import schedule
from graft.core.tensor_ir.anchor_rules import structure_fault
from graft.core.tensor_ir.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, Variable
from graft.core.tensor_ir.verifier import verify

MACHINES = ["generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"]
SIZES = [(1, 5, 7), (2, 3, 1), (0, 4, 4)]
WIDE = [(2, 3, 21), (1, 1, 5), (1, 0, 3), (1, 2, 0)]
"""Images with tiles of pixels between their sides, and without."""
CHANNELS_LAST = (0, 2, 3, 1)
DOWN, ACROSS = Variable("down"), Variable("across")
KINDS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((35, 6, 1, 1), {}),
    "pointwise of every second pixel": ((16, 5, 1, 1), {"strides": [2, 2]}),
    "windows that stay inside": ((8, 2, 3, 2), {}),
    "windows that leave": ((33, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strides and dilations": ((9, 3, 3, 3), {"pads": [2, 1, 2, 3], "strides": [2, 1], "dilations": [2, 1]}),
    "groups": ((12, 2, 3, 3), {"pads": [1, 1, 1, 1], "group": 3}),
}
DEPTHWISE: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "of every second pixel": ((19, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 19, "strides": [2, 2]}),
    "larger than the image": ((5, 1, 5, 7), {"pads": [2, 3, 2, 3], "group": 5}),
    "more pads behind": ((16, 1, 2, 2), {"pads": [0, 0, 1, 2], "group": 16}),
    "one pixel in three": ((3, 1, 1, 1), {"group": 3, "strides": [3, 3]}),
}


def kernel_of(weights: tuple[int, ...], attributes: dict[str, Any]) -> tuple[Kernel, dict[Buffer, np.ndarray]]:
    """A Conv with bias followed by a Relu; batch, height and width vary."""
    node = NodeView(ir.from_proto(onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", **attributes)))
    n, h, w = (Variable(name) for name in ("n", "h", "w"))
    channels = weights[1] * int(attributes.get("group", 1))
    x = Buffer("x", "float32", (n, b.index(channels), h, w))
    y, out = (Buffer(name, "float32", (n, b.index(weights[0]), DOWN, ACROSS)) for name in ("y", "out"))
    weight, bias = (
        Buffer(name, "float32", tuple(map(b.index, shape))) for name, shape in (("w", weights), ("b", weights[:1]))
    )
    operator = OPERATORS.get("Conv")
    assert operator is not None and operator.lower is not None
    stages = (
        *operator.lower(Lowering(node, (x, weight, bias), (y,))),
        b.compute(out, lambda i: b.maximum(b.load(y, *i), 0)),
    )
    rng = np.random.default_rng(0)
    constants = {one: rng.integers(-3, 4, b.dims(one)).astype(np.float32) for one in (weight, bias)}
    return Kernel("kernel", (x, weight, bias), (out,), stages, Trait.CONVOLUTION, node, 0, constants), constants


def result_extents(weights: tuple[int, ...], attributes: dict[str, Any], source: tuple[int, ...]) -> tuple[int, ...]:
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0] * 4)
    return tuple(
        (extent + pads[d] + pads[2 + d] - dilations[d] * (weights[2 + d] - 1) - 1) // strides[d] + 1
        for d, extent in enumerate(source)
    )


def with_channels_last(kernel: Kernel) -> Kernel:
    names = {stage.buffer for stage in kernel.stages} | {kernel.inputs[0]}
    moved = {one: replace(one, shape=tuple(one.shape[axis] for axis in CHANNELS_LAST)) for one in names}
    stages = tuple(relaid(stage, moved, CHANNELS_LAST) for stage in kernel.stages)
    inputs = tuple(moved.get(one, one) for one in kernel.inputs)
    return replace(kernel, stages=stages, inputs=inputs, outputs=(moved[kernel.outputs[0]],))


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_function_takes_images_of_every_size(kind: str, machine: str, layout: str) -> None:
    kernel, constants = kernel_of(*KINDS[kind])
    kernel = with_channels_last(kernel) if layout == "last" else kernel
    assert structure_fault(kernel.stages[0]) is None
    assert computed(kernel, constants, KINDS[kind], machine, SIZES) == "varying_convolution"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", DEPTHWISE)
def test_a_depthwise_convolution_takes_images_of_every_size(kind: str, machine: str) -> None:
    kernel, constants = kernel_of(*DEPTHWISE[kind])
    kernel = with_channels_last(kernel)
    assert computed(kernel, constants, DEPTHWISE[kind], machine, WIDE) == "varying_depthwise"


def test_a_depthwise_convolution_with_channels_first_reads_a_copy() -> None:
    kernel, constants = kernel_of(*DEPTHWISE["more pads behind"])
    found = computed(kernel, constants, DEPTHWISE["more pads behind"], "x86-64-v4", SIZES)
    assert found == "varying_convolution"


def computed(
    kernel: Kernel,
    constants: dict[Buffer, np.ndarray],
    kind: tuple[tuple[int, ...], dict[str, Any]],
    machine: str,
    sizes: Sequence[tuple[int, ...]],
) -> str:
    """Check a kernel's function with images of some sizes, and return its strategy."""
    scheduled = schedule(kernel, Target(ROWS[machine]))
    verify(scheduled.function, ROWS[machine])
    image = kernel.inputs[0]
    for size in sizes:
        known = dict(zip(("n", "h", "w"), size, strict=True))
        shape = [known[one.name] if isinstance(one, Variable) else one for one in b.extents(image)]
        x = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
        result = result_extents(*kind, size[1:])
        if min(result) < 0:  # no such image comes so far
            continue
        extents = Buffer("extents", "float32", (DOWN, ACROSS))  # binds the extents of the result
        wanted = run_stages(kernel.stages, {image: x, **constants, extents: np.zeros(result, np.float32)})
        expected = wanted[kernel.outputs[0]]
        arrays = [scheduled.packed.get(one, x if one is image else constants.get(one)) for one in kernel.inputs]
        (found,) = run_function(scheduled.function, arrays, [expected.shape])
        np.testing.assert_array_equal(found, expected, err_msg=f"{size}")
    return scheduled.strategy
