"""The loops of a product over varying rows: blocks of rows, panels of columns, spans of terms, and tiles of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.primitives.statements import divided, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products import accumulation
from graft.core.schedule.products.blocking import BLOCK_SHARE, SPAN_SHARE
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.packed_rows import PackedRows
from graft.core.schedule.products.tiling import RegisterTile, halves
from graft.core.schedule.strategies.contractions.varying_panels import PanelCopy, Panels, Streams
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import bind, loops_over
from graft.core.tensor_ir.visit import loads, substitute
from graft.core.types import element_bits

LEAST = 256
"""Rows of a block at the least: the right factor passes once for each, from farther away than the left one."""


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products taken apart: ``left`` depends on the rows, ``right`` on the columns."""

    epilogue: Epilogue
    left: ir.Expression
    right: ir.Expression
    rows: tuple[int, ...]
    columns: int
    depth: tuple[ir.Axis, ...]
    packed: PackedRows | None = None
    """How it is one of bytes."""
    is_copied: bool = False
    """Whether columns of the right factor lie apart, so that panels of it are copied."""

    @property
    def height(self) -> ir.Expression:
        """The number of rows, of all their axes together."""
        height: ir.Expression = b.index(1)
        for axis in self.rows:
            height = b.multiply(height, self.shape[axis])
        return height

    @property
    def loops(self) -> list[accumulation.Reduced] | None:
        """The loops over the terms; None if their number varies."""
        loops = [
            accumulation.Reduced(axis.variable, int(axis.extent.value))
            for axis in self.depth
            if isinstance(axis.extent, ir.Constant)
        ]
        return loops if len(loops) == len(self.depth) else None

    @property
    def terms(self) -> int | None:
        """The number of terms of each sum; None if it varies."""
        return None if self.loops is None else prod(loop.extent for loop in self.loops)

    def row(self, number: ir.Expression) -> dict[int, ir.Expression]:
        """Return the index along each axis of the rows that row ``number`` has."""
        places: dict[int, ir.Expression] = {}
        for axis in reversed(self.rows):
            is_first = axis == self.rows[0]
            places[axis] = number if is_first else b.modulo(number, self.shape[axis])
            number = number if is_first else b.divide(number, self.shape[axis])
        return places

    @property
    def axes(self) -> tuple[ir.Variable, ...]:
        """The axes of the result."""
        return self.epilogue.anchor.axes

    @property
    def shape(self) -> tuple[ir.Expression, ...]:
        """The extents of the result."""
        return self.epilogue.anchor.buffer.shape


@dataclass(frozen=True, slots=True)
class _Part:
    """A span of the terms: its number of ``count``, and where the sums of those before it are."""

    number: ir.Variable
    count: int
    sums: ir.Buffer

    @property
    def ends(self) -> tuple[ir.Expression, ir.Expression]:
        """Whether it is the first one, and the last."""
        return b.equal(self.number, 0), b.equal(self.number, self.count - 1)


@dataclass(frozen=True, slots=True)
class _Place:
    """Columns of a panel from ``column`` on, of which ``rest`` exist (None: all), and a part of their sums (or all)."""

    panel: ir.Expression
    column: ir.Expression
    rest: ir.Expression | None
    offset: ir.Expression = field(default_factory=partial(b.index, 0))
    """Of the first column in the panel."""
    part: _Part | None = None

    def mask(self, vector: int, lanes: int) -> ir.Expression | None:
        """Return which lanes of a vector are columns; None if all are."""
        if self.rest is None:
            return None
        return b.less(ramp(b.index(vector * lanes), lanes), wide(self.rest, lanes))


class Loops:
    """Writes the loops of one product."""

    def __init__(self, product: Product, tile: RegisterTile, machine: Machine) -> None:
        self.product, self.tile, self.machine = product, tile, machine
        self.panels: Panels | None = None
        self.copy: PanelCopy | None = None
        """What fills the panel of the columns at hand."""
        self.first: ir.Expression | None = None
        """Where the block of rows begins; None: it is all rows."""
        self.starts: dict[ir.Buffer, tuple[ir.Buffer, int]] = {}
        """Sums of columns that are known: where they lie behind the panels."""
        self.kind = product.epilogue.anchor.value.type
        self.bytes = element_bits(self.kind.dtype) // 8
        self.spans, self.span = self._spans()

    def _spans(self) -> tuple[int, int]:
        """Return in how many spans long sums go, so that rows of a tile stay in the first-level cache; and how long."""
        terms, unroll = self.product.terms or 1, self.tile.unroll
        longest = max(int(SPAN_SHARE * self.machine.working_set(1)) // self.bytes, unroll)
        if len(self.product.depth) != 1 or not self.product.rows or terms <= longest * 5 // 4:
            return 1, terms
        count = -(-terms // longest)
        span = -(-terms // (count * unroll)) * unroll
        return -(-terms // span), span

    def pack(self, kernel: Kernel, layout: Layout) -> dict[ir.Buffer, tuple[ir.Buffer, np.ndarray]]:
        """Lay a constant right factor out in panels of the tile's columns; {} if it is not one."""
        load, product = self.product.right, self.product
        if product.packed is not None:
            return self._pack_right(product.packed, kernel)
        if product.is_copied:
            term, column = product.depth[0], product.axes[product.columns]
            self.copy = PanelCopy.of(product.right, term, column, self.tile.columns, layout, self.machine)
            self.panels = self.copy.panels
            return {}
        if not isinstance(load, ir.Load) or load.buffer not in kernel.constants or len(product.depth) != 1:
            return {}
        place = (product.depth[0].variable, product.axes[product.columns])
        others = [one for one in loads(product.left) if one.buffer is load.buffer]
        if others or load.mask is not None or load.indices not in (place, place[::-1]):
            return {}
        contents = kernel.constants[load.buffer]
        contents = contents if load.indices == place else contents.T
        self.panels, packed = Panels.of(load.buffer.name, contents, load.buffer.dtype, self.tile.columns)
        return {load.buffer: (self.panels.buffer, packed)}

    def _pack_right(self, rows: PackedRows, kernel: Kernel) -> dict[ir.Buffer, tuple[ir.Buffer, np.ndarray]]:
        """Lay the packed operands of a constant matrix out in panels, and behind them the sums of its columns."""
        name, matrix, width = rows.source.name, rows.matrix(kernel.constants[rows.source]), self.tile.columns
        panels, first = Panels.of(name, matrix, str(matrix.dtype), width)
        parts, known = [first], [one for one in rows.sums if one.constants is not None]
        parts += [Panels.of(name, one.contents().reshape(1, -1), str(matrix.dtype), width)[1] for one in known]
        packed = np.concatenate(parts)
        buffer = replace(panels.buffer, shape=(b.index(packed.size),))
        self.panels = replace(panels, buffer=buffer)
        begins = np.cumsum([part.size for part in parts])
        self.starts = {one.buffer: (buffer, int(at)) for one, at in zip(known, begins, strict=False)}
        return {rows.source: (buffer, packed)}

    # ---- Blocks and columns ----

    def body(self) -> ir.Statement:
        """Return all loops: blocks of rows, of which the left factor stays in a cache while all columns pass."""
        product = self.product
        if not product.rows or product.terms is None:
            return self._columns()
        if isinstance(product.height, ir.Constant) and int(product.height.value) <= self.block:
            return self._columns()
        block = ir.Variable("block")
        self.first = b.multiply(block, self.block)
        return ir.For(block, b.divide(b.add(product.height, self.block - 1), self.block), "serial", self._columns())

    @property
    def block(self) -> int:
        """The rows of a block."""
        tiles = int(BLOCK_SHARE * self.machine.working_set(2)) // max(1, self.span * self.bytes * self.tile.rows)
        return max(tiles, -(-LEAST // self.tile.rows)) * self.tile.rows

    def _columns(self) -> ir.Statement:
        """Return the loops over the columns of one block of rows."""
        product, width = self.product, self.tile.columns
        whole, rest = divided(product.shape[product.columns], width)
        block = ir.Variable("columns")
        parts: list[ir.Statement] = []
        if whole != b.index(0):
            begin = b.multiply(block, width)
            inside = self._copied(self._rows(_Place(self._panel(block), begin, None)), begin, width)
            parts.append(self._over_outer(ir.For(block, whole, "parallel", inside)))
        if rest != b.index(0):
            begin = b.multiply(whole, width)
            tail = self._over_outer(self._copied(self._tail(self._panel(whole), begin, rest), begin, rest))
            parts.append(tail if isinstance(rest, ir.Constant) else ir.If(b.greater(rest, 0), tail))
        return ir.Block(tuple(parts))

    def _panel(self, number: ir.Expression) -> ir.Expression:
        """Return where in the panels those columns are: of copied ones there is one at a time."""
        return number if self.copy is None else b.index(0)

    def _copied(self, body: ir.Statement, begin: ir.Expression, count: b.Count) -> ir.Statement:
        """Return what uses so many columns from one on, behind the copy of their panel if there is one."""
        return body if self.copy is None else self.copy.before(body, begin, count)

    def _tail(self, panel: ir.Expression, begin: ir.Expression, rest: ir.Expression) -> ir.Statement:
        """Return the columns that are left over: in as few vectors as they fill, the last of them masked."""
        lanes = self.tile.lanes
        reads_part = self.panels is not None or self.machine.masks or self.machine.masked_loads
        if not reads_part and lanes > 1:
            column, single = ir.Variable("column"), self._of_width(1, 1)
            return ir.For(column, rest, "serial", single._rows(_Place(panel, b.add(begin, column), None, column)))
        if isinstance(rest, ir.Constant):
            return self._of_width(-(-int(rest.value) // lanes), lanes)._rows(_Place(panel, begin, rest))
        body = self._rows(_Place(panel, begin, rest))
        for vectors in range(self.tile.vectors - 1, 0, -1):
            fewer = self._of_width(vectors, lanes)._rows(_Place(panel, begin, rest))
            body = ir.If(b.less_equal(rest, vectors * lanes), fewer, body)
        return body

    def _of_width(self, vectors: int, lanes: int) -> Loops:
        narrow = Loops(self.product, replace(self.tile, vectors=vectors, lanes=lanes), self.machine)
        narrow.panels, narrow.copy, narrow.first, narrow.starts = self.panels, self.copy, self.first, self.starts
        return narrow

    def _over_outer(self, body: ir.Statement) -> ir.Statement:
        product = self.product
        outer = (axis for axis in range(len(product.axes)) if axis not in (*product.rows, product.columns))
        return loops_over(((product.axes[axis], product.shape[axis]) for axis in outer), body, "parallel")

    # ---- Rows ----

    def _rows(self, place: _Place) -> ir.Statement:
        """Return tiles of all rows for some columns, one span of the sums after the other."""
        if self.spans == 1:
            return self._tiles(place)
        number, extent = ir.Variable("span"), self.product.height
        most = int(extent.value) if isinstance(extent, ir.Constant) else self.block
        sums = scratch("partial", self.kind.dtype, (min(most, self.block) + self.tile.rows) * self.tile.columns)
        tiles = self._tiles(replace(place, part=_Part(number, self.spans, sums)))
        return ir.Allocate(sums, ir.For(number, b.index(self.spans), "serial", tiles))

    def _tiles(self, place: _Place) -> ir.Statement:
        if not self.product.rows:
            return self._tile(replace(self.tile, rows=1), b.index(0), b.index(0), place)
        extent = self.product.height
        first: ir.Expression = b.index(0)
        own = extent
        if self.first is not None:
            first, own = self.first, b.minimum(b.subtract(extent, self.first), self.block)
        return self._tiles_of(halves(self.tile.rows), first, own, b.index(0), place)

    def _tiles_of(
        self, heights: Sequence[int], first: ir.Expression, own: ir.Expression, done: ir.Expression, place: _Place
    ) -> ir.Statement:
        """Return tiles of the rows behind ``done`` of ``own``, the highest first, each height with code of its own.

        The last tile of a height ends where the rows end, if it has more rows than are left, and computes some twice:
        where the next lower height would not do, and if there are so many rows at all.
        """
        if not heights:
            return ir.Block(())
        (height, *lower), is_first = heights, done == b.index(0)
        number, count, after = ir.Variable("tile"), ir.Variable("tiles"), ir.Variable("done")
        tile = replace(self.tile, rows=height, unroll=self.tile.unroll if is_first else 1)
        slot = b.add(done, b.multiply(number, height))
        begin = b.add(first, b.minimum(slot, b.subtract(own, height)))
        if is_first:
            ahead = self._ahead(place, number, count, tile.unroll)
        else:
            ahead = self._ahead(place, b.add(done, number), b.index(1), tile.unroll)
        tiles = ir.For(number, count, "serial", self._tile(tile, begin, slot, place, ahead))
        further = ir.Let(after, b.minimum(b.add(done, b.multiply(count, height)), own), ir.Block(()))
        further = replace(further, body=self._tiles_of(lower, first, own, after, place))
        covered = b.add(b.subtract(own, done), height - 1 - (lower[0] if lower else 0))
        whole = b.select(b.less(own, height), b.index(0), b.divide(covered, height))
        return ir.Let(count, whole, ir.Block((tiles, further) if lower else (tiles,)))

    def _ahead(self, place: _Place, number: ir.Expression, count: ir.Expression, unroll: int) -> Streams | None:
        """Return what tile ``number`` of ``count`` fetches of the constant factor."""
        if self.panels is None:
            return None
        first = b.index(0) if place.part is None else b.multiply(place.part.number, self.span)
        begin = self.panels.place(place.panel, first)
        return self.panels.ahead(begin, self.span, unroll, self.machine, number, count)

    # ---- One tile ----

    def _tile(
        self, tile: RegisterTile, row: ir.Expression, slot: ir.Expression, place: _Place, ahead: Streams | None = None
    ) -> ir.Statement:
        """Return one tile of sums from a row on and its epilogue; between spans its sums are kept from row ``slot``."""
        product, lanes, column = self.product, tile.lanes, place.column
        bound: list[tuple[ir.Variable, ir.Expression]] = []

        def left(number: int) -> ir.Expression:
            places = product.row(b.add(row, number))
            if len(places) > 1:  # divided once for all terms
                names = {axis: ir.Variable(product.axes[axis].name) for axis in places}
                bound.extend((names[axis], value) for axis, value in places.items())
                places = dict(names)
            return substitute(product.left, {product.axes[axis]: value for axis, value in places.items()})

        def right(vector: int) -> ir.Expression:
            if self.panels is not None:
                offset = b.add(place.offset, vector * lanes)
                return self.panels.vector(place.panel, product.depth[0].variable, offset, lanes)
            values = {product.axes[product.columns]: ramp(b.add(column, vector * lanes), lanes)}
            return vectorize_expression(product.right, values, place.mask(vector, lanes))

        def point(number: ir.Expression, offset: ir.Expression) -> list[ir.Expression]:
            indices: list[ir.Expression] = list(product.axes)
            for axis, value in product.row(b.add(row, number)).items():
                indices[axis] = value
            indices[product.columns] = ramp(b.add(column, offset), lanes)
            return indices

        def finish(totals: ir.Buffer) -> ir.Statement:
            return accumulation.finish_tile(
                product.epilogue, tile, totals, point, lambda vector: place.mask(vector, lanes)
            )

        done: accumulation.Begin = finish
        packed = product.packed
        if packed is None:
            start = accumulation.clear(tile, product.epilogue.initial)
        else:

            def begin(number: int, vector: int) -> ir.Expression:
                places = {product.axes[axis]: at for axis, at in product.row(b.add(row, number)).items()}
                places[product.axes[product.columns]] = ramp(b.add(column, vector * lanes), lanes)
                return packed.start(places, lanes, place.mask(vector, lanes), self.starts)

            start = accumulation.begin_with(tile, begin)
        terms, span = product.loops, None
        if terms is None:
            tile, terms = replace(tile, unroll=1), [accumulation.Reduced(product.depth[0].variable, 1)]
            span = accumulation.Span(b.index(0), product.depth[0].extent, 0)
        elif place.part is not None:
            sums = accumulation.Partial(place.part.sums, b.multiply(slot, self.tile.columns), tile)
            start, done = accumulation.continued(sums, self.kind.dtype, place.part.ends, start, finish)
            span = accumulation.part_span(terms[0].extent, self.span, tile.unroll, place.part.number)
        known = [left(number) for number in range(tile.rows)]
        multiply = None if packed is None else packed.multiply
        body = accumulation.accumulate(
            tile, self.kind, start, terms, known.__getitem__, right, done, span, ahead, multiply
        )
        return bind(bound, body)
