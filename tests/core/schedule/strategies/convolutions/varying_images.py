"""Kernels of convolutions of images whose extents vary, run at several sizes in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering, Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, Constant, Variable
from graft.core.tensor_ir.verifying.verifier import verify

MACHINES = ["generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"]
CHANNELS_LAST = (0, 2, 3, 1)
DOWN, ACROSS = Variable("down"), Variable("across")
Kind = tuple[tuple[int, ...], dict[str, Any]]
"""The shape of the weights, and the attributes."""


def kernel_of(
    weights: tuple[int, ...], attributes: dict[str, Any], size: tuple[int, ...] = ()
) -> tuple[Kernel, dict[Buffer, np.ndarray]]:
    """A Conv with bias followed by a Relu; batch, height and width vary, or with a ``size`` the batch alone."""
    node = NodeView(ir.from_proto(onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", **attributes)))
    n = Variable("n")
    source = tuple(map(b.index, size)) or (Variable("h"), Variable("w"))
    target = tuple(map(b.index, result_extents(weights, attributes, size))) if size else (DOWN, ACROSS)
    channels = weights[1] * int(attributes.get("group", 1))
    x = Buffer("x", "float32", (n, b.index(channels), *source))
    y, out = (Buffer(name, "float32", (n, b.index(weights[0]), *target)) for name in ("y", "out"))
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


def with_channels_last(kernel: Kernel, *, image: bool = True) -> Kernel:
    names = {stage.buffer for stage in kernel.stages} | ({kernel.inputs[0]} if image else set())
    moved = {one: replace(one, shape=tuple(one.shape[axis] for axis in CHANNELS_LAST)) for one in names}
    stages = tuple(relaid(stage, moved, CHANNELS_LAST) for stage in kernel.stages)
    inputs = tuple(moved.get(one, one) for one in kernel.inputs)
    return replace(kernel, stages=stages, inputs=inputs, outputs=(moved[kernel.outputs[0]],))


def _shape_of(parameter: Buffer, array: np.ndarray) -> tuple[int, ...]:
    """The shape under which a function takes an array: its own, or that of a loop over images."""
    if len(parameter.shape) in (1, array.ndim):
        return array.shape
    return len(array), *(int(one.value) for one in parameter.shape[1:] if isinstance(one, Constant))


def computed(
    kernel: Kernel,
    constants: dict[Buffer, np.ndarray],
    kind: Kind,
    machine: str | Target,
    sizes: Sequence[tuple[int, ...]],
    tolerance: float = 0.0,
    parameters: Parameters | None = None,
) -> str:
    """Check a kernel's function with images of some sizes, and return its strategy."""
    target = machine if isinstance(machine, Target) else Target(ROWS[machine])
    scheduled = schedule(kernel, target, parameters)
    verify(scheduled.function, target.machine)
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
        first, *_, last = scheduled.function.parameters
        # Of a loop over images each is one of many, perhaps with all of its axes as one.
        arrays = [array.reshape(_shape_of(first, x)) if array is x else array for array in arrays]
        (found,) = run_function(scheduled.function, arrays, [_shape_of(last, expected)])
        found = found.reshape(expected.shape)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=f"{size}")
    return scheduled.strategy
