"""The loops of block-scaled products: chunks of rows, panels of columns, blocks of terms, tiles of rows.

For a chunk the left factor is widened once, and what scales a block by its row is computed. For a panel and a block,
the right factor is widened into ``[term, column]``, which stays in the first-level cache while all rows of the chunk
pass in register tiles; the sums of a tile are scaled and added to those of the blocks before, which are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import LINE, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products import accumulation
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import RegisterTile, choose_tile, halves
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, bound, loops_over
from graft.core.tensor_ir.visit import children, free_variables, loads, substitute, with_children

MOST = 96
"""Rows of a chunk at the most: so many pass for each block that is widened."""
USUAL = 64
"""The rows that tiles are chosen for where their number varies."""
TERMS = 4
"""Terms that are widened at one time: their elements may share bytes."""
FEW = 4
"""With so few panels, threads share chunks rather than panels."""


@dataclass(frozen=True, slots=True)
class BlockScaled:
    """A block-scaled product: what is ordered is ``value``, an expression of the sum of block ``number`` in ``sums``.

    ``product`` has the factors of the sum of a block, over ``term``, as expressions of the result's axes, ``number``
    and ``term``.
    """

    product: Contraction
    sums: ir.Buffer
    initial: ir.Expression
    """What the sum of a block starts from."""
    number: ir.Variable
    term: ir.Variable
    blocks: int
    block: int
    width: int

    @property
    def value(self) -> ir.Expression:
        """What is added for a block."""
        return self.product.epilogue.anchor.value

    @property
    def outer(self) -> list[int]:
        """The axes of the result that both factors have: each of their places has a product of its own."""
        own = (*self.product.every_row, self.product.columns)
        return [axis for axis in range(len(self.product.axes)) if axis not in own]


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a product, by panels of ``panel`` tiles of columns."""

    product: BlockScaled
    tile: RegisterTile
    panel: int
    most: int
    """Rows of a chunk."""

    @classmethod
    def of(cls, product: BlockScaled, target: Target) -> Loops:
        """Return the loops for a target."""
        height = product.product.row_count
        rows = int(height.value) if isinstance(height, ir.Constant) else USUAL
        tile = choose_tile(max(1, rows), product.width, product.sums.dtype, target)
        tile = replace(tile, unroll=gcd(product.block, TERMS))
        if product.width < tile.lanes:
            tile = replace(tile, vectors=min(product.width, tile.vectors), lanes=1)
        panel = max(1, LINE // tile.columns)
        chunks = max(1, -(-rows // MOST))
        even = -(-rows // chunks) if isinstance(height, ir.Constant) else MOST
        return cls(product, tile, panel, max(1, -(-even // tile.rows)) * tile.rows)

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.panel * self.tile.columns

    @property
    def terms(self) -> int:
        """The terms of all blocks."""
        return self.product.blocks * self.product.block

    # ---- Chunks of rows ----

    def body(self) -> ir.Statement:
        """Return all loops; those of one level are shared by threads."""
        product, outer = self.product.product, self.product.outer
        height = product.row_count
        is_one = isinstance(height, ir.Constant) and int(height.value) <= self.most
        many = any(product.extents[axis] != b.index(1) for axis in outer)
        shared = "outer" if many else "panel" if is_one or self.product.width > FEW * self.columns else "chunk"
        chunk = ir.Variable("chunk")
        first = b.index(0) if is_one else b.multiply(chunk, self.most)
        own = height if is_one else b.minimum(b.subtract(height, first), self.most)
        body = _Chunk(self, first, own, shared == "panel").body()
        if not is_one:
            count = b.divide(b.add(height, self.most - 1), self.most)
            body = ir.For(chunk, count, "parallel" if shared == "chunk" else "serial", body)
        axes = ((product.axes[axis], product.extents[axis]) for axis in outer)
        return instantiate(loops_over(axes, body, "parallel" if shared == "outer" else "serial"), {})


@dataclass(frozen=True, slots=True)
class _Value:
    """What is added for a block, in parts: what its row has, what its column has, and the sum."""

    value: ir.Expression
    """Of the variables of the parts, and of ``sum``."""
    rows: dict[ir.Variable, ir.Expression]
    columns: dict[ir.Variable, ir.Expression]
    sum: ir.Variable

    @classmethod
    def of(cls, product: BlockScaled) -> _Value:
        """Return the value of a product in parts, the largest that depend on a row, or on a column, alone."""
        whole = product.product
        total = ir.Variable("sum", ir.Load(product.sums, tuple(map(b.index, [0] * len(product.sums.shape)))).type)
        rows: dict[ir.Variable, ir.Expression] = {}
        columns: dict[ir.Variable, ir.Expression] = {}
        across = {whole.axes[axis] for axis in whole.every_row}
        column = whole.axes[whole.columns]

        def apart(node: ir.Expression) -> ir.Expression:
            if isinstance(node, ir.Load) and node.buffer is product.sums:
                return total
            free, is_sum = free_variables(node), any(one.buffer is product.sums for one in loads(node))
            if isinstance(node, ir.Variable | ir.Constant) or not free or (column in free and free & across):
                known = None
            else:
                known = columns if column in free else rows
            if known is None or is_sum:
                return with_children(node, tuple(map(apart, children(node))))
            part = ir.Variable("part", node.type)
            known[part] = node
            return part

        return cls(apart(product.value), rows, columns, total)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The rows from ``first`` on, of which there are ``own``; threads share its panels if they are ``parallel``."""

    loops: Loops
    first: ir.Expression
    own: ir.Expression
    parallel: bool

    @property
    def kind(self) -> ir.LoopKind:
        """Of the loops that threads may share."""
        return "parallel" if self.parallel else "serial"

    def body(self) -> ir.Statement:
        """Return the widening of the left factor, and all panels."""
        loops, product = self.loops, self.loops.product
        value = _Value.of(product)
        left = scratch("left", product.sums.dtype, loops.most * loops.terms)
        tables = {part: scratch("row_scales", part.type.dtype, loops.most * product.blocks) for part in value.rows}
        row, panel = ir.Variable("row"), ir.Variable("panel")
        whole, rest = divmod(product.width, loops.columns)
        statements: list[ir.Statement] = [
            ir.For(row, self.own, self.kind, self._widened(left, tables, value, row)),
        ]

        def part(begin: ir.Expression, tile: RegisterTile, count: int) -> ir.Statement:
            return _Panel(self, value, left, tables, begin, tile, count).body()

        if whole:
            inside = part(b.multiply(panel, loops.columns), loops.tile, loops.panel)
            statements.append(ir.For(panel, b.index(whole), self.kind, inside))
        begin = whole * loops.columns
        for tile in _tiles_of(rest, loops.tile):
            count = rest // tile.columns
            statements.append(part(b.index(begin), tile, count))
            begin, rest = begin + count * tile.columns, rest - count * tile.columns
        return allocate((left, *tables.values()), ir.Block(tuple(statements)))

    def _widened(
        self, left: ir.Buffer, tables: dict[ir.Variable, ir.Buffer], value: _Value, row: ir.Variable
    ) -> ir.Statement:
        """Return what widens a row of the left factor, and computes what it has for each block."""
        loops, product = self.loops, self.loops.product
        lanes, step, number = gcd(product.block, loops.tile.lanes), ir.Variable("step"), product.number
        places = self.places(row)
        term = b.multiply(step, lanes)
        at = b.add(b.add(b.multiply(row, loops.terms), b.multiply(number, product.block)), term)
        numbers = vectorize_expression(substitute(product.product.left, places), {product.term: ramp(term, lanes)})
        stored = ir.Store(left, (ramp(at, lanes),), wide(numbers, lanes))
        scales = (
            ir.Store(table, (b.add(b.multiply(row, product.blocks), number),), substitute(value.rows[part], places))
            for part, table in tables.items()
        )
        inside = ir.Block((ir.For(step, b.index(product.block // lanes), "serial", stored), *scales))
        return ir.For(number, b.index(product.blocks), "serial", inside)

    def places(self, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the places along the axes of rows that a row of the chunk has."""
        product = self.loops.product.product
        return {product.axes[axis]: at for axis, at in product.at_row(b.add(self.first, row)).items()}


def _tiles_of(width: int, tile: RegisterTile) -> list[RegisterTile]:
    """Return the tiles that fewer columns than a panel has are cut into: whole ones, a narrow one, single columns."""
    behind = width % tile.columns
    shapes = ((tile.vectors, tile.lanes), (behind // tile.lanes, tile.lanes), (behind % tile.lanes, 1))
    found = [replace(tile, vectors=vectors, lanes=lanes) for vectors, lanes in shapes if vectors]
    return found if width >= tile.columns else found[1:]


@dataclass(frozen=True, slots=True)
class _Panel:
    """The columns from ``begin`` on, ``count`` tiles of them, for the rows of a chunk."""

    chunk: _Chunk
    value: _Value
    left: ir.Buffer
    row_tables: dict[ir.Variable, ir.Buffer]
    begin: ir.Expression
    tile: RegisterTile
    count: int

    @property
    def columns(self) -> int:
        """The columns of the panel."""
        return self.count * self.tile.columns

    @property
    def in_registers(self) -> bool:
        """Whether what is widened is used by one tile of rows alone: it needs no memory then."""
        own = self.chunk.own
        return isinstance(own, ir.Constant) and int(own.value) <= self.tile.rows

    def body(self) -> ir.Statement:
        """Return the loop over blocks of terms, what is before it, and the stores of the result."""
        loops, product = self.chunk.loops, self.chunk.loops.product
        epilogue, lanes = product.product.epilogue, self.tile.lanes
        widened = scratch("widened", product.sums.dtype, product.block * self.columns)
        totals = scratch("block_totals", product.value.type.dtype, loops.most * self.columns)
        tables = {part: scratch("column_scales", part.type.dtype, self.columns) for part in self.value.columns}
        row = ir.Variable("row")
        initial = wide(epilogue.initial, lanes)

        def finished(vector: ir.Expression) -> ir.Statement:
            known = self.chunk.places(row)
            point: list[ir.Expression] = [known.get(axis, axis) for axis in product.product.axes]
            point[-1] = ramp(b.add(self.begin, b.multiply(vector, lanes)), lanes)
            return ir.Block(tuple(epilogue.stores(point, ir.Load(totals, self.at(row, vector)), None)))

        def begun(vector: ir.Expression) -> ir.Statement:
            return ir.Store(totals, self.at(row, vector), initial)

        block = ir.Block((
            *([] if self.in_registers else [self._widened(widened)]),
            self._column_tables(tables), self._tiles(widened, totals, tables),
        ))  # fmt: skip
        memory = (totals, *tables.values()) if self.in_registers else (widened, totals, *tables.values())
        return allocate(memory, ir.Block((
            ir.For(row, self.chunk.own, "serial", self._vectors(begun)),
            ir.For(product.number, b.index(product.blocks), "serial", block),
            ir.For(row, self.chunk.own, "serial", self._vectors(finished)),
        )))  # fmt: skip

    def at(self, row: ir.Expression, vector: ir.Expression) -> tuple[ir.Expression, ...]:
        """Return the place of a vector of a row of the chunk among what is kept for the panel."""
        begin = b.add(b.multiply(row, self.columns), b.multiply(vector, self.tile.lanes))
        return (ramp(begin, self.tile.lanes),)

    def _vectors(self, body: Callable[[ir.Expression], ir.Statement]) -> ir.Statement:
        """Return the loop over the vectors of the panel."""
        vector = ir.Variable("vector")
        return ir.For(vector, b.index(self.columns // self.tile.lanes), "serial", body(vector))

    def across(self, vector: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        """Return the columns of a vector of the panel."""
        product, lanes = self.chunk.loops.product.product, self.tile.lanes
        return {product.axes[product.columns]: ramp(b.add(self.begin, b.multiply(vector, lanes)), lanes)}

    def _widened(self, widened: ir.Buffer) -> ir.Statement:
        """Return what widens a block of terms of the right factor: some at one time, whose elements may share bytes."""
        product, lanes, group = self.chunk.loops.product, self.tile.lanes, ir.Variable("group")
        terms = gcd(product.block, TERMS)

        def vector_of(vector: ir.Expression) -> ir.Statement:
            places = [b.add(b.multiply(group, terms), term) for term in range(terms)]
            values = [
                vectorize_expression(product.product.right, {**self.across(vector), product.term: place})
                for place in places
            ]

            def stored(numbers: list[ir.Expression]) -> ir.Statement:
                every = zip(places, numbers, strict=True)
                return ir.Block(tuple(ir.Store(widened, self.at(at, vector), wide(one, lanes)) for at, one in every))

            return bound("number", values, stored)

        return ir.For(group, b.index(product.block // terms), "serial", self._vectors(vector_of))

    def _column_tables(self, tables: dict[ir.Variable, ir.Buffer]) -> ir.Statement:
        """Return what computes the parts of a block that columns have."""

        def stored(vector: ir.Expression) -> ir.Statement:
            values = {part: vectorize_expression(self.value.columns[part], self.across(vector)) for part in tables}
            zero = b.index(0)
            return ir.Block(
                tuple(
                    ir.Store(tables[part], self.at(zero, vector), wide(value, self.tile.lanes))
                    for part, value in values.items()
                )
            )

        return self._vectors(stored)

    # ---- Tiles ----

    def _tiles(self, widened: ir.Buffer, totals: ir.Buffer, tables: dict[ir.Variable, ir.Buffer]) -> ir.Statement:
        """Return the tiles of a block, the highest first, each height with code of its own."""
        own, most = self.chunk.own, self.tile.rows
        done: ir.Expression = b.index(0)
        statements: list[ir.Statement] = []
        heights = [most, int(own.value) % most] if isinstance(own, ir.Constant) else halves(most)
        for height in (one for one in heights if one):
            count = b.divide(b.subtract(own, done), height)
            number, across = ir.Variable("tile"), ir.Variable("across")
            first = b.add(done, b.multiply(number, height))
            tile = _Tile(self, replace(self.tile, rows=height), first, across)
            inside = ir.For(number, count, "serial", tile.body(widened, totals, tables))
            if count != b.index(0):
                statements.append(ir.For(across, b.index(self.count), "serial", inside))
            done = b.add(done, b.multiply(count, height))
        return ir.Block(tuple(statements))


@dataclass(frozen=True, slots=True)
class _Tile:
    """The sums of a block for some rows, from ``first`` of the chunk on, and the columns of tile ``across``."""

    panel: _Panel
    tile: RegisterTile
    first: ir.Expression
    across: ir.Expression

    def body(self, widened: ir.Buffer, totals: ir.Buffer, tables: dict[ir.Variable, ir.Buffer]) -> ir.Statement:
        """Return the sums of the block, and what adds them, scaled, to those before."""
        product, panel, lanes = self.panel.chunk.loops.product, self.panel, self.tile.lanes
        terms = panel.chunk.loops.terms
        begin = b.multiply(product.number, product.block)

        def left(row: int) -> ir.Expression:
            at = b.add(b.multiply(b.add(self.first, row), terms), begin)
            return ir.Load(panel.left, (b.add(at, product.term),))

        def right(vector: int) -> ir.Expression:
            if panel.in_registers:
                return wide(vectorize_expression(product.product.right, panel.across(self._vector(vector))), lanes)
            return ir.Load(widened, panel.at(product.term, self._vector(vector)))

        def finish(sums: ir.Buffer) -> ir.Statement:
            return ir.Block(tuple(self._added(sums, totals, tables, vector) for vector in range(self.tile.vectors)))

        kind = product.initial.type
        start = accumulation.clear(self.tile, product.initial)
        depth = [accumulation.Reduced(product.term, product.block)]
        return accumulation.accumulate(self.tile, kind, start, depth, left, right, finish)

    def _vector(self, number: int) -> ir.Expression:
        """Return the number in the panel of a vector of the tile."""
        return b.add(b.multiply(self.across, self.tile.vectors), number)

    def _added(
        self, sums: ir.Buffer, totals: ir.Buffer, tables: dict[ir.Variable, ir.Buffer], vector: int
    ) -> ir.Statement:
        """Return what adds the sums of a vector of columns."""
        panel, product, value = self.panel, self.panel.chunk.loops.product, self.panel.value
        lanes, at = self.tile.lanes, self._vector(vector)
        parts = [ir.Load(table, panel.at(b.index(0), at)) for table in tables.values()]

        def scaled(columns: list[ir.Expression]) -> ir.Statement:
            statements: list[ir.Statement] = []
            for row in range(self.tile.rows):
                own = b.add(self.first, row)
                place = b.add(b.multiply(own, product.blocks), product.number)
                known = {**panel.chunk.places(own), **panel.across(at), **dict(zip(tables, columns, strict=True))}
                known |= {part: ir.Load(table, (place,)) for part, table in panel.row_tables.items()}
                known[value.sum] = ir.Load(sums, (b.index(row), ramp(vector * lanes, lanes)))
                added = wide(vectorize_expression(value.value, known), lanes)
                before = ir.Load(totals, panel.at(own, at))
                statements.append(ir.Store(totals, panel.at(own, at), ir.Binary("add", before, added)))
            return ir.Block(tuple(statements))

        return bound("scale", parts, scaled)
