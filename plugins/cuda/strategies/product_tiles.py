"""What a block does for its tile of a product: factors to shared memory, sums in registers, results to memory."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.plugins.cuda.strategies.bulk import BulkFill, Tiled
from graft.plugins.cuda.strategies.fills import Fill, Tile, behind, is_transposed
from graft.plugins.cuda.strategies.frames import each
from graft.plugins.cuda.strategies.product_parts import Product
from graft.plugins.cuda.strategies.sums import Held, Sums
from graft.plugins.cuda.strategies.tiles import BlockTiling, Side

Begin = tuple[ir.Expression, ir.Expression]
SIDES: tuple[Side, Side] = ("rows", "columns")


class ProductTile:
    """A tile of a product; ``dtypes`` are those of both factors in shared memory, ``bulk`` what bulk copies bring."""

    def __init__(self, product: Product, tiles: BlockTiling, dtypes: Sequence[str], bulk: Tiled | None = None) -> None:
        self.product, self.tiles = product, tiles
        self.unit, self.step = ir.Variable("unit"), ir.Variable("step")
        terms = product.terms.count
        whole = isinstance(terms, int) and terms % (tiles.terms * tiles.splits) == 0

        def fill(number: int, name: str, lines: int) -> Fill | BulkFill:
            factor, dtype = (product.rows, product.columns)[number], dtypes[number]
            is_bulk = bulk is not None and tiles.bulk == SIDES[number]
            is_across = bool(tiles.instruction) and not is_bulk and is_transposed(factor, dtype)
            tile = Tile(name, dtype, lines, tiles.terms, bool(tiles.instruction), is_across, tiles.is_of_group)
            if is_bulk and bulk is not None:
                return BulkFill(tile, bulk, self.unit, self.step, tiles.stages)
            return Fill(tile, factor, tiles.stages > 1, whole)

        self.fills = fill(0, "left", tiles.rows), fill(1, "right", tiles.columns)
        self.bulks = [one for one in self.fills if isinstance(one, BulkFill)]
        self.sums = Sums(
            tiles.instruction, "sums_here", product.total.dtype, tiles.columns, tiles.own_rows, tiles.own_columns,
            self.unit, tiles.threads,
        )  # fmt: skip

    @property
    def behind(self) -> str:
        """The steps behind that which shares the block's loops among its threads."""
        return behind(self.fills, self.tiles.threads, self.tiles.stages, "left right")

    def body(self, split: ir.Variable, which: ir.Variable, begin: Begin, parts: ir.Buffer | None) -> ir.Statement:
        """Return what a block does; the sums of some terms alone go to ``parts``."""
        tiles, sums = self.tiles, self.sums
        steps = over(over(self.product.terms.count, tiles.terms), tiles.splits)
        first = b.multiply(split, b.extent(steps)) if tiles.splits > 1 else b.index(0)
        fills = self._filled(b.multiply(b.add(first, self.step), tiles.terms), which, begin)
        left, right = (fill.tile for fill in self.fills)
        used = self._each(*(one.waited() for one in self.bulks), sums.added(left, right))
        loop = loops_over([(self.step, b.extent(steps))], ir.Block((*fills, *self._seen(), used)))
        opened = [self._each(*(one.opened() for one in self.bulks)), ir.Barrier("block")] if self.bulks else []

        def stored(held: Held) -> ir.Statement:
            row, column, total = b.add(begin[0], held.row), b.add(begin[1], held.column), held.total
            pieces = [(column, total)] if self._are_neighbours(total.type.lanes, parts) else [
                (b.add(column, lane), one) for lane, one in enumerate(held.lanes)
            ]  # fmt: skip
            return ir.Block(tuple(self._piece((row, place), one, which, split, parts) for place, one in pieces))

        body = ir.Block((self._each(sums.zeros()), *opened, loop, self._each(sums.each(stored))))
        return allocate([sums.buffer, *(one.arrived for one in self.bulks), right.buffer, left.buffer], body)

    def _each(self, *statements: ir.Statement) -> ir.Statement:
        return each(self.unit, self.tiles.threads, *statements)

    def _seen(self) -> list[ir.Statement]:
        """Return what lets a warpgroup's instructions see what threads have stored."""
        return [self._each(ir.CallExtern("fence_async", ())), ir.Barrier("block")] if self.tiles.is_of_group else []

    def _filled(self, first: ir.Expression, which: ir.Variable, begin: Begin) -> list[ir.Statement]:
        batch = self.product.batch.at(which)
        return [fill.statement(line, first, batch) for fill, line in zip(self.fills, begin, strict=True)]

    # ---- Results ----

    def _are_neighbours(self, lanes: int, parts: ir.Buffer | None) -> bool:
        """Whether neighbouring sums of a row are stored at one time."""
        own = self.product.columns.own
        extent = own.extents[-1] if own.extents else 1
        is_whole = isinstance(extent, int) and extent % lanes == 0
        return is_whole and (parts is not None or self.product.stores_neighbours)

    def _piece(
        self, at: Begin, total: ir.Expression, which: ir.Variable, split: ir.Variable, parts: ir.Buffer | None
    ) -> ir.Statement:
        """Return what stores sums from a row and column on, if these are places of the result."""
        product, (row, column), lanes = self.product, at, total.type.lanes
        if parts is not None:
            last = ir.Ramp(column, 1, lanes) if lanes > 1 else column
            body: ir.Statement = ir.Store(parts, (split, which, row, last), total)
        else:
            places = {**product.batch.at(which), **product.rows.own.at(row), **product.columns.own.at(column)}
            if lanes > 1:
                inner = product.columns.own.variables[-1]
                places[inner] = ir.Ramp(places[inner], 1, lanes)
            initial = product.epilogue.initial
            if not (isinstance(initial, ir.Constant) and initial.value == 0):
                total = b.add(total, wide(vectorize_expression(initial, places), lanes))
            body = ir.Block(tuple(product.epilogue.stores(product.point(places), total, None)))
        sides = (row, product.rows.own.count, self.tiles.rows), (column, product.columns.own.count, self.tiles.columns)
        inside = b.all_of([
            b.less(place, b.extent(count)) for place, count, by in sides if not isinstance(count, int) or count % by
        ])  # fmt: skip
        return body if inside is None else ir.If(inside, body)


def over(count: Count, by: int) -> Count:
    """Return how many times ``by`` it takes to have at least ``count``."""
    return -(-count // by) if isinstance(count, int) else b.divide(b.add(count, by - 1), by)
