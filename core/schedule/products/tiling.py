"""Register tiles: how work is cut into them, and which of them a machine computes fastest.

A tile is ``rows x vectors`` accumulators in registers. Each step of the reduction loads ``vectors`` vectors of the
right operand, broadcasts ``rows`` scalars of the left one and does ``rows * vectors`` fused multiply-adds: with enough
accumulators the multiply-adds, not the loads, are the limit (Goto and van de Geijn, "Anatomy of high-performance
matrix multiplication", 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from graft.core.machine.machine import Costs, Machine, Memory
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives import loop_order
from graft.core.schedule.primitives.loop_kinds import Jam, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.products.dot_grouping import PAIRS
from graft.core.tensor_ir import ir
from graft.core.types import FLOATS, element_bits, is_custom

MAX_VECTORS, MAX_ROWS, MAX_UNROLL = 8, 32, 16
CUSTOM_REGISTERS = 11
"""Registers for a tile of a custom datatype: its roundings need the others, and are as much code as the rest."""
EMULATED_REGISTERS = 6
"""Registers that a dot product takes where the processor has no instruction for it."""
UNROLL = 2
"""Terms of a sum that one pass of the innermost loop adds, where no machine is asked."""
TILE_COST = 0.5
"""Rows that a tile costs besides its own, where tiles overlap."""
ARRIVES = 0.35
"""The share of a cache's bandwidth at which tiles read a factor that lies there (a Zen 5, 7 to 32 rows)."""
SPLIT_CYCLES = 0.75
"""What it takes to split a vector of bytes into even and odd ones (Zen 3)."""


@dataclass(frozen=True, slots=True)
class Split:
    """A length cut into ``count`` pieces that differ by at most one: ``larger`` of ``size + 1``, then of ``size``."""

    count: int
    size: int
    larger: int

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The (number of pieces, size) that occur, in order."""
        rows = ((self.larger, self.size + 1), (self.count - self.larger, self.size))
        return tuple(row for row in rows if row[0])

    def begin(self, piece: ir.Expression) -> ir.Expression:
        """Return where a piece begins."""
        start = b.multiply(piece, self.size)
        return b.add(start, b.minimum(piece, b.index(self.larger))) if self.larger else start

    def length(self, piece: ir.Expression) -> ir.Expression:
        """Return the length of a piece."""
        if not self.larger:
            return b.index(self.size)
        return b.select(b.less(piece, self.larger), b.index(self.size + 1), self.size)

    def choose(self, piece: ir.Expression, body: Callable[[int], ir.Statement]) -> ir.Statement:
        """Return ``body(size)`` for the size of a piece."""
        bodies = [body(size) for _, size in self.sizes]
        return bodies[0] if len(bodies) == 1 else ir.If(b.less(piece, self.larger), *bodies)


def split_evenly(length: int, most: int) -> Split:
    """Cut ``length`` into as few pieces of at most ``most`` as possible, all about equally long."""
    count = max(1, -(-length // most))
    return Split(count, length // count, length % count)


def least_overlapping(width: int, most: int) -> int:
    """Return the rows of tiles, half of ``most`` or more, that compute the fewest of ``width`` rows twice."""
    sizes = range(max(1, min(most, width) // 2), min(most, width) + 1)
    return min(sizes, key=lambda size: (-(-width // size) * (size + TILE_COST), -size))


def halves(height: int) -> list[int]:
    """Return a height, half of it, a quarter of it and so on, down to 1: what is left over goes in few tiles."""
    return [height >> shift for shift in range(height.bit_length())]


def in_tiles(tile: RegisterTile, count: int | None = None) -> Iterator[Step]:
    """Yield the steps that make register tiles of loops over vectors ``v``, rows ``i`` and a vector's ``lane``.

    Rows that are left over are in tiles of half, a quarter, ... of the height; vectors are one by one where their
    ``count`` is not known, else in a tile as narrow as they are many.
    """
    whole, rest = (1, 1) if count is None else divmod(count, tile.vectors)
    parts = [("i", "v" if tile.vectors > 1 else "")]
    if tile.lanes > 1:
        yield Vectorize("lane")
    if whole and tile.vectors > 1:
        yield loop_order.Split("v", tile.vectors, "panel", "v", ("rest",) if rest else ())
        if rest:
            parts.append(("i.rest", "" if count is None else "rest"))
    for name, vector in parts:
        row = name
        if vector:
            yield Reorder((name, vector))
        for height, lower in pairwise((*halves(tile.rows), 0)):
            below, beside = f"{name}.{lower}", f"{vector}.{name}.{lower}" if vector else ""
            if lower:
                yield loop_order.Split(row, height, f"{row}.tile", row, (below,))
                yield from (Reorder((vector, row)),) if vector else ()
                yield Jam(row)
            yield from (Jam(vector),) if vector else ()
            row, vector = below, beside


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The shape of a register tile: ``rows`` scalars times ``vectors`` vectors of ``lanes`` elements.

    One pass of its loop adds ``unroll`` terms.
    """

    rows: int
    vectors: int
    lanes: int
    unroll: int = UNROLL

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return self.vectors * self.lanes


def lanes_of(dtype: str, target: Target) -> int:
    """Return how many elements a vector register of the target holds."""
    return max(1, target.vector_bytes * 8 // element_bits(dtype))


Ranked = tuple[float, RegisterTile]


def choose_tile(rows: int, columns: int, dtype: str, target: Target, busy: int = 0) -> RegisterTile:
    """Return the tile whose steps, over all tiles of a ``rows x columns`` result, take the fewest cycles.

    ``busy`` registers are needed for other things.
    """
    return ranked_tiles(rows, columns, dtype, target, busy)[0][1]


def with_dot(dot: str, target: Target) -> tuple[Target, int]:
    """Return a target with the costs of a dot product ("" for none), and how many registers it is busy with besides.

    Where it takes several instructions for each operand, bytes are multiplied by pairs of 16 bits, even and odd apart.
    """
    if not dot or target.machine.has(PAIRS if dot == "dot2_s16" else dot):
        return target, 0
    if dot != "dot4_u8s8":
        return target, EMULATED_REGISTERS
    own = target.machine.costs
    costs = replace(own, fused=own.fused / 2, load=own.load + SPLIT_CYCLES)
    return replace(target, machine=replace(target.machine, costs=costs)), EMULATED_REGISTERS


@cache
def ranked_tiles(rows: int, columns: int, dtype: str, target: Target, busy: int = 0) -> tuple[Ranked, ...]:
    """Return all tiles that fit the registers with the cycles of a step over the result, the fewest first."""
    lanes, costs = lanes_of(dtype, target), target.machine.costs
    registers = CUSTOM_REGISTERS if is_custom(dtype) else target.machine.registers - busy
    total = -(-columns // lanes)
    unroll = 1 if is_custom(dtype) else _unroll(dtype, target.machine)
    found: list[Ranked] = []
    for vectors in range(1, min(MAX_VECTORS, total) + 1):
        # One register is left for the broadcast scalar, and one so that the next can be loaded ahead.
        # Where even the least tile does not fit, registers are saved.
        fits = max((registers - 2 - vectors) // vectors, int(vectors == 1))
        for height in range(1, min(rows, fits) + 1):
            across = total // vectors * _cycles_down(rows, height, vectors, costs)
            if total % vectors:
                across += _cycles_down(rows, height, total % vectors, costs)
            shapes = len(split_evenly(rows, height).sizes) * (1 + (total % vectors > 0))
            across *= 1 + costs.code * (shapes - 1)
            found.append((across, RegisterTile(height, vectors, lanes, unroll)))
    assert found, (rows, columns, dtype)
    return tuple(sorted(found, key=lambda row: (row[0], -row[1].vectors, -row[1].rows)))


def arriving(cycles: float, size: float, cache: Memory) -> float:
    """Return the cycles of products while so many bytes of a factor arrive from a cache."""
    return max(cycles, size / (ARRIVES * cache.bandwidth))


def _unroll(dtype: str, machine: Machine) -> int:
    return machine.float_unroll or machine.unroll if dtype in FLOATS else machine.unroll


def adjusted_tile(
    tile: RegisterTile, height: int, width: int, rows: int | None, vectors: int | None, unroll: int | None = None
) -> RegisterTile:
    """Return a tile with what is given in place of its own, as far as it fits a ``height x width`` result."""
    return RegisterTile(
        min(rows or tile.rows, height, MAX_ROWS),
        min(vectors or tile.vectors, -(-width // tile.lanes), MAX_VECTORS),
        tile.lanes,
        min(unroll or tile.unroll, MAX_UNROLL),
    )


def _cycles_down(rows: int, height: int, vectors: int, costs: Costs) -> float:
    return sum(count * _cycles(size, vectors, costs) for count, size in split_evenly(rows, height).sizes)


def _cycles(rows: int, vectors: int, costs: Costs) -> float:
    """The cycles of one step.

    What each load costs besides was fitted to races of twelve tiles on 24 products and convolutions (AVX-512, Zen 4).
    """
    multiplies, loads = rows * vectors / costs.fused, (rows + vectors) / costs.loads
    return max(multiplies, loads, costs.latency) + costs.load * (rows + vectors)
