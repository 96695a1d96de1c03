"""Transposing nests: where a load and the store are contiguous along different axes, square tiles in registers.

A tile is read in vectors along the load's axis, transposed by shuffles, and written in vectors along the store's axis:
every cache line on both sides is touched whole and once. Of two or three neighbours that come from rows of their own
(channels that become the last axis, pixels of a larger image) vectors of all these rows are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, stride
from graft.core.schedule.loops.loop_frames import TASKS, nested, outer_loops
from graft.core.schedule.loops.segments import part
from graft.core.schedule.primitives.statements import registers
from graft.core.schedule.primitives.step import combine
from graft.core.schedule.primitives.transpose import bound_row, transposed
from graft.core.schedule.primitives.vectorize import broadcast, vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate, bind
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute
from graft.core.types import element_bits

SMALLEST_TILE, LARGEST_TILE = 4, 16
SHARE, FEWEST = 0.5, 4
"""How much of the nearest cache what a block of tiles reads may take, and the tiles of a block at least."""


@dataclass(frozen=True, slots=True)
class Transposition:
    """What is transposed: the axis along which the store is contiguous, that of the loads, and those loads."""

    along_store: LoopAxis
    along_load: LoopAxis
    transposed: tuple[ir.Load, ...]
    lanes: int
    again: bool
    """Whether an element may be computed twice."""

    def is_dense(self, simplifier: Simplifier) -> bool:
        """Whether rows that are read lie one behind the other, so that they have all of a cache."""
        places = (load.indices[0] for load in self.transposed)
        return all(stride(one, self.along_store.variable, simplifier) == self.along_load.extent for one in places)

    @property
    def interleaves(self) -> bool:
        """Whether the store's axis is shorter than a tile, and the load's axis follows it in what is stored."""
        return self.along_store.extent < SMALLEST_TILE


def find_transposition(stage: FlatStage, simplifier: Simplifier, lanes: int) -> Transposition | None:
    """Return the transposition in a collapsed stage without reduction, None if there is none worth tiles."""
    lanes = min(LARGEST_TILE, lanes)
    if lanes < SMALLEST_TILE or stage.operator is not None:
        return None
    by_store = [axis for axis in stage.axes if stride(stage.place, axis.variable, simplifier) == 1]
    if not by_store:
        return None
    last = by_store[-1]
    if last.extent < SMALLEST_TILE:
        return _interleaving(stage, last, simplifier, lanes)
    for axis in stage.axes:
        if not axis.is_whole:
            continue
        found = tuple(
            load
            for load in loads(stage.value)
            if load.mask is None
            and stride(load.indices[0], axis.variable, simplifier) == 1
            and stride(load.indices[0], last.variable, simplifier) not in (0, 1)
        )
        if axis is last or axis.extent < SMALLEST_TILE or not found:
            continue
        again = axis.is_known and last.is_known and _may_be_computed_again(stage, found, simplifier)
        side = _side((last.extent, axis.extent), lanes)
        if side <= min(last.extent, axis.extent):
            return Transposition(last, axis, found, side, again)
    return None


def _interleaving(stage: FlatStage, last: LoopAxis, simplifier: Simplifier, lanes: int) -> Transposition | None:
    """Return the transposition of a few rows, each read in vectors, whose elements are stored in turns."""
    if not last.is_known or last.extent < 2:
        return None
    for axis in stage.axes:
        if axis is last or not axis.is_whole or stride(stage.place, axis.variable, simplifier) != last.extent:
            continue
        own = loads(stage.value)
        steps = {stride(load.indices[0], axis.variable, simplifier) for load in own}
        side = min(lanes, 1 << axis.extent.bit_length() - 1)
        if side >= SMALLEST_TILE and steps and steps <= {0, 1}:
            return Transposition(last, axis, tuple(own), side, axis.is_known)
    return None


def _may_be_computed_again(stage: FlatStage, transposed: Sequence[ir.Load], simplifier: Simplifier) -> bool:
    """Whether nothing is read where the result is written, where it may lie in memory over an operand."""
    others = [load for load in loads(stage.value) if all(load is not one for one in transposed)]
    return all(simplifier(load.indices[0]) != simplifier(stage.place) for load in others)


def _side(extents: Sequence[int], lanes: int) -> int:
    """Return the side of the tiles that cover a matrix in the fewest steps: loads, stores and exchanges of vectors."""
    sides = [1 << bits for bits in range(SMALLEST_TILE.bit_length() - 1, lanes.bit_length())]
    fitting = [side for side in sides if side <= min(extents)]

    def steps(side: int) -> int:
        return prod(-(-extent // side) for extent in extents) * side * (1 + side.bit_length())

    return min(reversed(fitting), key=steps)


def transposing_nest(
    stage: FlatStage, found: Transposition, simplifier: Simplifier, machine: Machine, threads: bool
) -> tuple[ir.Statement, tuple[FlatStage, ...]]:
    """Return loops over the tiles of a transposition, and the stages of what is left beside them.

    Nothing is left where elements may be computed again: the last tile of a row begins earlier then.
    """
    outer = [axis for axis in stage.axes if axis not in (found.along_store, found.along_load)]
    load_tiles = _tiles(found.along_load, found)
    inside = [load_tiles.within] if load_tiles.within else []
    if found.interleaves:
        body = nested(inside, _interleaved(stage, found, load_tiles.start))
        body = outer_loops([*outer, load_tiles.tasks], body, threads, machine)
        return body, tuple(_rest(stage, found, (found.along_load,), simplifier))
    stores = _tiles(found.along_store, found)
    corner = {found.along_store.variable: stores.start, found.along_load.variable: load_tiles.start}
    body = nested([stores.within] if stores.within else [], _tile(stage, found, corner))
    blocks, tiles = _blocks(stores.tasks, found, simplifier, machine)
    if blocks:
        number = combine("add", combine("mul", blocks[0].variable, tiles.extent), tiles.variable)
        body = bind([(stores.tasks.variable, number)], body)
    shared = [*outer, *blocks, load_tiles.tasks]
    if threads and not blocks and prod(axis.least for axis in shared) < TASKS:
        shared.append(tiles)
    else:
        inside.append(tiles)
    body = outer_loops(shared, nested(inside, body), threads, machine)
    return body, tuple(_rest(stage, found, (found.along_store, found.along_load), simplifier))


def _rest(
    stage: FlatStage, found: Transposition, axes: Sequence[LoopAxis], simplifier: Simplifier
) -> Iterator[FlatStage]:
    """Yield what is left behind whole tiles along each axis, within those of the axes before it."""
    for axis in () if found.again else axes:
        extent = axis.iterations
        whole = simplifier(b.multiply(b.divide(extent, found.lanes), found.lanes))
        if whole != extent:
            yield part(stage, axis, b.counted(whole), b.counted(extent), simplifier)
            stage = part(stage, axis, 0, b.counted(whole), simplifier)


@dataclass(frozen=True, slots=True)
class _AxisTiling:
    """The tiles along an axis: tasks of one each, but the last of two where tiles overlap; where a tile begins."""

    tasks: LoopAxis
    within: LoopAxis | None
    start: ir.Expression


def _blocks(
    tasks: LoopAxis, found: Transposition, simplifier: Simplifier, machine: Machine
) -> tuple[list[LoopAxis], LoopAxis]:
    """Return loops over blocks of tiles, and over a block's: what these read stays in the nearest cache meanwhile."""
    size = found.along_load.extent * found.lanes * element_bits(found.transposed[0].type.dtype) // 8
    many = int(machine.cache(1).size * SHARE) // size
    is_known = tasks.is_known and found.along_load.is_known and len(machine.levels) < 2
    if not is_known or many < FEWEST or tasks.extent <= many or not found.is_dense(simplifier):
        return [], tasks
    many = -(-tasks.extent // -(-tasks.extent // many))
    block = LoopAxis(ir.Variable(f"{tasks.variable.name}_block"), -(-tasks.extent // many))
    left = combine("sub", b.index(tasks.extent), combine("mul", block.variable, many))
    cut = None if tasks.extent % many == 0 else b.minimum(b.index(many), left)
    return [block], LoopAxis(ir.Variable(f"{tasks.variable.name}_in"), many, cut)


def _tiles(axis: LoopAxis, found: Transposition) -> _AxisTiling:
    side, name = found.lanes, f"{axis.variable.name}_tile"
    tasks = LoopAxis.over(ir.Variable(name), b.divide(axis.iterations, side), max(1, axis.extent // side))
    if axis.extent % side == 0 or not found.again:
        return _AxisTiling(tasks, None, combine("mul", tasks.variable, side))
    count = b.maximum(b.index(1), combine("add", tasks.variable, 3 - tasks.extent))
    within = LoopAxis(ir.Variable(f"{name}_again"), 2, count)
    begin = combine("mul", combine("add", tasks.variable, within.variable), side)
    return _AxisTiling(tasks, within, b.minimum(begin, b.index(axis.extent - side)))


def _tile(stage: FlatStage, found: Transposition, corner: dict[ir.Variable, ir.Expression]) -> ir.Statement:
    """Return the code of one tile whose first element is at ``corner``."""
    lanes = found.lanes
    store_start = corner[found.along_store.variable]
    load_start = corner[found.along_load.variable]
    rows: list[dict[int, ir.Expression]] = [{} for _ in range(lanes)]
    parts: list[ir.Statement] = []
    kept: list[ir.Buffer] = []
    for load in found.transposed:
        bindings: list[tuple[ir.Variable, ir.Expression]] = []
        columns = []
        for column in range(lanes):
            place = substitute(load.indices[0], {found.along_store.variable: combine("add", store_start, column)})
            ramp = ir.Ramp(load_start, 1, lanes)
            vector = vectorize_expression(ir.Load(load.buffer, (place,)), {found.along_load.variable: ramp})
            columns.append(bound_row(bindings, vector))
        kept.append(registers("rows", load.type.dtype, lanes, lanes))
        own: list[tuple[ir.Expression, ...]] = [(b.index(row), ir.Ramp(b.index(0), 1, lanes)) for row in range(lanes)]
        filled = zip(own, transposed(columns, bindings), strict=True)
        # Bindings of all loads in each other would be deeper than Python's functions may call each other.
        parts.append(bind(bindings, ir.Block(tuple(ir.Store(kept[-1], at, row) for at, row in filled))))
        for row, at in enumerate(own):
            rows[row][id(load)] = ir.Load(kept[-1], at)
    stores: list[ir.Statement] = []
    for row in range(lanes):
        values: dict[ir.Variable, ir.Expression] = {
            found.along_store.variable: ir.Ramp(store_start, 1, lanes),
            found.along_load.variable: combine("add", load_start, row),
        }
        value = vectorize_expression(_replaced(stage.value, rows[row]), values)
        place = vectorize_expression(stage.place, values)
        stores.append(ir.Store(stage.target, (place,), broadcast(value, lanes)))
    return allocate(kept, ir.Block((*parts, *stores)))


def _interleaved(stage: FlatStage, found: Transposition, start: ir.Expression) -> ir.Statement:
    """Return what computes a vector of each row, from ``start`` on, and stores their elements in turns."""
    lanes, count = found.lanes, found.along_store.extent
    bindings: list[tuple[ir.Variable, ir.Expression]] = []
    rows = []
    for row in range(count):
        own = substitute(stage.value, {found.along_store.variable: b.index(row)})
        vector = vectorize_expression(own, {found.along_load.variable: ir.Ramp(start, 1, lanes)})
        rows.append(bound_row(bindings, broadcast(vector, lanes)))
    begin = substitute(stage.place, {found.along_store.variable: b.index(0), found.along_load.variable: start})
    stores: list[ir.Statement] = []
    for first in range(0, count * lanes, lanes):
        places = [divmod(first + lane, count) for lane in range(lanes)]
        joined, taken = rows[0], [column for column, _ in places]
        for row in range(1, count):
            chosen = tuple(
                lanes + column if own == row else kept for kept, (column, own) in zip(taken, places, strict=True)
            )
            joined, taken = bound_row(bindings, ir.Shuffle((joined, rows[row]), chosen)), list(range(lanes))
        stores.append(ir.Store(stage.target, (ir.Ramp(combine("add", begin, first), 1, lanes),), joined))
    return bind(bindings, ir.Block(tuple(stores)))


def _replaced(value: ir.Expression, taken: dict[int, ir.Expression]) -> ir.Expression:
    """Replace loads, known by identity, by the vectors that hold them."""
    replaced = ExpressionMap(lambda node: node)
    for load in loads(value):
        if id(load) in taken:
            replaced.define(load, taken[id(load)])
    return replaced(value)
