"""The schedule of reductions over sliding windows: windows are clipped instead of masked.

Where a window's position on an axis depends on scalar loops only, the part of it outside of the input is left out by
the bounds of the window's loop; masks remain for the axis of the vectors alone. Large windows are reduced in two parts
(`graft.core.schedule.loops.separable`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graft.core.affine.linear import Linear
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.schedule.loops.fused_stages import fuse
from graft.core.schedule.loops.separable import separated
from graft.core.schedule.loops.small_images import is_small
from graft.core.schedule.primitives.rfactor import identity_of
from graft.core.schedule.strategies.nests.generic_nest import schedule_stages
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.anchors import Pooling
from graft.core.tensor_ir.ir import Axis, Binary, Cast, Constant, Expression, Load, Select, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import conjuncts, substitute
from graft.core.types import BOOL, INT64


def schedule_pooling(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel around a reduction over windows in loops."""
    lanes, stages = max(1, target.machine.vector_bytes // 4), list[Stage]()
    for stage in fuse(kernel.stages, kernel.outputs):
        stages += _of_small_images(stage, lanes) or map(clip_windows, separated(stage, lanes) or (stage,))
    return schedule_stages(kernel, stages, target)


def _of_small_images(stage: Stage, lanes: int) -> tuple[Stage, ...] | None:
    """Return the parts of a reduction over windows of small images, whose masks stay; None if it is no such one."""
    if not isinstance(stage.structure, Pooling) or stage.structure.windows.is_open:
        return None
    windows = stage.structure.windows
    moved = windows.source[-2:] != windows.target[-2:] or any(step > 1 for step in windows.strides[-2:])
    if windows.rank < 2 or moved or not windows.leaves:
        return None
    height, width = windows.source[-2:]
    parts = separated(stage, lanes, 0, gain=0.0) if windows.rank == 2 else None
    if parts is not None and is_small(height + windows.kernel[0], width, windows.kernel[1], lanes):
        return parts
    return (stage,) if is_small(height, width, prod(windows.kernel), lanes) else None


@dataclass(frozen=True, slots=True)
class Cut:
    """A reduction over windows whose conditions became bounds of its loops.

    Where ``inside`` holds, no window leaves the input, and the reduction is ``whole``, over all of a window.
    """

    clipped: Stage
    whole: Stage
    inside: Expression


def clip_windows(stage: Stage) -> Stage:
    """Turn conditions on window axes into bounds of their loops, where what they mask out is neutral anyway.

    The extents of the reduction axes then depend on the stage's axes. The last axis of the stage, which is likely to
    become vectors, is left alone.
    """
    cut = cut_windows(stage)
    return stage if cut is None else cut.clipped


def cut_windows(stage: Stage) -> Cut | None:
    """Take the conditions on window axes out of a reduction, as far as `clip_windows` can; None if there are none.

    Extents of the stage and of what it reads may be known only when a kernel runs.
    """
    shape = stage.buffer.shape
    if stage.reduction is None or len(shape) < 2 or b.index(0) in shape:
        return None
    if not all(isinstance(axis.extent, Constant) for axis in stage.reduction.axes):
        return None
    known = zip(stage.axes, shape, strict=True)
    simplifier = Simplifier({axis: (0, int(end.value) - 1) for axis, end in known if isinstance(end, Constant)})
    for axis in stage.reduction.axes:
        simplifier.with_range(axis.variable, (0, constant_extent(axis.extent) - 1))
    value = simplifier(stage.value)
    mask = _neutral_mask(value, stage)
    if mask is None:
        return None
    conditions, ends = list(conjuncts(mask)), dict[Expression, Expression]()
    axes, moved = [], {}
    for axis in stage.reduction.axes:
        low, high, taken = _bounds(axis, conditions, stage, simplifier)
        if not taken:
            axes.append(axis)
            continue
        conditions = [condition for condition in conditions if condition not in taken]
        last = Constant(constant_extent(axis.extent) - 1, INT64)
        ends |= {one: substitute(one, {axis.variable: Constant(0, INT64) if _is_low(one) else last}) for one in taken}
        inner = Variable(axis.variable.name)
        count = Binary("max", Binary("sub", high, low), Constant(0, INT64))
        axes.append(Axis(inner, count))
        moved[axis.variable] = Binary("add", low, inner)
    inside = b.all_of(list(map(simplifier, ends.values())))
    if not moved:
        return None
    reduction = replace(stage.reduction, axes=tuple(axes))
    rest = _with_conditions(value, conditions)
    clipped = replace(stage, value=substitute(rest, moved), reduction=reduction, structure=None)
    return Cut(clipped, replace(stage, value=rest, structure=None), inside or Constant(True, BOOL))


def _is_low(condition: Expression) -> bool:
    """Whether a condition holds from some place on."""
    return isinstance(condition, Binary) and condition.operator in ("ge", "gt")


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


def _bounds(
    axis: Axis, conditions: list[Expression], stage: Stage, simplifier: Simplifier
) -> tuple[Expression, Expression, list[Expression]]:
    """Return where an axis begins and ends, and the conditions that this says."""
    low: Expression = Constant(0, INT64)
    high: Expression = axis.extent
    taken: list[Expression] = []
    assert stage.reduction is not None, "only reductions have windows"
    others = {stage.axes[-1], *(one.variable for one in stage.reduction.axes)} - {axis.variable}
    for condition in conditions:
        if not isinstance(condition, Binary) or condition.left.type != INT64:
            continue
        difference = simplifier.form(condition.left).plus(simplifier.form(condition.right), -1)
        numbers = {simplifier.atom(number): number for number in difference.terms if _is_axis(number, simplifier)}
        own, shift = numbers.get(axis.variable), {"ge": 0, "gt": 1, "lt": 0, "le": 1}.get(condition.operator)
        known = len(numbers) == len(difference.terms) and others.isdisjoint(numbers)
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


STRATEGY = Strategy("clipped_windows", frozenset({Trait.POOLING}), of_kernel(schedule_pooling), varies=None)
