"""Constant factors that come to a warpgroup's stages by bulk copies: packed so that each stage's tile is one piece.

A bulk copy brings bytes as they lie, so that a tile has its lines of 128 bytes swizzled in memory already. One thread
begins it; an mbarrier for each stage counts the bytes, and its phase, which changes with each tile, says that all came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.tensor_ir import ir
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.fills import Tile
from graft.plugins.cuda.strategies.frames import ACCESS, unrolled
from graft.plugins.cuda.strategies.packing import Packed, read_places
from graft.plugins.cuda.strategies.product_parts import Factor
from graft.plugins.cuda.strategies.tiles import LINE, BlockTiling, Side

PARTS = LINE // ACCESS
"""Of a line, that are swizzled."""


@dataclass(frozen=True)
class Tiled:
    """A factor tile by tile: axes before the tiles, tiles of its lines, tiles of its terms, a tile."""

    buffer: ir.Buffer
    outer: tuple[ir.Variable, ...]


def bulk_side(packed: Packed, kernel: Kernel, dtypes: tuple[str, str]) -> Side:
    """Return the factor that can be packed into tiles, "" if none can."""
    sides: tuple[Side, Side] = ("rows", "columns")
    for side, dtype in zip(sides, dtypes, strict=True):
        if _constant(packed, kernel, _factor(packed, side), dtype) is not None:
            return side
    return ""


def tiled(packed: Packed, kernel: Kernel, tiles: BlockTiling, dtype: str) -> tuple[Packed, Tiled]:
    """Return the product with the factor ``tiles.bulk`` packed into tiles of ``dtype``."""
    factor, lines = _factor(packed, tiles.bulk), tiles.rows if tiles.bulk == "rows" else tiles.columns
    found = _constant(packed, kernel, factor, dtype)
    assert found is not None and factor.plain is not None, f"{tiles.bulk} is no constant"
    source, array, order = found
    outer, own, terms = (array.shape[: len(order)], factor.own.known(0), factor.terms.known(0))
    array = in_tiles(array.reshape(*outer, own, terms), lines, tiles.terms)
    buffer = ir.Buffer(f"{source.name}_tiled", dtype, tuple(map(b.index, array.shape)))
    replaced, contents = {**packed.replaced, source: buffer}, {**packed.contents, source: array}
    return replace(packed, replaced=replaced, contents=contents), Tiled(buffer, order)


def in_tiles(array: np.ndarray, lines: int, terms: int) -> np.ndarray:
    """Return (..., own, terms) as (..., tiles of lines, tiles of terms, elements), swizzled, with zeros behind.

    ``terms`` of a line are its 128 bytes; its 16-byte part p lies where part p xor (line modulo 8) would.
    """
    *outer, own, depth = array.shape
    array = np.pad(array, [*[(0, 0)] * len(outer), (0, -own % lines), (0, -depth % terms)])
    array = array.reshape(*outer, -1, lines, array.shape[-1] // terms, PARTS, terms // PARTS)
    array = np.moveaxis(array, -3, -4)
    line = np.arange(lines)[:, None]
    array = array[..., line, np.arange(PARTS) ^ line % PARTS, :]
    return np.ascontiguousarray(array.reshape(*array.shape[:-3], lines * terms))


def _factor(packed: Packed, side: Side) -> Factor:
    return packed.product.rows if side == "rows" else packed.product.columns


def _constant(
    packed: Packed, kernel: Kernel, factor: Factor, dtype: str
) -> tuple[ir.Buffer, np.ndarray, tuple[ir.Variable, ...]] | None:
    """Return the constant that a factor reads, its numbers by outer axes, own axes and terms, and the outer axes."""
    load = factor.plain
    if load is None or load.type.dtype != dtype or not isinstance(factor.own.count, int):
        return None
    outer = tuple(axis for axis in packed.product.batch.variables if axis in load.indices)
    order = [*outer, *factor.own.variables, *factor.terms.variables]
    if len(load.indices) != len(order) or any(axis not in load.indices for axis in order):
        return None
    source = next((one for one, stand in packed.replaced.items() if stand is load.buffer), load.buffer)
    if source not in kernel.constants or read_places(kernel, source) != 1:
        return None
    array = packed.contents.get(source, kernel.constants[source])
    array = array.reshape([int(one) for one in b.dims(load.buffer)])
    array = array.transpose([load.indices.index(axis) for axis in order])
    is_whole = array.shape[len(outer) :] == (*factor.own.extents, *factor.terms.extents)
    return (source, array, outer) if is_whole else None


@dataclass(frozen=True)
class BulkFill:
    """Brings a swizzled tile to one of ``slots`` stages in shared memory."""

    tile: Tile
    source: Tiled
    unit: ir.Variable
    step: ir.Variable
    slots: int

    @cached_property
    def arrived(self) -> ir.Buffer:
        """The mbarrier of each stage."""
        return ir.Buffer(
            f"{self.tile.name}_arrived", "int64", (b.index(self.slots),), memory="shared", alignment=ACCESS
        )

    def opened(self) -> ir.Statement:
        """Return what a thread does before all else: the first one makes the mbarriers."""
        stage = ir.Variable("stage")
        each = unrolled(stage, self.slots, ir.CallExtern("open_bulk", (ir.Load(self.arrived, (stage,)),)))
        return ir.Block((ir.If(b.equal(self.unit, 0), each), ir.CallExtern("fence_async", ())))

    def waited(self) -> ir.Statement:
        """Return what waits for the tile of a step."""
        turn = b.modulo(b.divide(self.step, self.slots), 2)
        return ir.CallExtern("wait_bulk", (turn, self._at_step()))

    def _at_step(self) -> ir.Load:
        return ir.Load(self.arrived, (b.modulo(self.step, self.slots),))

    def statement(
        self, begin: ir.Expression, first: ir.Expression, batch: Mapping[ir.Variable, ir.Expression]
    ) -> ir.Statement:
        """Return what begins to bring the lines from ``begin`` and the terms from ``first`` on."""
        none, tile = b.index(0), self.tile
        numbers = (*(batch[one] for one in self.source.outer), b.divide(begin, tile.lines), b.divide(first, tile.terms))
        size = tile.lines * tile.terms * element_bits(tile.dtype) // 8
        places = ir.Load(tile.buffer, (none, none)), ir.Load(self.source.buffer, (*numbers, none))
        return ir.CallExtern("copy_bulk", (*places, ir.Constant(size, none.type), self._at_step()))
