"""The schedule of stages whose elements depend on each other: scans, scatters and selections.

Each becomes the plain loops that its order describes, one stage after the other, which serves every machine. A scan
whose lines do not need each other runs line after line, in registers, and along its innermost axis in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from graft.core.schedule.loops.loop_frames import blocked, loops_around, nested, outer_loops, taken
from graft.core.schedule.primitives.plain_nest import element
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.strategies.sequential.selection_loops import selection_loops
from graft.core.schedule.strategies.sequential.split_scatter import split_scatter
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import (
    at_first,
    carried_dimension,
    is_sequential,
    reads_before,
    scan_of,
    stage_expressions,
    stage_loops,
    with_carried,
)
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, map_statement, substitute, substitution
from graft.core.types import element_bits, is_custom

ZERO = (b.index(0),)
Places = list[ir.Expression]
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
            case ir.Scan() if _runs_in_lines(group):
                parts.append(_lines(group, stored, machine))
            case ir.Scan():
                folded = _folded(group, stored)
                stored += folded.values()
                parts.append(_with_buffers(scan_loops(group), group, folded))
            case ir.Scatter():
                parts.append(_scatter(group[0], group[0].order, machine))
            case ir.Selection():
                lanes = lanes_of({load.buffer.dtype for load in loads(group[0].value)}, machine)
                parts.append(selection_loops(group[0], group[0].order, lanes, machine))
            case None:
                parts.append(stage_nest(group[0], machine))
            case _:
                assert_never(group[0].order)
        kept += [buffer for buffer in stored if buffer not in outputs]
    return allocate(kept, ir.Block(tuple(parts)))


def _nest(axes: Sequence[ir.Axis], body: ir.Statement) -> ir.Statement:
    """Return serial loops over axes."""
    return loops_over(((axis.variable, axis.extent) for axis in axes), body)


def stage_nest(stage: ir.Stage, machine: Machine) -> ir.Statement:
    """Return the loops of one stage, without its order: in vectors and on threads where its elements are in rows."""
    axes = [LoopAxis.over(axis, extent) for axis, extent in zip(stage.axes, stage.buffer.shape, strict=True)]
    lanes = 1
    if axes and stage.reduction is None:
        lanes = _lanes(stage.buffer, stage.axes, stage.value, stage.axes[-1], machine)
    if lanes == 1:
        return _plain_nest(stage)
    is_shared = prod(axis.extent for axis in axes) >= machine.costs.task
    loops = nested(axes, ir.Store(stage.buffer, stage.axes, stage.value))
    return taken(loops, blocked(axes, lanes, lanes, machine, is_shared), axes)


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


def _plain_nest(stage: ir.Stage, fixed: Mapping[ir.Variable, ir.Expression] | None = None) -> ir.Statement:
    """Return the loops of one stage, without its order: scalar ones. Axes in ``fixed`` have one position only."""
    loop_axes = {axis: ir.Variable(axis.name) for axis in stage.axes if axis not in (fixed or {})}
    fresh: dict[ir.Variable, ir.Expression] = {**loop_axes, **(fixed or {})}
    pairs = zip(stage.axes, stage.buffer.shape, strict=True)
    rows = [ir.Axis(loop_axes[axis], extent) for axis, extent in pairs if axis in loop_axes]
    return _nest(rows, map_statement(element(stage), substitution(fresh)))


# ---- Scans --------------------------------------------------------------------------------------------------------


def scan_loops(group: Sequence[ir.Stage]) -> ir.Statement:
    """Return the loop over the positions of a scan with its stages one after the other inside."""
    scan = scan_of(group[0])
    extent = b.counts(group[0].buffer)[carried_dimension(group[0])]

    def at(stages: Sequence[ir.Stage], step: ir.Expression) -> ir.Statement:
        place = b.subtract(b.subtract(b.extent(extent), 1), step) if scan.reverse else step
        return block(*(_plain_nest(stage, {scan.carried: place}) for stage in stages))

    if extent == 0:
        return ir.Block(())
    first = at(with_carried(group, at_first), b.index(0))
    if extent == 1:
        return first
    step = ir.Variable(scan.carried.name)
    rest = ir.For(step, b.subtract(b.extent(extent), 1), "serial", at(group, b.add(step, 1)))
    return block(first, rest) if isinstance(extent, int) else ir.If(b.greater(extent, 0), block(first, rest))


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


def _runs_in_lines(group: Sequence[ir.Stage]) -> bool:
    """Whether each line along the carried axis can be computed by itself, its last elements in registers."""
    shape, dimension = group[0].buffer.shape, carried_dimension(group[0])
    own = {stage.buffer for stage in group}
    return all(
        stage.reduction is None
        and stage.buffer.shape == shape
        and carried_dimension(stage) == dimension
        and all(
            index is axis
            for load in loads(*stage_expressions(stage))
            if load.buffer in own
            for place, (index, axis) in enumerate(zip(load.indices, stage.axes, strict=True))
            if place != dimension
        )
        for stage in group
    )


def _lines(group: Sequence[ir.Stage], stored: Collection[ir.Buffer], machine: Machine) -> ir.Statement:
    """Return the loops over the lines of a scan."""
    shape, dimension = b.counts(group[0].buffer), carried_dimension(group[0])
    rows = [(ir.Variable(f"i{place}"), extent) for place, extent in enumerate(shape) if place != dimension]
    kinds = {stage.buffer.dtype for stage in group}
    kinds |= {load.buffer.dtype for stage in group for load in loads(*stage_expressions(stage))}
    lanes = lanes_of(kinds, machine)
    size, width = b.product_of(shape), shape[-1]
    is_shared = not isinstance(size, int) or size >= machine.costs.task
    is_narrow = isinstance(width, int) and width < lanes
    if dimension == len(shape) - 1 or lanes == 1 or is_narrow:
        return loops_around(rows, _line(group, stored, [axis for axis, _ in rows], 1), is_shared)
    *outer, (last, extent) = rows
    around: Places = [axis for axis, _ in outer]
    wide = lanes * BESIDE if len(group) == 1 else lanes  # more of a cache line's neighbours are touched at one time

    def tiles_of(width: int, begin: b.Count, count: b.Count, *, shared: bool) -> ir.Statement:
        tile = ir.Variable(f"{last.name}_tile" if width > 1 else last.name)
        body = _line(group, stored, [*around, b.add(b.multiply(tile, width), b.extent(begin))], width)
        return loops_around([*outer, (tile, count)], body, shared)

    if isinstance(extent, int):
        width = wide if extent >= PIECE * lanes else lanes
        parts = [tiles_of(width, 0, extent // width, shared=is_shared)]
        # The last tile begins earlier: what it computes again is equal.
        parts += [tiles_of(width, extent - width, 1, shared=False)] if extent % width else []
        return block(*parts)
    parts, done = list[ir.Statement](), b.extent(0)
    for width in dict.fromkeys((wide, lanes, 1)):
        count = b.divide(b.subtract(extent, done), width)
        parts.append(tiles_of(width, done, b.counted(count), shared=is_shared and width > 1))
        done = b.add(done, b.multiply(count, width))
    return block(*parts)


def _line(group: Sequence[ir.Stage], stored: Collection[ir.Buffer], outer: Places, lanes: int) -> ir.Statement:
    """Return the loop along one line of a scan, or along ``lanes`` of them side by side."""
    scan, dimension = scan_of(group[0]), carried_dimension(group[0])
    extent = b.counts(group[0].buffer)[dimension]
    found = [reads_before(group, load) for stage in group for load in loads(*stage_expressions(stage))]
    carried = [stage for stage in group if stage in found]
    totals = {
        stage.buffer: ir.Buffer(f"last_{stage.buffer.name}", stage.buffer.dtype, (b.index(lanes),), memory="register")
        for stage in carried
    }

    def side_by_side(body: Callable[[ir.Expression, Places], ir.Statement]) -> ir.Statement:
        if lanes == 1:
            return body(b.index(0), outer)
        lane = ir.Variable("lane")
        return ir.For(lane, b.index(lanes), "vector", body(lane, [*outer[:-1], b.add(outer[-1], lane)]))

    def begin(stage: ir.Stage, lane: ir.Expression, row: Places) -> ir.Statement:
        start = scan_of(stage).initial
        assert start is not None, stage.buffer.name
        rest = [axis for place, axis in enumerate(stage.axes) if place != dimension]
        return ir.Store(totals[stage.buffer], (lane,), substitute(start, dict(zip(rest, row, strict=True))))

    def step(position: ir.Expression, lane: ir.Expression, row: Places) -> ir.Statement:
        at = (*row[:dimension], position, *row[dimension:])
        before = {stage.buffer: ir.Variable("before", stage.value.type) for stage in carried}
        now = {stage.buffer: ir.Variable("now", stage.value.type) for stage in group}

        def rule(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer not in now:
                return node
            return now[node.buffer] if reads_before(group, node) is None else before[node.buffer]

        body: ir.Statement = ir.Block(
            tuple(
                statement
                for stage in group
                for statement in (
                    *([ir.Store(stage.buffer, at, now[stage.buffer])] if stage.buffer in stored else []),
                    *([ir.Store(totals[stage.buffer], (lane,), now[stage.buffer])] if stage in carried else []),
                )
            )
        )
        for stage in reversed(group):
            value = substitute(ExpressionMap(rule)(stage.value), dict(zip(stage.axes, at, strict=True)))
            body = ir.Let(now[stage.buffer], value, body)
        for stage in carried:
            body = ir.Let(before[stage.buffer], ir.Load(totals[stage.buffer], (lane,)), body)
        return body

    def along(time: ir.Expression) -> ir.Statement:
        position = b.subtract(b.subtract(b.extent(extent), 1), time) if scan.reverse else time
        return side_by_side(lambda lane, row: step(position, lane, row))

    start = [side_by_side(lambda lane, row, of=stage: begin(of, lane, row)) for stage in carried]  # type: ignore[misc]
    time = ir.Variable("t")
    body = block(*start, ir.For(time, b.extent(extent), "serial", along(time)))
    for buffer in totals.values():
        body = ir.Allocate(buffer, body)
    return body


# ---- Scatters -----------------------------------------------------------------------------------------------------


def _scatter(stage: ir.Stage, scatter: ir.Scatter, machine: Machine) -> ir.Statement:
    """Return the loops over the updates, after those that fill the buffer.

    Along an axis that itself is an index no update meets another one: threads share it. If it is the last index and no
    other needs it, its elements lie side by side, for vectors. The other axes run in order.
    """
    indices, update = scatter.indices, scatter.update
    if scatter.operator != "set":
        update = b.binary(scatter.operator, ir.Load(stage.buffer, indices), update)
    axes = [LoopAxis.over(axis.variable, axis.extent) for axis in scatter.axes]
    apart = [axis for axis in axes if axis.variable in indices]
    ordered = [axis for axis in axes if axis not in apart]
    if not apart or 0 in (axis.extent for axis in axes):
        return block(stage_nest(stage, machine), nested(axes, ir.Store(stage.buffer, indices, update)))
    *outer, last = apart
    is_shared = prod(axis.extent for axis in axes) >= machine.costs.task
    lanes = _lanes(stage.buffer, indices, update, last.variable, machine)
    if lanes > 1:
        loops = nested([*apart, *ordered], ir.Store(stage.buffer, indices, update))
        updates = taken(loops, blocked(apart, lanes * PIECE, lanes, machine, is_shared), apart)
    elif indices[-1] is last.variable:
        piece, inside = ir.Variable("piece"), ir.Variable(last.variable.name)
        first, extent = b.multiply(piece, PIECE), last.iterations
        inner = LoopAxis(inside, PIECE, b.minimum(b.subtract(extent, first), PIECE))
        here = substitution({last.variable: b.add(first, inside)})
        store = ir.Store(stage.buffer, tuple(map(here, indices)), here(update))
        pieces = LoopAxis.over(piece, b.divide(b.add(extent, PIECE - 1), PIECE))
        updates = outer_loops([*outer, pieces], nested([*ordered, inner], store), is_shared)
    else:
        updates = outer_loops(apart, nested(ordered, ir.Store(stage.buffer, indices, update)), is_shared)
    return block(stage_nest(stage, machine), updates)


def varies(buffer: ir.Buffer) -> bool:
    """Whether an extent of a buffer is known only when a kernel runs."""
    return not all(isinstance(extent, ir.Constant) for extent in buffer.shape)


def _is_sequential(anchor: Anchor, target: Target) -> Answer:
    return any(map(is_sequential, anchor.kernel.stages)) or OTHER_FORM


STRATEGY = Strategy("sequential_loops", frozenset(Trait), of_kernel(schedule_sequential), _is_sequential, varies=None)
"""It takes every kernel with a scan, a scatter or a selection, which no strategy behind it knows."""
