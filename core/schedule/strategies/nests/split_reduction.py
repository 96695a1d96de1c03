"""The schedule of reductions: sums to few elements, or few blocks of columns, are split, so that threads share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.column_reduction import column_blocks, reads_row_by_row
from graft.core.schedule.loops.flat_stages import Layout, collapse_own, constant_extent, flatten
from graft.core.schedule.loops.fused_stages import fuse, space
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.loops.loop_frames import TASKS, lanes_of
from graft.core.schedule.loops.nest import choose_axis
from graft.core.schedule.primitives.rfactor import identity_of
from graft.core.schedule.strategies.nests.generic_nest import schedule_stages
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Axis, Binary, Buffer, Constant, Load, Reduction, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64

PARTS = 64
"""Partial results that a reduction to few elements has at most."""
BLOCKS = 16
"""Partial results that a reduction to few blocks of columns has at most: each is as long as a row."""


def schedule_reduction(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel around one reduction in loops."""
    stages = [part for stage in fuse(kernel.stages, kernel.outputs) for part in split(stage, target.machine)]
    return schedule_stages(kernel, stages, target)


def split(stage: Stage, machine: Machine) -> Sequence[Stage]:
    """Return a large reduction to few elements as partial results and their reduction, any other stage as it is."""
    shape = constant_shape(stage.buffer)
    if stage.reduction is None or stage.reduction.is_ordered:
        return [stage]
    if not all(isinstance(axis.extent, Constant) for axis in stage.reduction.axes):
        return [stage]
    if shape is None or space(stage) < 4 * machine.costs.task:
        return [stage]
    most, tasks = PARTS, prod(shape)
    if tasks * 2 > TASKS:
        most, tasks = BLOCKS, _tasks_of_columns(stage, machine)
        if tasks * 2 > TASKS:
            return [stage]
    reduction = stage.reduction
    for position, axis in enumerate(reduction.axes):
        extent = constant_extent(axis.extent)
        parts = max(part for part in range(1, most + 1) if extent % part == 0)
        if parts * tasks >= min(most, TASKS // 2):
            return _split(stage, reduction, position, parts, extent // parts)
    return [stage]


def _tasks_of_columns(stage: Stage, machine: Machine) -> int:
    """Return how many blocks of columns threads can share; of what is not reduced row by row more than enough."""
    simplifier = Simplifier()
    flat = collapse_own(flatten(stage, Layout(simplifier)), simplifier)
    lanes = lanes_of(flat, machine)
    axis = choose_axis(flat, simplifier, lanes, machine.costs.latency)
    if axis is None or axis in flat.reduced or not reads_row_by_row(flat, axis, lanes, machine):
        return TASKS
    return prod(other.extent for other in flat.axes if other is not axis) * column_blocks(flat, axis, machine)


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
