"""The schedule of reductions over sliding windows: windows are clipped instead of masked.

Where a window's position on an axis depends on scalar loops only, the part of it outside of the input is left out by
the bounds of the window's loop; masks remain for the axis of the vectors alone.
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import identity_of
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.strategies.generic_nest import fuse, schedule_stages
from graft.core.schedule.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Axis, Binary, Cast, Constant, Expression, Load, Select, Stage, Variable
from graft.core.tensor_ir.linear import Linear
from graft.core.tensor_ir.simplify import Simplifier
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64


def schedule_pooling(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel around a reduction over windows in loops."""
    stages = [clip_windows(stage) for stage in fuse(kernel.stages, kernel.outputs)]
    return schedule_stages(kernel, stages, target)


def clip_windows(stage: Stage) -> Stage:
    """Turn conditions on window axes into bounds of their loops, where what they mask out is neutral anyway.

    The extents of the reduction axes then depend on the stage's axes. The last axis of the stage, which is likely to
    become vectors, is left alone.
    """
    shape = constant_shape(stage.buffer)
    if stage.reduction is None or not shape or len(shape) < 2:
        return stage
    simplifier = Simplifier({axis: (0, extent - 1) for axis, extent in zip(stage.axes, shape, strict=True)})
    for axis in stage.reduction.axes:
        simplifier.with_range(axis.variable, (0, constant_extent(axis.extent) - 1))
    value = simplifier(stage.value)
    mask = _neutral_mask(value, stage)
    if mask is None:
        return stage
    conditions = _conjuncts(mask)
    axes, moved = [], {}
    for axis in stage.reduction.axes:
        low, high, taken = _bounds(axis, conditions, stage, simplifier)
        if not taken:
            axes.append(axis)
            continue
        conditions = [condition for condition in conditions if condition not in taken]
        inner = Variable(axis.variable.name)
        count = Binary("max", Binary("sub", high, low), Constant(0, INT64))
        axes.append(Axis(inner, count))
        moved[axis.variable] = Binary("add", low, inner)
    if not moved:
        return stage
    reduction = replace(stage.reduction, axes=tuple(axes))
    value = substitute(_with_conditions(value, conditions), moved)
    return replace(stage, value=value, reduction=reduction, structure=None)


def _neutral_mask(value: Expression, stage: Stage) -> Expression | None:
    """Return the mask of a load outside of which the stage reduces a neutral value."""
    assert stage.reduction is not None, "only reductions have windows"
    neutral = identity_of(stage.reduction.operator, value.type)
    match value:
        case Select(condition, Load(_, _, mask) | Cast(Load(_, _, mask)), Constant() as otherwise):
            initial = stage.reduction.initial
            is_neutral = otherwise == neutral or (otherwise == initial and stage.reduction.operator in ("min", "max"))
            return condition if is_neutral and mask is condition else None
        case Load(_, _, mask) | Cast(Load(_, _, mask)):
            return mask if stage.reduction.operator == "add" else None
        case _:
            return None


def _with_conditions(value: Expression, conditions: list[Expression]) -> Expression:
    """Return the masked value with other conditions."""
    mask: Expression | None = None
    for condition in conditions:
        mask = condition if mask is None else Binary("and", mask, condition)
    match value:
        case Select(_, inner, otherwise):
            loaded = _with_conditions(inner, conditions)
            return loaded if mask is None else Select(mask, loaded, otherwise)
        case Cast(inner, dtype):
            return Cast(_with_conditions(inner, conditions), dtype)
        case Load(buffer, indices, _):
            return Load(buffer, indices, mask)
        case _:
            raise AssertionError("only masked loads have conditions")


def _conjuncts(mask: Expression) -> list[Expression]:
    if isinstance(mask, Binary) and mask.operator == "and":
        return [*_conjuncts(mask.left), *_conjuncts(mask.right)]
    return [mask]


def _bounds(
    axis: Axis, conditions: list[Expression], stage: Stage, simplifier: Simplifier
) -> tuple[Expression, Expression, list[Expression]]:
    """Return where an axis begins and ends, and the conditions that this says."""
    low: Expression = Constant(0, INT64)
    high: Expression = axis.extent
    taken: list[Expression] = []
    for condition in conditions:
        if not isinstance(condition, Binary) or condition.left.type != INT64:
            continue
        difference = simplifier.form(condition.left).plus(simplifier.form(condition.right), -1)
        numbers = {simplifier.atom(number): number for number in difference.terms if _is_axis(number, simplifier)}
        own, shift = numbers.get(axis.variable), {"ge": 0, "gt": 1, "lt": 0, "le": 1}.get(condition.operator)
        known = len(numbers) == len(difference.terms) and set(numbers) <= {axis.variable, *stage.axes[:-1]}
        if own is None or shift is None or not known or difference.terms[own] != 1:
            continue
        # The condition says: variable + rest >= 0 (or < 0), so the axis begins (or ends) at -rest.
        edge = Linear(terms={own: 1}).plus(difference, -1)
        place = simplifier.build(edge.plus(Linear(shift)))
        taken.append(condition)
        if condition.operator in ("ge", "gt"):
            low = Binary("max", low, place)
        else:
            high = Binary("min", high, place)
    return simplifier(low), simplifier(high), taken


def _is_axis(number: int, simplifier: Simplifier) -> bool:
    return isinstance(simplifier.atom(number), Variable)


STRATEGY = Strategy("clipped_windows", frozenset({Trait.POOLING}), of_kernel(schedule_pooling))
