"""Periods: an axis along which indices begin anew becomes two, over the periods and within one.

Tile, and whatever reads pieces of equal length, divides its index and takes the rest. Of an axis that is a whole number
of periods both are axes of their own: no index is divided, and what lies within a period is read by whole vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, stride
from graft.core.tensor_ir.ir import Binary, Constant, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, substitution, walk_expressions
from graft.core.types import INT64

SHORTEST = 8
"""Neighbouring elements that are worth a loop of their own."""


def split_periods(stage: FlatStage, simplifier: Simplifier, shortest: int = SHORTEST) -> FlatStage:
    """Return a stage whose axes are those of periods; itself where there are none.

    Periods of neighbouring elements of the result have ``shortest`` elements at the least.
    """
    while (found := _period(stage, simplifier, shortest)) is not None:
        axis, length = found
        turns = simplifier(Binary("div", axis.iterations, Constant(length, INT64)))
        whole = LoopAxis.over(Variable(f"{axis.variable.name}_turn"), turns, max(1, axis.extent // length))
        own = LoopAxis(Variable(axis.variable.name), length)
        for one in (whole, own):
            simplifier.with_range(one.variable, one.range)
        place = Binary("add", Binary("mul", whole.variable, Constant(length, INT64)), own.variable)
        change = substitution({axis.variable: place})

        stage = replace(_mapped(stage, change, simplifier), axes=_split(stage.axes, axis, (whole, own)))
        stage = replace(stage, reduced=_split(stage.reduced, axis, (whole, own)))
    return stage


def _split(axes: Sequence[LoopAxis], gone: LoopAxis, parts: Sequence[LoopAxis]) -> tuple[LoopAxis, ...]:
    return tuple(part for axis in axes for part in (parts if axis is gone else (axis,)))


def _mapped(stage: FlatStage, change: ExpressionMap, simplifier: Simplifier) -> FlatStage:
    return stage.map(lambda expression: simplifier(change(expression)))


def _period(stage: FlatStage, simplifier: Simplifier, shortest: int) -> tuple[LoopAxis, int] | None:
    """Return an axis whose index is divided by what its extent is a multiple of."""
    axes = {axis.variable: axis for axis in (*stage.axes, *stage.reduced) if axis.is_whole}
    for node in walk_expressions(*stage.expressions, stage.place):
        match node:
            case Binary("div" | "mod", Variable() as variable, Constant(value)) if variable in axes:
                axis, length = axes[variable], int(value)
                joint = stride(stage.place, variable, simplifier) == 1 or axis in stage.reduced
                is_cut = length > 1 and (axis.is_open or length < axis.extent)
                if is_cut and _divides(length, axis, simplifier) and (not joint or length >= shortest):
                    return axis, length
    return None


def _divides(length: int, axis: LoopAxis, simplifier: Simplifier) -> bool:
    """Whether the iterations of an axis are whole periods."""
    form = simplifier.form(simplifier(axis.iterations))
    return all(factor % length == 0 for factor in (form.constant, *form.terms.values()))
