"""Convolution kernels for tests of their schedules."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.machine.target import Target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering, Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Buffer

WIDE = target_named("x86-64-v4")
NARROW = target_named("x86-64")


def buffer(name: str, shape: tuple[int, ...]) -> Buffer:
    return Buffer(name, "float32", tuple(map(b.index, shape)))


def convolution(
    source: tuple[int, ...],
    weights: tuple[int, ...],
    *,
    residual: bool = False,
    constant: bool = True,
    **attributes: object,
) -> tuple[Kernel, list[np.ndarray]]:
    """A Conv with bias, followed by a Relu (and before it the addition of another tensor)."""
    rank = len(source) - 2
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * (2 * rank))
    spatial = [
        (n + pads[d] + pads[d + rank] - dilations[d] * (k - 1) - 1) // strides[d] + 1
        for d, (n, k) in enumerate(zip(source[2:], weights[2:], strict=True))
    ]
    shape = (source[0], weights[0], *spatial)
    node = NodeView(ir.from_proto(onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", **attributes)))
    x, w, bias, y = buffer("x", source), buffer("w", weights), buffer("b", weights[:1]), buffer("y", shape)
    other, out = buffer("other", shape), buffer("out", shape)
    operator = OPERATORS.get("Conv")
    assert operator is not None and operator.lower is not None
    stages = list(operator.lower(Lowering(node, (x, w, bias), (y,))))
    anchor = len(stages) - 1
    if residual:
        stages.append(b.compute(out, lambda i: b.maximum(b.add(b.load(y, *i), b.load(other, *i)), 0)))
    else:
        stages.append(b.compute(out, lambda i: b.maximum(b.load(y, *i), 0)))
    inputs = (x, w, bias, other) if residual else (x, w, bias)
    random = np.random.default_rng(math.prod(shape))
    arrays = [random.integers(-3, 4, b.dims(item)).astype("float32") for item in inputs]
    constants = {w: arrays[1], bias: arrays[2]} if constant else {}
    return Kernel("kernel", inputs, (out,), tuple(stages), Trait.CONVOLUTION, node, anchor, constants), arrays


def outputs_of(
    kernel: Kernel, scheduled: Scheduled, arrays: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the scheduled function computes and what the stages say, for each output."""
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    expected = run_stages(kernel.stages, contents)
    inputs = [
        scheduled.packed.get(item, contents[item]).reshape(b.dims(parameter))
        for item, parameter in zip(kernel.inputs, scheduled.function.input_buffers, strict=True)
    ]
    outputs = run_function(scheduled.function, inputs)
    wanted = [expected[item] for item in kernel.outputs]
    return [output.reshape(like.shape) for output, like in zip(outputs, wanted, strict=True)], wanted


def check(kernel: Kernel, arrays: list[np.ndarray], target: Target = WIDE) -> None:
    """The scheduled function computes what the stages say; inputs are small integers, so that sums are exact."""
    for output, expected in zip(*outputs_of(kernel, schedule(kernel, target), arrays), strict=True):
        np.testing.assert_array_equal(output, expected)
