"""The schedule of reductions: sums to few elements are split, so that threads share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import identity_of
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.loops.loop_frames import TASKS
from graft.core.schedule.strategies.nests.generic_nest import fuse, schedule_stages, space
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Axis, Binary, Buffer, Constant, Load, Reduction, Stage, Variable
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64

PARTS = 64
"""Partial results that a reduction to few elements has at most."""


def schedule_reduction(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel around one reduction in loops."""
    stages = [part for stage in fuse(kernel.stages, kernel.outputs) for part in split(stage, target.machine.costs.task)]
    return schedule_stages(kernel, stages, target)


def split(stage: Stage, task: int) -> Sequence[Stage]:
    """Return a large reduction to few elements as partial results and their reduction, any other stage as it is.

    ``task`` operations are worth a thread.
    """
    shape = constant_shape(stage.buffer)
    if stage.reduction is None or stage.reduction.is_ordered:
        return [stage]
    if not all(isinstance(axis.extent, Constant) for axis in stage.reduction.axes):
        return [stage]
    if shape is None or prod(shape) * 2 > TASKS or space(stage) < 4 * task:
        return [stage]
    reduction = stage.reduction
    for position, axis in enumerate(reduction.axes):
        extent = constant_extent(axis.extent)
        parts = max(part for part in range(1, PARTS + 1) if extent % part == 0)
        if parts * prod(shape) >= TASKS // 2:
            return _split(stage, reduction, position, parts, extent // parts)
    return [stage]


def _split(stage: Stage, reduction: Reduction, position: int, parts: int, length: int) -> Sequence[Stage]:
    axis = reduction.axes[position]
    part, inner, number = Variable("part"), Variable(axis.variable.name), Variable("part")
    extent = Constant(parts, INT64)
    dtype = stage.value.type.dtype
    partial = Buffer(f"{stage.buffer.name}_parts", dtype, (extent, *stage.buffer.shape), memory="scratch")
    axes = tuple(Variable(variable.name) for variable in stage.axes)
    index = Binary("add", Binary("mul", part, Constant(length, INT64)), inner)
    value = substitute(stage.value, {axis.variable: index, **dict(zip(stage.axes, axes, strict=True))})
    reduced = list(reduction.axes)
    reduced[position] = Axis(inner, Constant(length, INT64))
    neutral = identity_of(reduction.operator, stage.value.type)
    inside = Reduction(reduction.operator, tuple(reduced), neutral)
    first = Stage(partial, (part, *axes), value, inside, origin=stage.origin)
    second = replace(
        stage,
        value=Load(partial, (number, *stage.axes)),
        reduction=Reduction(reduction.operator, (Axis(number, extent),), reduction.initial),
        structure=None,
    )
    return [first, second]


STRATEGY = Strategy("split_reduction", frozenset({Trait.REDUCTION}), of_kernel(schedule_reduction), varies=None)
