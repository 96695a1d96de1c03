"""Rows of control flow: branches and loops whose bodies are drawn of elementwise rows, and read what is outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graft.testkit.models.draw import Draw, Unfit, Value
from graft.testkit.models.elementwise import ELEMENTWISE
from graft.testkit.models.net import typed
from graft.testkit.models.rows import Row, a_float

BODY = tuple(
    row for row in ELEMENTWISE
    if row.name in ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Cos", "Clip", "Where", "Max", "Min", "Sub", "HardSwish")
)  # fmt: skip
"""Rows of bodies: of results that stay within bounds, however often they are fed back."""


def condition(draw: Draw) -> Value:
    """Return a truth value: an input, a constant or one that is computed."""
    if draw.chance(0.4):
        x = a_float(draw, exact=True)
        total = draw.ReduceMax(x, keepdims=0, exact=True)
        return draw.Greater(total, draw.constant(draw.real(0.25)))
    return draw.operand(np.array(draw.chance(0.5)))


def branch(draw: Draw, x: Value) -> onnx.GraphProto:
    """Return a branch that makes something of ``x``, or hands it on."""
    inner = draw.inner(x)
    filled(inner, draw.integer(0, 3))
    made = [value for value in inner.values[1:] if not value.constant and value.array.dtype == x.array.dtype]
    if not made:
        made = [inner.Identity(x, exact=True)]
    return body_of(inner, "branch", [], made[-1:])


def if_(draw: Draw) -> None:
    x = a_float(draw)
    wanted = condition(draw)
    draw.If(wanted, then_branch=branch(draw, x), else_branch=branch(draw, x), exact=False)


def loop(draw: Draw) -> None:
    """A few rounds, maybe none, with one value carried round, one collected, and one read from outside."""
    x, outside = a_float(draw, rank=(0, 3)), a_float(draw)
    number = Value("", np.array(0, np.int64), exact=True)
    going = Value("", np.array(True), exact=True)
    inner = draw.inner()
    round_, going, carried = (inner.input(value.array) for value in (number, going, x))
    inner.values.append(outside)
    goes_on = inner.Identity(going)
    filled(inner, draw.integer(1, 3))
    fitting = [value for value in inner.values if fits_round(value, x) and value.name not in (carried.name, x.name)]
    if not fitting:
        fitting = [inner.Tanh(carried)]
    outputs = [goes_on, fitting[-1]]
    if draw.chance(0.6):
        outputs.append(inner.Mul(fitting[-1], inner.constant(draw.real(0.5))))
    body = body_of(inner, "body", [round_, going, carried], outputs)
    count = draw.operand(np.array(draw.integer(1, 4) if draw.chance(0.9) else 0, np.int64))
    first = draw.constant(np.array(True)) if draw.chance(0.5) else None
    draw.Loop(count, first, x, outputs=len(outputs) - 1, body=body, exact=False)


def scan(draw: Draw) -> None:
    """A state over the first axis of a value, with what it was at each step."""
    x = a_float(draw, rank=(2, 4))
    state = draw.operand(draw.floats(x.array.shape[1:], -0.5, 0.5))
    inner = draw.inner()
    before, part = inner.input(state.array), inner.input(x.array[0])
    both = inner.Add(before, part)
    after = inner.call(draw.one_of(("Tanh", "Sigmoid", "HardSigmoid")), both)
    body = body_of(inner, "body", [before, part], [after, inner.Neg(after)])
    draw.Scan(state, x, outputs=2, body=body, num_scan_inputs=1, exact=False)


def fits_round(value: Value, x: Value) -> bool:
    """Whether a value can take the place of ``x`` in the next round."""
    return not value.constant and (value.array.shape, value.array.dtype) == (x.array.shape, x.array.dtype)


def filled(inner: Draw, count: int) -> None:
    """Draw a few rows into a body."""
    for _ in range(count):
        before = len(inner.values), len(inner.inputs), len(inner.nodes)
        try:
            inner.one_of(BODY).make(inner)
        except Unfit:
            inner.undo(before)
        if len(inner.inputs) > before[1]:  # a body has the inputs that its operator gives it
            inner.undo(before)


def body_of(inner: Draw, name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
    """Return the graph of a body; constants are initialisers or nodes.

    Of results only ranks are said, for it is not known what the next round makes of them.
    """
    constants = [
        numpy_helper.from_array(value.array, value.name)
        for value in inner.values
        if value.constant and value.name.startswith(inner.prefix)
    ]
    nodes = list(inner.nodes)
    if inner.chance(0.5):
        nodes = [*(helper.make_node("Constant", [], [one.name], value=one) for one in constants), *nodes]
        constants = []
    for number, node in enumerate(nodes):
        node.name = f"{inner.prefix}n{number}"
    return helper.make_graph(
        nodes,
        name,
        [typed(value.name, value.array) for value in inputs],
        [typed(value.name, value.array, [None] * value.array.ndim) for value in outputs],
        constants,
    )


CONTROL = (Row("If", if_, 2.0), Row("Loop", loop, 2.0), Row("Scan", scan, 2.0))
