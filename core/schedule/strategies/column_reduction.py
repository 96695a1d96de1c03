"""Reductions over leading axes of large data, row by row: memory is read in order, a block of totals stays in a cache.

Accumulators in registers (`reduce_kept`) would read a few cache lines of each row and then the next row, a page away;
where the rows do not stay in a cache, the memory and its prefetchers are much faster over long pieces of few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from graft.core.schedule.loops.accumulate import finish
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import Places, Vectors, along, nested, outer_loops, plus, times
from graft.core.schedule.loops.vectorize import broadcast, vectorize_expression
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Constant,
    Expression,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.types import INT64, element_bits, storage_dtype

BLOCK_SHARE = 0.5
"""The totals of one block of columns, as a part of the first-level cache."""
ROWS = 8
"""Rows that are added to the totals together."""
CACHED_SHARE = 0.5
"""Data of so much of the second-level cache is reduced in registers, since its rows come from there."""


def reads_row_by_row(stage: FlatStage, axis: LoopAxis, lanes: int, vectors: Vectors) -> bool:
    """Whether a reduction with ``axis`` as vectors is large enough for blocks of totals."""
    if not stage.reduced or stage.reduced[-1].extent < ROWS or any(axis.count is not None for axis in stage.reduced):
        return False
    size = prod(other.extent for other in (*stage.axes, *stage.reduced)) * _bytes(stage)
    return axis.extent >= 2 * ROWS * lanes and size > CACHED_SHARE * vectors.machine.cache(2).size


def reduce_columns(
    stage: FlatStage, outer: Sequence[LoopAxis], axis: LoopAxis, lanes: int, vectors: Vectors, parallel: bool
) -> Statement:
    """Reduce blocks of columns along ``axis``; ``parallel`` shares the blocks among threads."""
    blocks = -(-axis.extent * _bytes(stage) // int(BLOCK_SHARE * vectors.machine.cache(1).size))
    length = -(-axis.extent // (blocks * lanes)) * lanes
    whole, rest = divmod(axis.extent, length)
    block = Variable(f"{axis.variable.name}_block")
    body = _reduce_block(stage, axis, times(block, length), length, lanes, vectors)
    parts = [outer_loops([*outer, LoopAxis(block, whole)], body, parallel)]
    if rest:
        last = _reduce_block(stage, axis, Constant(whole * length, INT64), rest, lanes, vectors)
        parts.append(outer_loops(outer, last, parallel))
    return Block(tuple(parts))


def _reduce_block(
    stage: FlatStage, axis: LoopAxis, start: Expression, length: int, lanes: int, vectors: Vectors
) -> Statement:
    """Reduce ``length`` columns from ``start`` on."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator, initial = stage.operator, stage.initial
    totals = Buffer("totals", stage.value.type.dtype, (Constant(length, INT64),), memory="scratch", alignment=64)
    column = LoopAxis(Variable(axis.variable.name), length)

    def at(place: Expression) -> dict[Variable, Expression]:
        lanes = place.type.lanes
        return {axis.variable: Binary("add", broadcast(start, lanes), place)}

    def begin(places: Places) -> Statement:
        lanes = places[0][0].type.lanes
        values = (vectorize_expression(initial, at(place), mask) for place, mask in places)
        return Block(
            tuple(
                Store(totals, (place,), broadcast(value, lanes), mask)
                for (place, mask), value in zip(places, values, strict=True)
            )
        )

    def add(row: Expression, count: int, places: Places) -> Statement:
        last, stores = stage.reduced[-1].variable, []
        for place, mask in places:
            lanes = place.type.lanes
            total: Expression = Load(totals, (place,), mask)
            for number in range(count):
                value = vectorize_expression(stage.value, at(place) | {last: plus(row, number)}, mask)
                total = Binary(operator, total, broadcast(value, lanes))
            stores.append(Store(totals, (place,), total, mask))
        return Block(tuple(stores))

    def end(places: Places) -> Statement:
        return Block(tuple(finish(stage, at(place), Load(totals, (place,), mask), mask) for place, mask in places))

    def columns(body: Callable[[Places], Statement]) -> Statement:
        return along([], column, lanes, lanes, vectors, body, False)

    groups, rest = divmod(stage.reduced[-1].extent, ROWS)
    group = LoopAxis(Variable("rows"), groups)
    first = times(group.variable, ROWS)
    inside = [nested([group], columns(lambda places: add(first, ROWS, places)))]
    if rest:
        left = Constant(groups * ROWS, INT64)
        inside.append(columns(lambda places: add(left, rest, places)))
    loops = nested(stage.reduced[:-1], Block(tuple(inside)))
    return Allocate(totals, Block((columns(begin), loops, columns(end))))


def _bytes(stage: FlatStage) -> int:
    """Return the size of an element of the totals."""
    return max(1, element_bits(storage_dtype(stage.value.type.dtype)) // 8)
