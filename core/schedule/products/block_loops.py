"""The loops of products in blocks of terms: chunks of rows, panels of columns, blocks of terms, tiles of rows.

For a chunk the left factor is widened once, and what scales a block by its row is computed. Of few rows, the right
factor is widened where it is read, since each element is used by a tile or two. With more, it is widened
for a panel and a block into ``[term, column]``, which stays in the first-level cache while all rows of the chunk pass
in register tiles; the sums of a tile are scaled and added to those of the blocks before, which are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.schedule.primitives.statements import multiply_add, nest, ramp, registers, scratch, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products import accumulation
from graft.core.schedule.products.block_sums import BlockSums, Columns, Reader
from graft.core.schedule.products.tiling import RegisterTile, halves
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.statements import allocate, bound
from graft.core.tensor_ir.visit import substitute

MOST = 96
"""Rows of a chunk at the most: so many pass for each block that is widened."""
FEW = 4
"""With so few panels, threads share chunks rather than panels."""

Tile = Callable[[RegisterTile, tuple[ir.Expression, ir.Expression]], ir.Statement]
"""The code of a tile: of its shape, and of the row of the chunk where it begins and its number across the panel."""


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


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The rows from ``first`` on, of which there are ``own``, and the loops that threads may share."""

    loops: BlockLoops
    first: ir.Expression
    own: ir.Expression
    kind: ir.LoopKind

    def body(self) -> ir.Statement:
        """Return the widening of the left factor, and all panels."""
        loops, sums = self.loops, self.loops.sums
        left = scratch("left", sums.kind.dtype, loops.most * sums.terms)
        tables = {part: scratch("row_scales", part.type.dtype, loops.most * sums.blocks) for part in sums.rows}
        whole, rest = divmod(sums.width, loops.columns)

        def part(begin: ir.Expression, tile: RegisterTile, count: int, panel: ir.Expression) -> ir.Statement:
            return _Panel(self, left, tables, Columns(panel, begin, tile.lanes), tile, count).body()

        def panel(number: ir.Expression) -> ir.Statement:
            return part(b.multiply(number, loops.columns), loops.tile, loops.panel, number)

        statements = [loop(self.own, partial(self._widened, left, tables), self.kind, "row")]
        if whole:
            statements.append(loop(whole, panel, self.kind, "panel"))
        begin = whole * loops.columns
        for tile in _tiles_of(rest, loops.tile):
            count = rest // tile.columns
            statements.append(part(b.index(begin), tile, count, b.index(whole)))
            begin, rest = begin + count * tile.columns, rest - count * tile.columns
        return allocate((left, *tables.values()), ir.Block(tuple(statements)))

    def _widened(self, left: ir.Buffer, tables: dict[ir.Variable, ir.Buffer], row: ir.Expression) -> ir.Statement:
        """Return what widens a row of the left factor, and computes what it has for each block."""
        sums, places = self.loops.sums, self.places(row)
        lanes = gcd(sums.block, self.loops.tile.lanes)
        total = registers("left_sum", sums.kind.dtype, lanes)
        is_summed = None in sums.rows.values()
        value = substitute(sums.product.left, places)

        def block(number: ir.Expression) -> ir.Statement:
            begin = b.add(b.multiply(row, sums.terms), b.multiply(number, sums.block))

            def vector(step: ir.Expression) -> ir.Statement:
                term = b.multiply(step, lanes)
                own = wide(vectorize_expression(value, {sums.number: number, sums.term: ramp(term, lanes)}), lanes)

                def kept(values: list[ir.Expression]) -> ir.Statement:
                    (one,) = values
                    copied = ir.Store(left, (ramp(b.add(begin, term), lanes),), self.loops.reader.copied(one, term))
                    place = (ramp(0, lanes),)
                    added = ir.Store(total, place, b.add(ir.Load(total, place), one))
                    return ir.Block((copied, added) if is_summed else (copied,))

                return bound("factor", [own], kept)

            def of_row(part: ir.Expression | None) -> ir.Expression:
                if part is not None:
                    return substitute(part, {**places, sums.number: number})
                whole = ir.Load(total, (ramp(0, lanes),))
                return whole if lanes == 1 else ir.Horizontal("add", whole)

            stored = (
                ir.Store(table, (b.add(b.multiply(row, sums.blocks), number),), of_row(sums.rows[part]))
                for part, table in tables.items()
            )
            vectors = loop(sums.block // lanes, vector, name="step")
            if not is_summed:
                return ir.Block((vectors, *stored))
            clear = ir.Store(total, (ramp(0, lanes),), wide(b.constant(0, total.dtype), lanes))
            return allocate((total,), ir.Block((clear, vectors, *stored)))

        return loop(sums.blocks, block, name="block")

    def places(self, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the places along the axes of rows that a row of the chunk has."""
        product = self.loops.sums.product
        return {product.axes[axis]: at for axis, at in product.at_row(b.add(self.first, row)).items()}

    def heights(self, most: int) -> Iterator[tuple[int, ir.Expression, ir.Expression]]:
        """Yield the height of tiles, the first row and the number of them: the highest first, each with its code."""
        done: ir.Expression = b.index(0)
        heights = [most, int(self.own.value) % most] if isinstance(self.own, ir.Constant) else halves(most)
        for height in (one for one in heights if one):
            count = b.divide(b.subtract(self.own, done), height)
            if count != b.index(0):
                yield height, done, count
            done = b.add(done, b.multiply(count, height))


def _tiles_of(width: int, tile: RegisterTile) -> list[RegisterTile]:
    """Return the tiles that fewer columns than a panel has are cut into: whole ones, a narrow one, single columns."""
    behind = width % tile.columns
    shapes = ((tile.vectors, tile.lanes), (behind // tile.lanes, tile.lanes), (behind % tile.lanes, 1))
    found = [replace(tile, vectors=vectors, lanes=lanes) for vectors, lanes in shapes if vectors]
    return found if width >= tile.columns else found[1:]


@dataclass(frozen=True, slots=True)
class _Panel:
    """``count`` tiles of columns for the rows of a chunk, whose left factors and parts stand in ``left`` and tables."""

    chunk: _Chunk
    left: ir.Buffer
    tables: dict[ir.Variable, ir.Buffer]
    columns: Columns
    tile: RegisterTile
    count: int

    @property
    def sums(self) -> BlockSums:
        """The product."""
        return self.chunk.loops.sums

    @property
    def width(self) -> int:
        """The columns of the panel."""
        return self.count * self.tile.columns

    def body(self) -> ir.Statement:
        """Return the sums of all rows: where they are read if one tile has all rows, else from what is widened."""
        own, few, height = self.chunk.own, self.chunk.loops.few, self.sums.product.height
        if self.chunk.loops.most <= few or 0 <= height <= few:
            return self._in_registers()
        if height != VARIES:
            return self._widened_once()
        return ir.If(b.less_equal(own, few), self._in_registers(), self._widened_once())

    def tiles(self, most: int, body: Tile) -> ir.Statement:
        """Return the tiles of all rows, at the most so many each, and columns."""
        return ir.Block(tuple(self._of_height(body, *one) for one in self.chunk.heights(most)))

    def _of_height(self, body: Tile, height: int, done: ir.Expression, count: ir.Expression) -> ir.Statement:
        """Return ``count`` tiles of a height from row ``done`` on, for all tiles across."""
        tile = replace(self.tile, rows=height)

        def down(across: ir.Expression, number: ir.Expression) -> ir.Statement:
            return body(tile, (b.add(done, b.multiply(number, height)), across))

        return loop(self.count, lambda across: loop(count, partial(down, across), name="tile"), name="across")

    def point(self, row: ir.Expression, columns: ir.Expression) -> list[ir.Expression]:
        """Return the index in the result of columns of a row of the chunk."""
        product, known = self.sums.product, self.chunk.places(row)
        at: list[ir.Expression] = [
            known.get(axis, b.index(0) if extent == b.index(1) else axis)
            for axis, extent in zip(product.axes, product.extents, strict=True)
        ]
        at[product.columns] = columns
        return at

    def of_row(self, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the parts that a row of the chunk has for a block, and its places."""
        place = (b.add(b.multiply(row, self.sums.blocks), self.sums.number),)
        return {**self.chunk.places(row), **{part: ir.Load(table, place) for part, table in self.tables.items()}}

    def factor(self, row: ir.Expression, term: ir.Expression) -> ir.Expression:
        """Return the left factor of a row of the chunk for a term of all blocks'."""
        return ir.Load(self.left, (b.add(b.multiply(row, self.sums.terms), term),))

    def _in_registers(self) -> ir.Statement:
        loops = self.chunk.loops
        return self.tiles(loops.low, lambda tile, at: _Tile(self, loops.reader, tile, at).whole())

    def _widened_once(self) -> ir.Statement:
        """Return the loop over blocks of terms, what is before it, and the stores of the result."""
        sums, chunk, lanes = self.sums, self.chunk, self.tile.lanes
        epilogue = sums.product.epilogue
        widened = scratch("widened", sums.kind.dtype, sums.block * self.width)
        totals = scratch("block_totals", sums.total.type.dtype, chunk.loops.most * self.width)
        tables = {part: scratch("column_scales", part.type.dtype, self.width) for part in sums.columns}
        reader, initial = _Widened(sums, self, widened, tables), wide(epilogue.initial, lanes)

        def begun(row: ir.Expression, vector: ir.Expression) -> ir.Statement:
            return ir.Store(totals, self.at(row, vector), initial)

        def finished(row: ir.Expression, vector: ir.Expression) -> ir.Statement:
            point, total = self.point(row, self.columns.at(vector)), ir.Load(totals, self.at(row, vector))
            return ir.Block(tuple(epilogue.stores(point, total, None)))

        def block(number: ir.Expression) -> ir.Statement:
            tiles = self.tiles(self.tile.rows, lambda tile, at: _Tile(self, reader, tile, at).block_into(totals))
            return instantiate(ir.Block((self._widen(reader), tiles)), {sums.number: number})

        def rows(body: Callable[[ir.Expression, ir.Expression], ir.Statement]) -> ir.Statement:
            return loop(chunk.own, lambda row: self._vectors(partial(body, row)), name="row")

        blocks = loop(sums.blocks, block, name="block")
        memory = (widened, totals, *tables.values())
        return allocate(memory, ir.Block((rows(begun), blocks, rows(finished))))

    def at(self, row: ir.Expression, vector: ir.Expression) -> tuple[ir.Expression, ...]:
        """Return the place of a vector of a row, or of a term, among what is kept for the panel."""
        begin = b.add(b.multiply(row, self.width), b.multiply(vector, self.tile.lanes))
        return (ramp(begin, self.tile.lanes),)

    def _vectors(self, body: Callable[[ir.Expression], ir.Statement]) -> ir.Statement:
        return loop(self.width // self.tile.lanes, body, name="vector")

    def _widen(self, kept: _Widened) -> ir.Statement:
        """Return what widens a block of terms, a group at one time, and computes the parts of the block's columns."""
        reader, columns = self.chunk.loops.reader, self.columns

        def group(number: ir.Expression) -> ir.Statement:
            places = [b.add(b.multiply(number, reader.group), term) for term in range(reader.group)]

            def stored(vector: ir.Expression, values: list[ir.Expression]) -> ir.Statement:
                every = zip(places, values, strict=True)
                return ir.Block(tuple(ir.Store(kept.factors, self.at(at, vector), value) for at, value in every))

            def terms(vector: ir.Expression, shared: list[ir.Expression]) -> ir.Statement:
                return bound("number", reader.terms(columns, vector, number, shared), partial(stored, vector))

            def read(vector: ir.Expression) -> ir.Statement:
                return bound("shared", reader.shared(columns, vector, number), partial(terms, vector))

            return ir.Block((*reader.fetches(columns, number), self._vectors(read)))

        def parts(vector: ir.Expression) -> ir.Statement:
            place = self.at(b.index(0), vector)
            tables = kept.tables.items()
            return ir.Block(tuple(ir.Store(table, place, reader.part(part, columns, vector)) for part, table in tables))

        groups = loop(self.sums.block // reader.group, group, name="group")
        return ir.Block((groups, self._vectors(parts)) if kept.tables else (groups,))


@dataclass(frozen=True, slots=True)
class _Widened(Reader):
    """What tiles read of a block of a panel that has been widened."""

    panel: _Panel
    factors: ir.Buffer
    tables: dict[ir.Variable, ir.Buffer]

    def part(self, part: ir.Variable, columns: Columns, vector: ir.Expression) -> ir.Expression:
        """Return a part that columns have, as it was computed."""
        return ir.Load(self.tables[part], self.panel.at(b.index(0), vector))

    def terms(
        self, columns: Columns, vector: ir.Expression, group: ir.Expression, shared: Sequence[ir.Expression]
    ) -> list[ir.Expression]:
        """Return the right factors of a group of terms."""
        places = (b.add(b.multiply(group, self.group), term) for term in range(self.group))
        return [ir.Load(self.factors, self.panel.at(place, vector)) for place in places]


@dataclass(frozen=True, slots=True)
class _Tile:
    """The sums of a tile: where it begins (a row of the chunk, its number across the panel), and what it reads."""

    panel: _Panel
    reader: Reader
    tile: RegisterTile
    begin: tuple[ir.Expression, ir.Expression]

    @property
    def sums(self) -> BlockSums:
        """The product."""
        return self.reader.sums

    @property
    def turns(self) -> int:
        """The sums of each accumulator that take turns."""
        return self.reader.turns if self.tile.rows == 1 else 1

    @property
    def _own(self) -> ir.Buffer:
        """The registers of the sums of a block."""
        return registers("sums", self.sums.kind.dtype, self.turns * self.tile.rows, self.tile.columns)

    def whole(self) -> ir.Statement:
        """Return the sums of all blocks, and what is stored."""
        tile, sums, panel = self.tile, self.sums, self.panel
        epilogue, own, totals = sums.product.epilogue, self._own, accumulation.accumulators(tile, sums.total.type.dtype)
        first, across = self.begin
        column = b.add(panel.columns.begin, b.multiply(across, tile.columns))

        def block(number: ir.Expression) -> ir.Statement:
            return instantiate(self._block(own, totals, self._at), {sums.number: number})

        def point(row: ir.Expression, offset: ir.Expression) -> list[ir.Expression]:
            return panel.point(b.add(first, row), ramp(b.add(column, offset), tile.lanes))

        return allocate((totals, own), ir.Block((
            accumulation.clear(tile, epilogue.initial)(totals),
            loop(sums.blocks, block, name="block"),
            accumulation.finish_tile(epilogue, tile, totals, point, lambda vector: None),
        )))  # fmt: skip

    def block_into(self, totals: ir.Buffer) -> ir.Statement:
        """Return the sums of a block, and what adds them to totals in memory."""
        own = self._own
        block = self._block(own, totals, lambda row, vector: self.panel.at(self._row(row), self._vector(vector)))
        return allocate((own,), block)

    def _row(self, row: int) -> ir.Expression:
        return b.add(self.begin[0], row)

    def _vector(self, vector: int) -> ir.Expression:
        return b.add(b.multiply(self.begin[1], self.tile.vectors), vector)

    def _at(self, row: int, vector: int) -> accumulation.Place:
        return b.index(row), ramp(vector * self.tile.lanes, self.tile.lanes)

    def _parts(self, row: int, vector: int) -> dict[ir.Variable, ir.Expression]:
        columns = {one: self.reader.part(one, self.panel.columns, self._vector(vector)) for one in self.sums.columns}
        return {**self.panel.of_row(self._row(row)), **columns}

    def _block(
        self, own: ir.Buffer, totals: ir.Buffer, total_at: Callable[[int, int], accumulation.Place]
    ) -> ir.Statement:
        """Return the sums of a block in ``own``, and what adds them to the totals."""
        sums, tile, lanes = self.sums, self.tile, self.tile.lanes
        zero = wide(b.constant(0, own.dtype), lanes)

        def begun(row: int, vector: int, place: accumulation.Place) -> ir.Statement:
            start = wide(vectorize_expression(sums.start, self._parts(row, vector)), lanes)
            rows = (self._at(turn * tile.rows + row, vector) for turn in range(1, self.turns))
            return ir.Block((ir.Store(own, place, start), *(ir.Store(own, at, zero) for at in rows)))

        def added(row: int, vector: int, place: accumulation.Place) -> ir.Statement:
            total: ir.Expression = ir.Load(own, place)
            for turn in range(1, self.turns):
                total = b.add(total, ir.Load(own, self._at(turn * tile.rows + row, vector)))
            at = total_at(row, vector)
            known = {**self._parts(row, vector), sums.sum: total, sums.total: ir.Load(totals, at)}
            return ir.Store(totals, at, wide(vectorize_expression(sums.added, known), lanes))

        groups = loop(sums.block // self.reader.group, partial(self._group, own), name="group")
        return ir.Block((accumulation.each(tile, begun), groups, accumulation.each(tile, added)))

    def _group(self, own: ir.Buffer, group: ir.Expression) -> ir.Statement:
        """Return what adds the terms of a group: all vectors of one term, then those of the next."""
        panel, tile, reader = self.panel, self.tile, self.reader
        vectors = [self._vector(vector) for vector in range(tile.vectors)]
        shared = [reader.shared(panel.columns, vector, group) for vector in vectors]
        begin = b.add(b.multiply(self.sums.number, self.sums.block), b.multiply(group, reader.group))

        def added(term: int, weights: list[ir.Expression]) -> ir.Statement:
            def of_row(row: int, left: list[ir.Expression]) -> ir.Statement:
                places = [self._at(term % self.turns * tile.rows + row, vector) for vector in range(tile.vectors)]
                every = zip(places, weights, strict=True)
                return ir.Block(tuple(ir.Store(own, at, multiply_add(left[0], w, ir.Load(own, at))) for at, w in every))

            factors = (panel.factor(self._row(row), b.add(begin, term)) for row in range(tile.rows))
            rows = (bound("left", [wide(one, tile.lanes)], partial(of_row, n)) for n, one in enumerate(factors))
            return ir.Block(tuple(rows))

        def summed(known: list[ir.Expression]) -> ir.Statement:
            every = iter(known)
            read = [[next(every) for _ in one] for one in shared]
            every_term = zip(vectors, read, strict=True)
            terms = [reader.terms(panel.columns, vector, group, shared) for vector, shared in every_term]
            steps = (
                bound("weight", [one[term] for one in terms], partial(added, term)) for term in range(reader.group)
            )
            return ir.Block(tuple(steps))

        fetches = reader.fetches(panel.columns, group) if self.begin[1] == b.index(0) else []
        return ir.Block((*fetches, bound("shared", [one for every in shared for one in every], summed)))
