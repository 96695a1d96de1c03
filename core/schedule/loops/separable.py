"""Separable windows: the rows of a window are reduced first, then what that gives along the other axis.

A window of ``a x b`` elements takes ``a + b`` steps in place of ``a * b``, where neighbouring windows share columns or
columns lie side by side in vectors. Maxima and minima are the same to the last bit; sums are regrouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.inline import constant_shape
from graft.core.tensor_ir.ir import Axis, Buffer, Constant, Expression, Load, Stage, Variable, is_ordered
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import INT64

LEAST, LEAST_APART = 9, 16
"""Elements of a window that is worth a row of results in memory; where neighbours are not read side by side."""
GAIN = 1.25
"""How many times as many steps a whole window takes as one in two parts, at least."""
KEPT = 2
"""Steps to store a result of the first part, and to read it."""


def separated(stage: Stage, lanes: int, second: int = -1, gain: float = GAIN) -> tuple[Stage, Stage] | None:
    """Return a reduction over windows in two parts, for vectors of some lanes; None where that would not gain.

    The second part reduces along the window's axis ``second``.
    """
    reduction, shape = stage.reduction, constant_shape(stage.buffer)
    if reduction is None or shape is None or len(reduction.axes) < 2 or stage.order is not None:
        return None
    axes = [axis for axis in reduction.axes if axis is not reduction.axes[second]] + [reduction.axes[second]]
    extents = [int(axis.extent.value) for axis in axes if isinstance(axis.extent, Constant)]
    if len(extents) != len(axes) or 1 in (prod(extents[:-1]), extents[-1]):
        return None
    if is_ordered(reduction.operator, stage.value.type) or stage.value.type.is_custom:
        return None
    last = axes[-1].variable
    ranges = {axis: (0, extent - 1) for axis, extent in zip(stage.axes, shape, strict=True)}
    ranges |= {axis.variable: (0, extent - 1) for axis, extent in zip(axes, extents, strict=True)}
    simplifier = Simplifier(ranges)
    value = simplifier(stage.value)
    found = _moves(value, stage, last, simplifier)
    if found is None:
        return None
    number, stride, dilation = found
    if prod(extents) < (LEAST if stride == 1 else LEAST_APART):
        return None
    axis, columns = stage.axes[number], (shape[number] - 1) * stride + (extents[-1] - 1) * dilation + 1
    lanes = lanes if number == len(shape) - 1 else 1
    row, apart = -(-shape[number] // lanes), 1 if stride == 1 or lanes == 1 else min(shape[number], lanes)
    in_two = (prod(extents[:-1]) + KEPT) * -(-columns // lanes) + extents[-1] * row * apart
    if gain * in_two > prod(extents) * row * apart:
        return None
    column = Variable("column")
    simplifier.with_range(column, (0, columns - 1))
    zero = Constant(0, INT64)
    of_column = substitute(value, {axis: zero, last: column} if dilation == 1 else {axis: column, last: zero})
    place = b.add(b.multiply(axis, stride), b.multiply(last, dilation))
    if simplifier(substitute(of_column, {column: place})) is not value:
        return None  # it depends on the place of the window otherwise
    rows = Buffer(f"{stage.buffer.name}_rows", value.type.dtype, _with(stage.buffer.shape, number, b.index(columns)))
    own = {one: Variable(one.name) for one in stage.axes}
    named = {**own, axis: column}
    inner = tuple(Axis(Variable(one.variable.name), one.extent) for one in axes[:-1])
    named |= {one.variable: new.variable for one, new in zip(axes[:-1], inner, strict=True)}
    initial = substitute(reduction.initial, named)
    first = Stage(
        rows, tuple(named[one] for one in stage.axes), substitute(of_column, named),
        replace(reduction, axes=inner, initial=initial), origin=stage.origin,
    )  # fmt: skip
    again = Load(rows, _with(stage.axes, number, simplifier(place)))
    return first, replace(stage, value=again, reduction=replace(reduction, axes=tuple(axes[-1:])), structure=None)


def _moves(value: Expression, stage: Stage, last: Variable, simplifier: Simplifier) -> tuple[int, int, int] | None:
    """Return the axis along which the last axis of a window lies, and by how much both move what is read."""
    found: set[tuple[int, int, int]] = set()
    for load in loads(value):
        for index in load.indices:
            if last not in free_variables(index):
                continue
            form = simplifier.form(index)
            steps = {simplifier.atom(number): factor for number, factor in form.terms.items()}
            own = [number for number, axis in enumerate(stage.axes) if axis in steps]
            if last not in steps or len(steps) != 2 or len(own) != 1:
                return None
            found.add((own[0], steps[stage.axes[own[0]]], steps[last]))
    if len(found) != 1:
        return None
    ((number, stride, dilation),) = found
    return (number, stride, dilation) if min(stride, dilation) == 1 else None


def _with(items: Sequence[Expression], number: int, one: Expression) -> tuple[Expression, ...]:
    return (*items[:number], one, *items[number + 1 :])
