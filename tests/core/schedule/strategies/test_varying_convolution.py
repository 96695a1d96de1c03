"""Convolutions of images whose extents are known only when they run: one function, many sizes, on several machines."""

from __future__ import annotations

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
CHANNELS_LAST = (0, 2, 3, 1)
DOWN, ACROSS = Variable("down"), Variable("across")
KINDS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((35, 6, 1, 1), {}),
    "pointwise of every second pixel": ((16, 5, 1, 1), {"strides": [2, 2]}),
    "windows that stay inside": ((8, 2, 3, 2), {}),
    "windows that leave": ((33, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strides and dilations": ((9, 3, 3, 3), {"pads": [2, 1, 2, 3], "strides": [2, 1], "dilations": [2, 1]}),
    "groups": ((12, 2, 3, 3), {"pads": [1, 1, 1, 1], "group": 3}),
    "depthwise": ((19, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 19, "strides": [2, 2]}),
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
        max(0, (extent + pads[d] + pads[2 + d] - dilations[d] * (weights[2 + d] - 1) - 1) // strides[d] + 1)
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
    scheduled = schedule(kernel, Target(ROWS[machine]))
    verify(scheduled.function, ROWS[machine])
    assert scheduled.strategy == "varying_convolution"
    image = kernel.inputs[0]
    for size in SIZES:
        known = dict(zip(("n", "h", "w"), size, strict=True))
        shape = [known[one.name] if isinstance(one, Variable) else one for one in b.extents(image)]
        x = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
        result = result_extents(*KINDS[kind], size[1:])
        extents = Buffer("extents", "float32", (DOWN, ACROSS))  # binds the extents of the result
        wanted = run_stages(kernel.stages, {image: x, **constants, extents: np.zeros(result, np.float32)})
        expected = wanted[kernel.outputs[0]]
        arrays = [scheduled.packed.get(one, x if one is image else constants.get(one)) for one in kernel.inputs]
        (found,) = run_function(scheduled.function, arrays, [expected.shape])
        np.testing.assert_array_equal(found, expected, err_msg=f"{size}")
