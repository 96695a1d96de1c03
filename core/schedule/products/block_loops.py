"""The loops of products in blocks of terms: chunks of rows, panels of columns, blocks of terms, tiles of rows.

For a chunk the left factor is widened once, and what scales a block by its row is computed. Of few rows, the right
factor is widened where it is read, since each element is used by a tile or two. With more, it is widened
for a panel and a block into ``[term, column]``, which stays in the first-level cache while all rows of the chunk pass
in register tiles; the sums of a tile are scaled and added to those of the blocks before, which are kept. Each of these
is the plain loops of one element; steps make vectors and tiles of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.plain_nest import reduced_element
from graft.core.schedule.primitives.prefetch import Prefetch
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.statements import multiply_add, nest, registers, scratch
from graft.core.schedule.primitives.vectorize import finished, instantiate, lower_loops
from graft.core.schedule.products.block_sums import BlockSums, Column, Reader
from graft.core.schedule.products.tiling import RegisterTile, halves, in_tiles
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.statements import allocate, bound, loops_over
from graft.core.tensor_ir.visit import substitute

MOST = 96
"""Rows of a chunk at the most: so many pass for each block that is widened."""
FEW = 4
"""With so few panels, threads share chunks rather than panels."""

AHEAD = 4096
"""Bytes that are fetched so far ahead of use."""

Element = Callable[[ir.Expression, Column, int], ir.Statement]
"""What is done for a row of the chunk and a column, in a tile of a height."""


@dataclass(frozen=True, slots=True)
class BlockLoops:
    """The loops of a product, by panels of ``panel`` tiles of columns and chunks of ``most`` rows.

    Up to ``few`` rows are summed in tiles of ``low`` rows where they are read; with more, what is read is widened once.
    """

    reader: Reader
    tile: RegisterTile
    panel: int
    low: int
    few: int
    most: int

    @classmethod
    def of(cls, reader: Reader, tile: RegisterTile, panel: int, low: int, few: int, most: int = MOST) -> BlockLoops:
        """Return the loops with a register tile."""
        height = reader.sums.product.height
        rows = most if height == VARIES else height
        even = -(-rows // max(1, -(-rows // most)))
        most = max(1, -(-even // tile.rows)) * tile.rows
        return cls(reader, tile, panel, low, few, most)

    @property
    def sums(self) -> BlockSums:
        """The product."""
        return self.reader.sums

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.panel * self.tile.columns

    def body(self) -> ir.Statement:
        """Return all loops; those of one level are shared by threads."""
        product, outer = self.sums.product, self.sums.outer
        height = product.row_count
        is_one = isinstance(height, ir.Constant) and int(height.value) <= self.most
        many = any(product.extents[axis] != b.index(1) for axis in outer)
        shared = "outer" if many else "panel" if is_one or self.sums.width > FEW * self.columns else "chunk"

        def chunk(number: ir.Expression) -> ir.Statement:
            first = b.multiply(number, self.most)
            own = height if is_one else b.minimum(b.subtract(height, first), self.most)
            return _Chunk(self, first, own, "parallel" if shared == "panel" else "serial").body()

        def chunks(outer_places: dict[int, ir.Expression]) -> ir.Statement:
            count = 1 if is_one else b.divide(b.add(height, self.most - 1), self.most)
            body = loop(count, chunk, "parallel" if shared == "chunk" else "serial", "chunk")
            return instantiate(body, {product.axes[axis]: place for axis, place in outer_places.items()})

        extents = {axis: b.counted(product.extents[axis]) for axis in outer}
        return nest("outer", extents, "parallel" if shared == "outer" else "serial", chunks)


class _Chunk:
    """The rows from ``first`` on, of which there are ``own``, and the loops that threads may share."""

    def __init__(self, loops: BlockLoops, first: ir.Expression, own: ir.Expression, kind: ir.LoopKind) -> None:
        self.loops, self.sums, self.first, self.own, self.kind = loops, loops.sums, first, own, kind
        self.left = scratch("left", self.sums.kind.dtype, loops.most * self.sums.terms)
        blocks = loops.most * self.sums.blocks
        self.tables = {part: scratch("row_scales", part.type.dtype, blocks) for part in self.sums.rows}
        """What each row has for each block."""

    def body(self) -> ir.Statement:
        """Return the widening of the left factor, and all panels."""
        loops, tile = self.loops, self.loops.tile
        whole, rest = divmod(self.sums.width, loops.columns)

        def panel(number: ir.Expression) -> ir.Statement:
            return _Panel(self, tile, number, b.multiply(number, loops.columns), loops.panel * tile.vectors).body()

        statements = [loop(self.own, self._widened, self.kind, "row")]
        if whole:
            statements.append(loop(whole, panel, self.kind, "panel"))
        begin = whole * loops.columns
        for lanes in sorted({tile.lanes, 1}, reverse=True):
            vectors, rest = divmod(rest, lanes)
            if vectors:
                narrow = replace(tile, vectors=min(tile.vectors, vectors), lanes=lanes)
                statements.append(_Panel(self, narrow, b.index(whole), b.index(begin), vectors).body())
            begin += vectors * lanes
        return allocate((self.left, *self.tables.values()), ir.Block(tuple(statements)))

    def _widened(self, row: ir.Expression) -> ir.Statement:
        """Return what widens a row of the left factor, and computes what it has for each block."""
        sums, vector, lane = self.sums, ir.Variable("k"), ir.Variable("lane")
        lanes = gcd(sums.block, self.loops.tile.lanes)
        term = b.add(b.multiply(vector, lanes), lane)
        places = {**self.places(row), sums.term: term}
        value, block = substitute(sums.product.left, places), b.add(b.multiply(row, sums.blocks), sums.number)
        place = b.add(b.add(b.multiply(block, sums.block), b.multiply(vector, lanes)), lane)
        copy = ir.Store(self.left, (place,), self.loops.reader.copied(value, vector, lane, lanes))
        terms = [(vector, b.index(sums.block // lanes)), (lane, b.index(lanes))]

        def summed(table: ir.Buffer) -> ir.Statement:
            total = reduced_element(
                b.constant(0, table.dtype), terms, lambda so_far: b.add(so_far, value),
                lambda total: ir.Store(table, (block,), total), lambda store: ir.Block((copy, store)),
            )  # fmt: skip
            across = Rfactor("total", "lane", "register", "parts", ("k",)), Vectorize("parts.in")
            return taken(total, (*across, Vectorize("lane"), Horizontal("parts.turn")) if lanes > 1 else ())

        whole = [summed(self.tables[part]) for part, own in sums.rows.items() if own is None]
        copies = taken(loops_over(terms, copy), (Vectorize("lane"),) if lanes > 1 else ())
        own = [(self.tables[part], own) for part, own in sums.rows.items() if own is not None]
        stored = [ir.Store(table, (block,), substitute(value, places)) for table, value in own]
        body = ir.Block((*(whole or [copies]), *stored))
        return finished(loops_over([(sums.number, b.index(sums.blocks))], body))

    def places(self, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the places along the axes of rows that a row of the chunk has."""
        product = self.sums.product
        return {product.axes[axis]: at for axis, at in product.at_row(b.add(self.first, row)).items()}

    def of_row(self, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the parts that a row of the chunk has for a block, and its places."""
        place = (b.add(b.multiply(row, self.sums.blocks), self.sums.number),)
        return {**self.places(row), **{part: ir.Load(table, place) for part, table in self.tables.items()}}


class _Panel:
    """``vectors`` vectors of columns for the rows of a chunk: panel ``number``, from column ``begin`` on."""

    def __init__(
        self, chunk: _Chunk, tile: RegisterTile, number: ir.Expression, begin: ir.Expression, vectors: int
    ) -> None:
        self.chunk, self.tile, self.number, self.begin, self.vectors = chunk, tile, number, begin, vectors
        self.loops, self.sums = chunk.loops, chunk.sums
        self.epilogue = self.sums.product.epilogue
        self.totals = scratch("block_totals", self.sums.total.type.dtype, chunk.loops.most * self.width)
        """The sums of a row, where they are kept in memory."""

    @property
    def width(self) -> int:
        """The columns of the panel."""
        return self.vectors * self.tile.lanes

    def body(self) -> ir.Statement:
        """Return the sums of all rows: where they are read if one tile has all rows, else from what is widened."""
        own, few, height = self.chunk.own, self.loops.few, self.sums.product.height
        if self.loops.most <= few or 0 <= height <= few:
            return self._in_registers()
        if height != VARIES:
            return self._widened_once()
        return ir.If(b.less_equal(own, few), self._in_registers(), self._widened_once())

    def _over(self, height: int, first: ir.Expression, count: b.Count, element: Element, at: str = "") -> ir.Statement:
        """Return what is done for rows from ``first`` on, in ``count`` register tiles of a height.

        ``at`` is the loop in which the right factor is read: where it comes from memory, it is fetched ahead.
        """
        lanes, fetched = self.tile.lanes, self.loops.reader.fetched
        vector, tile, lane = (ir.Variable(name) for name in ("v", "i", "lane"))
        column = Column(self.number, vector, lane if lanes > 1 else b.index(0), lanes, self.begin)
        axes = [(vector, b.index(self.vectors)), (tile, b.extent(count)), (lane, b.index(lanes))][: 2 + (lanes > 1)]
        body = loops_over(axes, element(b.add(first, b.multiply(tile, height)), column, height))
        steps = tuple(in_tiles(replace(self.tile, rows=1), self.vectors))
        return lower_loops(taken(body, (*steps, Prefetch(fetched, at, AHEAD)) if at and fetched else steps))

    def _tiles(self, most: int, element: Element, at: str = "") -> ir.Statement:
        """Return what is done for all rows, in tiles of at most so many: the highest first, each with its code."""
        own, statements = self.chunk.own, list[ir.Statement]()
        done: ir.Expression = b.index(0)
        heights = [most, int(own.value) % most] if isinstance(own, ir.Constant) else halves(most)
        for height in (one for one in heights if one):
            count = b.divide(b.subtract(own, done), height)
            if count != b.index(0):
                statements.append(self._over(height, done, count, element, at))
            done = b.add(done, b.multiply(count, height))
        return ir.Block(tuple(statements))

    def _in_registers(self) -> ir.Statement:
        """Return the sums of all blocks in registers, and what is stored."""
        reader, heavy = self.loops.reader, self.epilogue.is_heavy

        def summed(row: ir.Expression, column: Column, height: int) -> ir.Statement:
            total = registers("total", self.totals.dtype, height)
            block = self._block(reader, (row, height), column, lambda one: ir.Load(total, (one,)))

            def done(one: ir.Expression) -> ir.Statement:
                whole, own = ir.Load(total, (one,)), b.add(row, one)
                return ir.Store(*self._kept(own, column), whole) if heavy else self._stores(own, column, whole)

            begun = _each(height, lambda one: ir.Store(total, (one,), self.epilogue.initial))
            blocks = loops_over([(self.sums.number, b.index(self.sums.blocks))], block)
            return allocate((total,), ir.Block((begun, blocks, _each(height, done))))

        body = self._tiles(self.loops.low, summed, "group")
        return allocate((self.totals,), ir.Block((body, self._finished()))) if heavy else body

    def _widened_once(self) -> ir.Statement:
        """Return the loop over blocks of terms, what is before it, and the stores of the result."""
        sums, own, in_vectors = self.sums, self.chunk.own, self._in_vectors
        factors = scratch("widened", sums.kind.dtype, sums.block * self.width)
        tables = {part: scratch("column_scales", part.type.dtype, self.width) for part in sums.columns}
        kept = _Widened(sums, self.loops.reader, factors, tables, self.width)

        def begun(row: ir.Expression, column: Column, height: int) -> ir.Statement:
            return ir.Store(*self._kept(row, column), self.epilogue.initial)

        def tile(row: ir.Expression, column: Column, height: int) -> ir.Statement:
            return self._block(kept, (row, height), column, lambda one: ir.Load(*self._kept(b.add(row, one), column)))

        groups = in_vectors(sums.block // self.loops.reader.group, kept.group_kept, "i")
        parts = (in_vectors(1, kept.parts_kept),) if tables else ()
        block = ir.Block((groups, *parts, self._tiles(self.tile.rows, tile)))
        blocks = loops_over([(sums.number, b.index(sums.blocks))], block)
        memory = (factors, self.totals, *tables.values())
        return allocate(memory, ir.Block((in_vectors(own, begun), blocks, self._finished())))

    def _in_vectors(self, rows: b.Count, element: Element, at: str = "") -> ir.Statement:
        """Return what is done for each row, some vectors at one time."""
        return self._over(1, b.index(0), rows, element, at)

    def _kept(self, row: ir.Expression, column: Column) -> tuple[ir.Buffer, tuple[ir.Expression]]:
        """Return the sums in memory, and the place of a row and a column among them."""
        return self.totals, (b.add(b.multiply(row, self.width), column.within),)

    def _finished(self) -> ir.Statement:
        """Return the stores of the result, from the sums in memory."""

        def stored(row: ir.Expression, column: Column, height: int) -> ir.Statement:
            return self._stores(row, column, ir.Load(*self._kept(row, column)))

        return self._in_vectors(self.chunk.own, stored)

    def _stores(self, row: ir.Expression, column: Column, total: ir.Expression) -> ir.Statement:
        """Return the stores of a row and a column, whose sum is ``total``."""
        product, known = self.sums.product, self.chunk.places(row)
        at: list[ir.Expression] = [
            known.get(axis, b.index(0) if extent == b.index(1) else axis)
            for axis, extent in zip(product.axes, product.extents, strict=True)
        ]
        at[product.columns] = column.number
        return ir.Block(tuple(self.epilogue.stores(at, total, None)))

    def _block(
        self,
        reader: Reader,
        rows: tuple[ir.Expression, int],
        column: Column,
        total: Callable[[ir.Expression], ir.Load],
    ) -> ir.Statement:
        """Return the sums of a block for so many rows from the first on, and what adds them to ``total`` of each."""
        sums, chunk, (first, height) = self.sums, self.chunk, rows
        turns = reader.turns if height == 1 else 1
        own = registers("sum", sums.kind.dtype, height, turns)
        columns = {part: reader.part(part, column) for part in sums.columns}
        group, zero = ir.Variable("group"), b.constant(0, own.dtype)

        def parts(one: ir.Expression) -> dict[ir.Variable, ir.Expression]:
            return {**chunk.of_row(b.add(first, one)), **columns}

        def begun(one: ir.Expression) -> ir.Statement:
            starts = (substitute(sums.start, parts(one)), *[zero] * (turns - 1))
            return ir.Block(tuple(ir.Store(own, (one, b.index(turn)), start) for turn, start in enumerate(starts)))

        def term(number: int, weight: list[ir.Expression]) -> ir.Statement:
            def of_row(one: ir.Expression) -> ir.Statement:
                block = b.add(b.multiply(b.add(first, one), sums.blocks), sums.number)
                at = b.add(b.add(b.multiply(block, sums.block), b.multiply(group, reader.group)), number)
                place = (one, b.index(number % turns))

                def multiplied(left: list[ir.Expression]) -> ir.Statement:
                    return ir.Store(own, place, multiply_add(left[0], weight[0], ir.Load(own, place)))

                return bound("left", (ir.Load(chunk.left, (at,)),), multiplied)

            return _each(height, of_row)

        def in_group(shared: list[ir.Expression]) -> ir.Statement:
            terms = enumerate(reader.terms(column, group, shared))
            return ir.Block(tuple(bound("weight", (weight,), partial(term, number)) for number, weight in terms))

        def added(one: ir.Expression) -> ir.Statement:
            known: ir.Expression = ir.Load(own, (one, b.index(0)))
            for turn in range(1, turns):
                known = b.add(known, ir.Load(own, (one, b.index(turn))))
            so_far = total(one)
            value = substitute(sums.added, {**parts(one), sums.sum: known, sums.total: so_far})
            return ir.Store(so_far.buffer, so_far.indices, value)

        summed = bound("shared", reader.shared(column, group), in_group)
        groups = loops_over([(group, b.index(sums.block // reader.group))], summed)
        return allocate((own,), ir.Block((_each(height, begun), groups, _each(height, added))))


def _each(height: int, body: Callable[[ir.Expression], ir.Statement]) -> ir.Statement:
    """Return what is done for each row of a tile."""
    row = ir.Variable("row")
    return loops_over([(row, b.index(height))], body(row), "unrolled")


@dataclass(frozen=True, slots=True)
class _Widened(Reader):
    """What tiles read of a block of a panel of ``width`` columns that ``reader`` has been read for."""

    reader: Reader
    factors: ir.Buffer
    tables: dict[ir.Variable, ir.Buffer]
    width: int

    def part(self, part: ir.Variable, column: Column) -> ir.Expression:
        """Return a part that a column has, as it was computed."""
        return ir.Load(self.tables[part], (column.within,))

    def terms(self, column: Column, group: ir.Expression, shared: Sequence[ir.Expression]) -> list[ir.Expression]:
        """Return the right factors of a group of terms."""
        return [ir.Load(self.factors, place) for place in self._places(column, group, self.group)]

    def _places(self, column: Column, group: ir.Expression, count: int) -> Iterator[tuple[ir.Expression]]:
        for term in range(count):
            at = b.add(b.multiply(group, count), term)
            yield (b.add(b.multiply(at, self.width), column.within),)

    def group_kept(self, group: ir.Expression, column: Column, height: int) -> ir.Statement:
        """Return what widens a group of terms."""

        def stored(values: list[ir.Expression]) -> ir.Statement:
            places = self._places(column, group, len(values))
            return ir.Block(tuple(ir.Store(self.factors, *one) for one in zip(places, values, strict=True)))

        def terms(shared: list[ir.Expression]) -> ir.Statement:
            return bound("number", self.reader.terms(column, group, shared), stored)

        return bound("shared", self.reader.shared(column, group), terms)

    def parts_kept(self, row: ir.Expression, column: Column, height: int) -> ir.Statement:
        """Return what computes the parts that a column has for the block."""
        values = ((table, self.reader.part(part, column)) for part, table in self.tables.items())
        return ir.Block(tuple(ir.Store(table, (column.within,), value) for table, value in values))
