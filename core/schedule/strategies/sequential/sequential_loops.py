"""The schedule of stages whose elements depend on each other: scans, scatters and selections.

Each becomes the plain loops that its order describes (`plain_nest`), one stage after the other, and the steps by which
a machine runs them: a scan whose lines do not need each other runs along its innermost axis in vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import assert_never

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.loops.loop_frames import blocked, shared, taken
from graft.core.schedule.primitives.loop_kinds import Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.plain_nest import runs_in_lines, scan_nest, stage_nest, updates
from graft.core.schedule.primitives.plain_selection import (
    CLEAR,
    COUNT,
    FEW,
    OTHER,
    is_compared,
    is_counted,
    is_inserted,
    selection_nest,
)
from graft.core.schedule.primitives.skipping import Skip
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.strategies.sequential.split_scatter import split_scatter
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import (
    carried_dimension,
    is_sequential,
    reads_before,
    stage_expressions,
    stage_loops,
)
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, map_statement
from graft.core.types import element_bits, is_custom

BESIDE = 4
"""Vectors of lines of a scan that go on together, where there are enough."""
PIECE = 8
"""Vectors (or elements) along a row that a thread updates before it goes on to the next row: some cache lines."""


def schedule_sequential(kernel: Kernel, target: Target) -> Scheduled:
    """Return loops for a kernel of any stages, some of which are scans, scatters or selections."""
    stages = [part for stage in _with_indices(kernel) for part in split_scatter(stage, target.machine)]
    body = loops_of(stages, kernel.outputs, target.machine)
    # What is written twice, with another start or tail, gets fresh variables, so that each is bound once.
    parameters = (*kernel.inputs, *kernel.outputs)
    body = finished(body, parameters)
    return Scheduled(ir.Function(kernel.name, parameters, len(kernel.outputs), body, kernel.origin))


def _with_indices(kernel: Kernel) -> tuple[ir.Stage, ...]:
    """The stages, those before the only one with an order inlined there if that is a scatter."""
    ordered = [number for number, stage in enumerate(kernel.stages) if is_sequential(stage)]
    if len(ordered) != 1 or not isinstance(kernel.stages[ordered[0]].order, ir.Scatter):
        return kernel.stages
    behind = ordered[0] + 1
    return (*inline_stages(kernel.stages[:behind], kernel.outputs), *kernel.stages[behind:])


def loops_of(stages: Sequence[ir.Stage], outputs: Collection[ir.Buffer], machine: Machine) -> ir.Statement:
    """Return the loops of stages one after the other; what lies between them is in scratch memory."""
    parts, kept = [], []
    for group in stage_loops(stages):
        own = {stage.buffer for stage in group}
        others = [stage for stage in stages if stage.buffer not in own]
        read = {load.buffer for stage in others for load in loads(*stage_expressions(stage))}
        stored = [stage.buffer for stage in group if stage.buffer in outputs or stage.buffer in read]
        match group[0].order:
            case ir.Scan() if runs_in_lines(group):
                parts.append(_in_lines(scan_nest(group, stored), group, machine))
            case ir.Scan():
                folded = _folded(group, stored)
                stored += folded.values()
                parts.append(_with_buffers(scan_nest(group, stored), group, folded))
            case ir.Scatter():
                parts.append(_scatter(group[0], group[0].order, machine))
            case ir.Selection():
                parts.append(_selected(group[0], group[0].order, machine))
            case None:
                parts.append(_filled(group[0], machine))
            case _:
                assert_never(group[0].order)
        kept += [buffer for buffer in stored if buffer not in outputs]
    return allocate(kept, ir.Block(tuple(parts)))


def _filled(stage: ir.Stage, machine: Machine) -> ir.Statement:
    """Return the loops of one stage, without its order: in vectors and on threads where its elements are in rows."""
    axes = [LoopAxis.over(axis, extent) for axis, extent in zip(stage.axes, stage.buffer.shape, strict=True)]
    lanes = 1
    if axes and stage.reduction is None:
        lanes = _lanes(stage.buffer, stage.axes, stage.value, stage.axes[-1], machine)
    if lanes == 1:
        return stage_nest(stage)
    is_shared = prod(axis.extent for axis in axes) >= machine.costs.task
    return taken(stage_nest(stage), blocked(axes, lanes, lanes, machine, is_shared), axes)


def _lanes(
    buffer: ir.Buffer, indices: Sequence[ir.Expression], value: ir.Expression, axis: ir.Variable, machine: Machine
) -> int:
    """Return the lanes for a store along a variable: 1 unless all that it touches lies in rows along it, or is one."""
    places = [(indices, buffer), *((load.indices, load.buffer) for load in loads(value))]
    for at, _ in places:
        if not at or axis in free_variables(*at[:-1]) or (at[-1] is not axis and axis in free_variables(at[-1])):
            return 1
    return lanes_of({touched.dtype for _, touched in places}, machine) if indices[-1] is axis else 1


def lanes_of(kinds: Collection[str], machine: Machine) -> int:
    """Return as many lanes as a register has of the widest of some types; 1 where one of them is custom."""
    widest = max(4 if kind in b.NARROW_FLOATS else element_bits(kind) // 8 or 1 for kind in kinds)
    return 1 if any(map(is_custom, kinds)) else max(1, min(32, machine.vector_bytes // widest))


# ---- Scans ------------------------------------------------------------------------------------------------------


def _folded(group: Sequence[ir.Stage], stored: Collection[ir.Buffer]) -> dict[ir.Buffer, ir.Buffer]:
    """Return memory for what a scan alone reads of itself: one position, or two where the one before is read, too."""
    found = [reads_before(group, load) for stage in group for load in loads(*stage_expressions(stage))]
    folded = {}
    for stage in group:
        if stage.buffer not in stored:
            shape, positions = list(stage.buffer.shape), 2 if stage in found else 1
            shape[carried_dimension(stage)] = b.index(positions)
            folded[stage.buffer] = replace(stage.buffer, shape=tuple(shape))
    return folded


def _with_buffers(body: ir.Statement, group: Sequence[ir.Stage], folded: Mapping[ir.Buffer, ir.Buffer]) -> ir.Statement:
    """Return the statement with some buffers folded along the axis that a scan carries."""
    dimensions = {stage.buffer: carried_dimension(stage) for stage in group}

    def place(buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> tuple[ir.Expression, ...]:
        dimension, new = dimensions[buffer], folded[buffer]
        wrapped = b.modulo(indices[dimension], *b.numbers(new, dimension, dimension + 1))
        return (*indices[:dimension], wrapped, *indices[dimension + 1 :])

    def expression(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Load) or node.buffer not in folded:
            return node
        return ir.Load(folded[node.buffer], place(node.buffer, node.indices), node.mask)

    def rule(statement: ir.Statement) -> ir.Statement:
        if not isinstance(statement, ir.Store) or statement.buffer not in folded:
            return statement
        return replace(statement, buffer=folded[statement.buffer], indices=place(statement.buffer, statement.indices))

    return map_statement(body, ExpressionMap(expression), rule) if folded else body


def _in_lines(body: ir.Statement, group: Sequence[ir.Stage], machine: Machine) -> ir.Statement:
    """Return the loops over the lines of a scan shared and, where the innermost axis is another one, in vectors."""
    first, dimension = group[0], carried_dimension(group[0])
    rows = [LoopAxis.over(*one) for one in zip(first.axes, first.buffer.shape, strict=True)]
    time = rows.pop(dimension)
    kinds = {stage.buffer.dtype for stage in group}
    kinds |= {load.buffer.dtype for stage in group for load in loads(*stage_expressions(stage))}
    lanes = lanes_of(kinds, machine)
    if rows and rows[-1].is_known:  # a part of a register, where rows are shorter than one
        lanes = min(lanes, 1 << max(0, rows[-1].extent.bit_length() - 1))
    is_shared = time.is_open or prod(axis.extent for axis in (*rows, time)) >= machine.costs.task
    if not rows or dimension == len(first.axes) - 1 or lanes == 1:
        return taken(body, shared(rows, machine) if is_shared and rows else (), rows)
    # More of a cache line's neighbours are touched at one time where one stage alone has registers.
    wide = lanes * BESIDE if len(group) == 1 and rows[-1].extent >= PIECE * lanes else lanes
    return taken(body, blocked(rows, wide, lanes, machine, is_shared), rows)


# ---- Scatters -----------------------------------------------------------------------------------------------------


def _scatter(stage: ir.Stage, scatter: ir.Scatter, machine: Machine) -> ir.Statement:
    """Return the loops over the updates, after those that fill the buffer.

    Along an axis that itself is an index no update meets another one: threads share it. If it is the last index and no
    other needs it, its elements lie side by side, for vectors. The other axes run in order.
    """
    loops, indices = updates(stage, scatter), scatter.indices
    axes = [LoopAxis.over(axis.variable, axis.extent) for axis in scatter.axes]
    apart = [axis for axis in axes if axis.variable in indices]
    if not apart or 0 in (axis.extent for axis in axes):
        return block(_filled(stage, machine), loops)
    ordered = [axis for axis in axes if axis not in apart]
    names = [axis.variable.name for axis in (*apart, *ordered)]
    steps: list[Step] = [Reorder(tuple(names))] if [*apart, *ordered] != axes else []
    is_shared = prod(axis.extent for axis in axes) >= machine.costs.task
    *outer, last = apart
    lanes = _lanes(stage.buffer, indices, scatter.update, last.variable, machine)
    if lanes > 1:
        steps += blocked(apart, lanes * PIECE, lanes, machine, is_shared)
        return block(_filled(stage, machine), taken(loops, steps, axes))
    if indices[-1] is last.variable:
        name, inside = last.variable.name, names[len(apart) :]
        steps.append(Split(name, PIECE, "piece", name, ("rest",)))
        if last.extent >= PIECE:
            steps += [Reorder((*inside, name)), Unroll(name)] if inside else [Unroll(name)]
        has_rest = last.is_open or last.extent % PIECE != 0
        if inside and has_rest:
            steps.append(Reorder((*(f"{one}.rest" for one in inside), "rest")))
        # Where a rest stands beside the pieces, no nest holds them and an outer loop: that one alone is shared.
        around = [axis for axis in outer if axis.extent != 1] if has_rest else []
        pieces = LoopAxis.over(ir.Variable("piece"), b.divide(last.iterations, PIECE))
        apart = around or [*(() if has_rest else outer), pieces]
    steps += shared(apart, machine) if is_shared else ()
    return block(_filled(stage, machine), taken(loops, steps, axes))


def _selected(stage: ir.Stage, selection: ir.Selection, machine: Machine) -> ir.Statement:
    """Return the loops of a selection, its rows shared, which looks at a vector of candidates at a time."""
    pairs = zip(stage.axes, stage.buffer.shape, strict=True)
    rows = [LoopAxis.over(axis, extent) for axis, extent in pairs if axis is not selection.rank]
    name, steps = selection.candidate.variable.name, list[Step]()
    axes = (*rows, LoopAxis.over(selection.candidate.variable, selection.candidate.extent))
    lanes = lanes_of({load.buffer.dtype for load in loads(stage.value)}, machine)
    counts, wide = is_counted(stage, selection, lanes), min(lanes, FEW)
    if counts:
        steps += [Split(COUNT, wide, "rank.part", COUNT), Reorder(("rank.part", OTHER, COUNT)), Vectorize(COUNT)]
    elif lanes > 1 and is_compared(stage, selection):
        steps += [Split(name, lanes, "part", name), Skip(name)]
    if lanes > 1 and not is_inserted(stage, selection):
        steps += [Split(CLEAR, wide, "clear.part", CLEAR), Vectorize(CLEAR)]
    if rows and (any(axis.is_open for axis in axes) or prod(axis.extent for axis in axes) >= machine.costs.task):
        steps += shared(rows, machine)
    return taken(selection_nest(stage, selection, lanes), steps, axes)


def _is_sequential(anchor: Anchor, target: Target) -> Answer:
    return any(map(is_sequential, anchor.kernel.stages)) or OTHER_FORM


STRATEGY = Strategy("sequential_loops", frozenset(Trait), of_kernel(schedule_sequential), _is_sequential, varies=None)
"""It takes every kernel with a scan, a scatter or a selection, which no strategy behind it knows."""
