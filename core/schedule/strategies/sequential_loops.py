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
from graft.core.operators import build as b
from graft.core.operators.control_loops import block, let, loop
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.loop_frames import outer_loops
from graft.core.schedule.loops.vectorize import instantiate, lower_loops
from graft.core.schedule.strategy import OTHER_FORM, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir.ir import (
    Allocate,
    Axis,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Scan,
    Scatter,
    Selection,
    Stage,
    Statement,
    Store,
    Variable,
)
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
from graft.core.tensor_ir.simplify import simplify_statement
from graft.core.tensor_ir.visit import ExpressionMap, loads, map_statement, substitute, substitution
from graft.core.types import element_bits, is_custom

ZERO = (b.index(0),)
Places = list[Expression]


def schedule_sequential(kernel: Kernel, target: Target) -> Scheduled:
    """Return loops for a kernel of any stages, some of which are scans, scatters or selections."""
    body = loops_of(kernel.stages, kernel.outputs, target.machine)
    # What is written twice, with another start or tail, gets fresh variables, so that each is bound once.
    finished = instantiate(simplify_statement(lower_loops(body)), {})
    parameters = (*kernel.inputs, *kernel.outputs)
    return Scheduled(Function(kernel.name, parameters, len(kernel.outputs), finished, kernel.origin))


def loops_of(stages: Sequence[Stage], outputs: Collection[Buffer], machine: Machine) -> Statement:
    """Return the loops of stages one after the other; what lies between them is in scratch memory."""
    parts, kept = [], []
    for group in stage_loops(stages):
        own = {stage.buffer for stage in group}
        others = [stage for stage in stages if stage.buffer not in own]
        read = {load.buffer for stage in others for load in loads(*stage_expressions(stage))}
        stored = [stage.buffer for stage in group if stage.buffer in outputs or stage.buffer in read]
        match group[0].order:
            case Scan() if _runs_in_lines(group):
                parts.append(_lines(group, stored, machine))
            case Scan():
                folded = _folded(group, stored)
                stored += folded.values()
                parts.append(_with_buffers(scan_loops(group), group, folded))
            case Scatter():
                parts.append(_scatter(group[0], group[0].order))
            case Selection():
                parts.append(_selection(group[0], group[0].order, machine))
            case None:
                parts.append(stage_nest(group[0]))
            case _:
                assert_never(group[0].order)
        kept += [buffer for buffer in stored if buffer not in outputs]
    body: Statement = Block(tuple(parts))
    for buffer in reversed(kept):
        body = Allocate(buffer, body)
    return body


def _nest(axes: Sequence[Axis], body: Statement) -> Statement:
    """Return serial loops over axes."""
    for axis in reversed(axes):
        body = For(axis.variable, axis.extent, "serial", body)
    return body


def stage_nest(stage: Stage, fixed: Mapping[Variable, Expression] | None = None) -> Statement:
    """Return the loops of one stage, without its order: scalar ones. Axes in ``fixed`` have one position only."""
    loop_axes = {axis: Variable(axis.name) for axis in stage.axes if axis not in (fixed or {})}
    fresh: dict[Variable, Expression] = {**loop_axes, **(fixed or {})}
    pairs = zip(stage.axes, stage.buffer.shape, strict=True)
    rows = [Axis(loop_axes[axis], extent) for axis, extent in pairs if axis in loop_axes]
    change, at = substitution(fresh), tuple(fresh[axis] for axis in stage.axes)
    if stage.reduction is None:
        return _nest(rows, Store(stage.buffer, at, change(stage.value)))
    total = Buffer("total", stage.value.type.dtype, (b.index(1),), memory="register")
    inner = {axis.variable: Variable(axis.variable.name) for axis in stage.reduction.axes}
    term = b.binary(stage.reduction.operator, Load(total, ZERO), substitute(stage.value, {**fresh, **inner}))
    reduced = [Axis(inner[axis.variable], axis.extent) for axis in stage.reduction.axes]
    finish: Statement = Store(stage.buffer, at, Load(total, ZERO))
    if stage.epilogue is not None and stage.epilogue_variable is not None:
        variable = Variable(stage.epilogue_variable.name, stage.epilogue_variable.type)
        result = substitute(stage.epilogue, {**fresh, stage.epilogue_variable: variable})
        finish = Let(variable, Load(total, ZERO), Store(stage.buffer, at, result))
    start = Store(total, ZERO, change(stage.reduction.initial))
    return _nest(rows, Allocate(total, block(start, _nest(reduced, Store(total, ZERO, term)), finish)))


# ---- Scans --------------------------------------------------------------------------------------------------------


def scan_loops(group: Sequence[Stage]) -> Statement:
    """Return the loop over the positions of a scan with its stages one after the other inside."""
    scan = scan_of(group[0])
    extent = b.dims(group[0].buffer)[carried_dimension(group[0])]

    def at(stages: Sequence[Stage], step: Expression) -> Statement:
        place = b.subtract(extent - 1, step) if scan.reverse else step
        return block(*(stage_nest(stage, {scan.carried: place}) for stage in stages))

    if extent == 0:
        return Block(())
    first = at(with_carried(group, at_first), b.index(0))
    if extent == 1:
        return first
    step = Variable(scan.carried.name)
    rest = For(step, b.index(extent - 1), "serial", at(group, b.add(step, 1)))
    return block(first, rest)


def _folded(group: Sequence[Stage], stored: Collection[Buffer]) -> dict[Buffer, Buffer]:
    """Return memory for what a scan alone reads of itself: one position, or two where the one before is read, too."""
    found = [reads_before(group, load) for stage in group for load in loads(*stage_expressions(stage))]
    folded = {}
    for stage in group:
        if stage.buffer not in stored:
            shape, positions = list(stage.buffer.shape), 2 if stage in found else 1
            shape[carried_dimension(stage)] = b.index(positions)
            folded[stage.buffer] = replace(stage.buffer, shape=tuple(shape))
    return folded


def _with_buffers(body: Statement, group: Sequence[Stage], folded: Mapping[Buffer, Buffer]) -> Statement:
    """Return the statement with some buffers folded along the axis that a scan carries."""
    dimensions = {stage.buffer: carried_dimension(stage) for stage in group}

    def place(buffer: Buffer, indices: Sequence[Expression]) -> tuple[Expression, ...]:
        dimension, new = dimensions[buffer], folded[buffer]
        wrapped = b.modulo(indices[dimension], b.dims(new)[dimension])
        return (*indices[:dimension], wrapped, *indices[dimension + 1 :])

    def expression(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in folded:
            return node
        return Load(folded[node.buffer], place(node.buffer, node.indices), node.mask)

    def rule(statement: Statement) -> Statement:
        if not isinstance(statement, Store) or statement.buffer not in folded:
            return statement
        return replace(statement, buffer=folded[statement.buffer], indices=place(statement.buffer, statement.indices))

    return map_statement(body, ExpressionMap(expression), rule) if folded else body


def _runs_in_lines(group: Sequence[Stage]) -> bool:
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


def _lines(group: Sequence[Stage], stored: Collection[Buffer], machine: Machine) -> Statement:
    """Return the loops over the lines of a scan."""
    shape, dimension = b.dims(group[0].buffer), carried_dimension(group[0])
    rows = [LoopAxis(Variable(f"i{place}"), extent) for place, extent in enumerate(shape) if place != dimension]
    kinds = {stage.buffer.dtype for stage in group}
    kinds |= {load.buffer.dtype for stage in group for load in loads(*stage_expressions(stage))}
    widest = max(element_bits(kind) // 8 or 1 for kind in kinds)
    lanes = 1 if any(map(is_custom, kinds)) else max(1, machine.vector_bytes // widest)
    is_shared = prod(shape) >= machine.costs.task
    if dimension == len(shape) - 1 or lanes == 1 or shape[-1] < lanes:
        return outer_loops(rows, _line(group, stored, [axis.variable for axis in rows], 1), is_shared)
    *outer, last = rows
    around: Places = [axis.variable for axis in outer]
    tiles, rest = divmod(last.extent, lanes)
    tile = LoopAxis(Variable(f"{last.variable.name}_tile"), tiles)
    body = _line(group, stored, [*around, b.multiply(tile.variable, lanes)], lanes)
    parts = [outer_loops([*outer, tile], body, is_shared)]
    if rest:
        left = Variable(last.variable.name)
        body = _line(group, stored, [*around, b.add(left, tiles * lanes)], 1)
        parts.append(outer_loops([*outer, LoopAxis(left, rest)], body, False))
    return block(*parts)


def _line(group: Sequence[Stage], stored: Collection[Buffer], outer: Places, lanes: int) -> Statement:
    """Return the loop along one line of a scan, or along ``lanes`` of them side by side."""
    scan, dimension = scan_of(group[0]), carried_dimension(group[0])
    extent = b.dims(group[0].buffer)[dimension]
    found = [reads_before(group, load) for stage in group for load in loads(*stage_expressions(stage))]
    carried = [stage for stage in group if stage in found]
    totals = {
        stage.buffer: Buffer(f"last_{stage.buffer.name}", stage.buffer.dtype, (b.index(lanes),), memory="register")
        for stage in carried
    }

    def side_by_side(body: Callable[[Expression, Places], Statement]) -> Statement:
        if lanes == 1:
            return body(b.index(0), outer)
        lane = Variable("lane")
        return For(lane, b.index(lanes), "vector", body(lane, [*outer[:-1], b.add(outer[-1], lane)]))

    def begin(stage: Stage, lane: Expression, row: Places) -> Statement:
        start = scan_of(stage).initial
        assert start is not None, stage.buffer.name
        rest = [axis for place, axis in enumerate(stage.axes) if place != dimension]
        return Store(totals[stage.buffer], (lane,), substitute(start, dict(zip(rest, row, strict=True))))

    def step(position: Expression, lane: Expression, row: Places) -> Statement:
        at = (*row[:dimension], position, *row[dimension:])
        before = {stage.buffer: Variable("before", stage.value.type) for stage in carried}
        now = {stage.buffer: Variable("now", stage.value.type) for stage in group}

        def rule(node: Expression) -> Expression:
            if not isinstance(node, Load) or node.buffer not in now:
                return node
            return now[node.buffer] if reads_before(group, node) is None else before[node.buffer]

        body: Statement = Block(
            tuple(
                statement
                for stage in group
                for statement in (
                    *([Store(stage.buffer, at, now[stage.buffer])] if stage.buffer in stored else []),
                    *([Store(totals[stage.buffer], (lane,), now[stage.buffer])] if stage in carried else []),
                )
            )
        )
        for stage in reversed(group):
            value = substitute(ExpressionMap(rule)(stage.value), dict(zip(stage.axes, at, strict=True)))
            body = Let(now[stage.buffer], value, body)
        for stage in carried:
            body = Let(before[stage.buffer], Load(totals[stage.buffer], (lane,)), body)
        return body

    def along(time: Expression) -> Statement:
        position = b.subtract(extent - 1, time) if scan.reverse else time
        return side_by_side(lambda lane, row: step(position, lane, row))

    start = [side_by_side(lambda lane, row, of=stage: begin(of, lane, row)) for stage in carried]  # type: ignore[misc]
    time = Variable("t")
    body = block(*start, For(time, b.index(extent), "serial", along(time)))
    for buffer in totals.values():
        body = Allocate(buffer, body)
    return body


# ---- Scatters -----------------------------------------------------------------------------------------------------


def _scatter(stage: Stage, scatter: Scatter) -> Statement:
    update, held = scatter.update, Load(stage.buffer, scatter.indices)
    if scatter.operator != "set":
        update = b.binary(scatter.operator, held, update)
    return block(stage_nest(stage), _nest(scatter.axes, Store(stage.buffer, scatter.indices, update)))


# ---- Selections ---------------------------------------------------------------------------------------------------


def _selection(stage: Stage, selection: Selection, machine: Machine) -> Statement:
    """One pass per rank: the best candidate that comes after the previous one in the order (key, then position)."""
    dimension, kind = stage.axes.index(selection.rank), stage.value.type.dtype
    shape = b.dims(stage.buffer)
    rows = [(axis, Variable(axis.name)) for axis in stage.axes if axis is not selection.rank]
    best = Buffer("best", kind, (b.index(1),), memory="register")
    where = Buffer("where", "int64", (b.index(1),), memory="register")

    def before(x: Expression, y: Expression) -> Expression:
        x, y = (x, y) if selection.largest else (y, x)
        greater = b.greater(x, y)
        return b.either(greater, b.both(b.is_nan(x), b.equal(y, y))) if x.type.is_float else greater

    def consider(key: Expression, place: Expression, last: tuple[Expression, Expression] | None) -> Statement:
        better = b.either(b.equal(Load(where, ZERO), -1), before(key, Load(best, ZERO)))
        if last is not None:
            same = b.both(b.same(last[0], key), b.greater(place, last[1]))
            better = b.both(b.either(before(last[0], key), same), better)
        return If(better, block(Store(best, ZERO, key), Store(where, ZERO, place)))

    def rank(number: Expression, last: tuple[Expression, Expression] | None) -> Statement:
        candidate = Variable(selection.candidate.variable.name)
        key = substitute(stage.value, {**dict(rows), selection.candidate.variable: candidate})
        at = [variable for _, variable in rows]
        seek = For(
            candidate, selection.candidate.extent, "serial", let(key, lambda x: consider(x, candidate, last), "x")
        )
        found = Store(stage.buffer, (*at[:dimension], number, *at[dimension:]), Load(where, ZERO))
        return block(Store(where, ZERO, b.index(-1)), seek, found)

    def next_rank(number: Expression) -> Statement:
        value, place = Variable("last", stage.value.type), Variable("last_place")
        body = rank(b.add(number, 1), (value, place))
        return Let(value, Load(best, ZERO), Let(place, Load(where, ZERO), body))

    line: Statement = rank(b.index(0), None)
    if shape[dimension] > 1:
        line = block(line, loop(shape[dimension] - 1, next_rank, name="rank"))
    extents = [extent for place, extent in enumerate(shape) if place != dimension]
    axes = [LoopAxis(variable, extent) for (_, variable), extent in zip(rows, extents, strict=True)]
    work = prod(shape) * b.dims(replace(stage.buffer, shape=(selection.candidate.extent,)))[0]
    return outer_loops(axes, Allocate(best, Allocate(where, line)), work >= machine.costs.task)


def _is_sequential(anchor: Anchor, target: Target) -> Answer:
    return any(map(is_sequential, anchor.kernel.stages)) or OTHER_FORM


STRATEGY = Strategy("sequential_loops", frozenset(Trait), of_kernel(schedule_sequential), _is_sequential)
"""It takes every kernel with a scan, a scatter or a selection, which no strategy behind it knows."""
