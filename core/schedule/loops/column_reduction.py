"""Reductions over leading axes of large data, row by row: memory is read in order, a block of totals stays in a cache.

Accumulators in registers would read a few cache lines of each row and then the next row, a page away;
where the rows do not stay in a cache, the memory and its prefetchers are much faster over long pieces of few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.accumulate import finish
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import blocked, nested, outer_loops, taken
from graft.core.schedule.primitives.step import combine
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute, substitution
from graft.core.types import INT64, element_bits, storage_dtype

BLOCK_SHARE = 0.5
"""The totals of one block of columns, as a part of the first-level cache."""
ROWS = 8
"""Rows that are added to the totals together."""
CACHED_SHARE = 0.5
"""Data of so much of the second-level cache is reduced in registers, since its rows come from there."""


def reads_row_by_row(stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine) -> bool:
    """Whether a reduction with ``axis`` as vectors is large enough for blocks of totals."""
    if not stage.reduced or stage.reduced[-1].extent < ROWS:
        return False
    if not all(one.is_known for one in (*stage.reduced, axis)):
        return False
    size = prod(other.extent for other in (*stage.axes, *stage.reduced)) * _bytes(stage)
    return axis.extent >= 2 * ROWS * lanes and size > CACHED_SHARE * machine.working_set(2)


def column_blocks(stage: FlatStage, axis: LoopAxis, machine: Machine) -> int:
    """Return the number of blocks whose totals fill their share of the first-level cache at the most."""
    return -(-axis.extent * _bytes(stage) // int(BLOCK_SHARE * machine.working_set(1)))


def reduce_columns(
    stage: FlatStage, outer: Sequence[LoopAxis], axis: LoopAxis, lanes: int, machine: Machine, parallel: bool
) -> ir.Statement:
    """Reduce blocks of columns along ``axis``; ``parallel`` shares the blocks among threads."""
    length = -(-axis.extent // (column_blocks(stage, axis, machine) * lanes)) * lanes
    whole, rest = divmod(axis.extent, length)
    block = ir.Variable(f"{axis.variable.name}_block")
    body = _reduce_block(stage, axis, combine("mul", block, length), length, lanes, machine)
    parts = [outer_loops([*outer, LoopAxis(block, whole)], body, parallel, machine)]
    if rest:
        last = _reduce_block(stage, axis, ir.Constant(whole * length, INT64), rest, lanes, machine)
        parts.append(outer_loops(outer, last, parallel, machine))
    return ir.Block(tuple(parts))


def _reduce_block(
    stage: FlatStage, axis: LoopAxis, start: ir.Expression, length: int, lanes: int, machine: Machine
) -> ir.Statement:
    """Reduce ``length`` columns from ``start`` on."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator, last = stage.operator, stage.reduced[-1]
    totals = ir.Buffer("totals", stage.value.type.dtype, (ir.Constant(length, INT64),), memory="scratch", alignment=64)

    def columns(body: Callable[[FlatStage, ir.Load], ir.Statement]) -> ir.Statement:
        """Return a loop over the columns; ``body`` gets the stage at one of them, and its total."""
        column = ir.Variable(axis.variable.name)
        here = substitution({axis.variable: ir.Binary("add", start, column)})
        total = ir.Load(totals, (column,))
        loop = ir.For(column, ir.Constant(length, INT64), "serial", body(stage.map(here), total))
        return taken(loop, blocked((LoopAxis(column, length),), lanes, lanes, machine))

    def begin(at: FlatStage, total: ir.Load) -> ir.Statement:
        assert at.initial is not None, "not a reduction"
        return ir.Store(totals, total.indices, at.initial)

    def add(at: FlatStage, total: ir.Load, row: ir.Expression, count: int) -> ir.Statement:
        value: ir.Expression = total
        for number in range(count):
            value = ir.Binary(operator, value, substitute(at.value, {last.variable: combine("add", row, number)}))
        return ir.Store(totals, total.indices, value)

    groups, rest = divmod(last.extent, ROWS)
    group = LoopAxis(ir.Variable("rows"), groups)
    first, left = combine("mul", group.variable, ROWS), ir.Constant(groups * ROWS, INT64)
    inside = [nested([group], columns(lambda at, total: add(at, total, first, ROWS)))]
    if rest:
        inside.append(columns(lambda at, total: add(at, total, left, rest)))
    loops = nested(stage.reduced[:-1], ir.Block(tuple(inside)))
    return ir.Allocate(totals, ir.Block((columns(begin), loops, columns(finish))))


def _bytes(stage: FlatStage) -> int:
    """Return the size of an element of the totals."""
    return max(1, element_bits(storage_dtype(stage.value.type.dtype)) // 8)
