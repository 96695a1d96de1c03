"""A contraction with channels on the lanes whose output has pixels innermost: its sums are transposed on their way out.

The sums of all rows of a panel wait in the first-level cache. From there squares of as many pixels as channels are
transposed in registers, so that the epilogue reads and writes runs of pixels instead of single elements.
"""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import column_mask, interleave, ramp, scratch, wide
from graft.core.schedule.products.accumulation import store_into
from graft.core.schedule.products.blocking import Panel, Part, Place, RowBlock
from graft.core.schedule.products.contraction import ContractionScheduler
from graft.core.schedule.products.factors import Outer
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ir import Allocate, Binary, Block, Buffer, Expression, For, Load, Statement, Store, Variable

SUMS_SHARE = 1 / 8
"""What the sums of a panel may take up of the second-level cache: they are read again soon."""


class TransposedScheduler(ContractionScheduler):
    """A product of pixels (rows) and channels (columns)."""

    sums: Buffer | None = None
    """The sums of all rows of the panel that is computed."""

    first: Expression = b.index(0)
    """The first row of the block that is computed."""

    def _turns(self) -> bool:
        lanes = self.tile.lanes
        square = lanes > 1 and lanes & (lanes - 1) == 0 and self.parts.width % lanes == 0
        small = self._waiting_rows() * self.tile.columns * self.bytes <= SUMS_SHARE * self.target.machine.working_set(2)
        single = not self.parts.epilogue.branches and self.parts.epilogue.turns == 1
        return single and square and small and self.mode == "packed before" and self.parts.total.dtype == "float32"

    def _waiting_rows(self) -> int:
        """The rows of a block, in whole squares."""
        most = min(self.parts.height, self.blocking.largest_block * self.tile.rows)
        return -(-most // self.tile.lanes) * self.tile.lanes

    def _rows(self, outer: Outer, panel: Panel, rows: RowBlock, part: Part | None = None) -> Statement:
        if not self._turns():
            return super()._rows(outer, panel, rows, part)
        self.sums = scratch("sums", "float32", self._waiting_rows(), panel.vectors * self.tile.lanes)
        self.first = rows.first
        end = b.add(rows.first, rows.count)
        sums = super()._rows(outer, panel, rows, part)
        finish = self._transposed(outer, panel, self.sums, end)
        if part is not None:
            finish = ir.If(b.equal(part.number, self.blocking.spans - 1), finish)
        return Allocate(self.sums, Block((sums, finish)))

    def store(self, outer: Outer, place: Place, tile: RegisterTile, totals: Buffer) -> Statement:
        """Return the stores of a tile of sums, behind the epilogue or where they wait for it."""
        if self.sums is None:
            return super().store(outer, place, tile, totals)
        begin = b.subtract(place.begin, self.first)

        def waiting(row: int, vector: int) -> tuple[Expression, ...]:
            return b.add(begin, row), ramp(vector * tile.lanes, tile.lanes)

        return store_into(tile, self.sums, waiting)(totals)

    def _transposed(self, outer: Outer, panel: Panel, sums: Buffer, end: Expression) -> Statement:
        """Return the loops over squares of sums: the epilogue of a run of pixels for each channel of a square."""
        lanes, vector, number = self.tile.lanes, Variable("vector"), Variable("square")
        channel, row = b.multiply(vector, lanes), b.multiply(number, lanes)
        if self.blocking.rows.count > 1:
            count = b.divide(b.add(b.subtract(end, self.first), lanes - 1), lanes)
            mask = Binary("lt", ramp(b.add(self.first, row), lanes), wide(end, lanes))
            body: Statement = For(number, count, "serial", self._square(outer, panel, sums, row, channel, mask))
        else:
            full, rest = divmod(self.parts.height, lanes)
            squares: list[Statement] = []
            if full:
                square = self._square(outer, panel, sums, row, channel, None)
                squares.append(For(number, b.index(full), "serial", square))
            if rest:
                start = b.index(full * lanes)
                last = column_mask(start, self.parts.height, lanes)
                squares.append(self._square(outer, panel, sums, start, channel, last))
            body = Block(tuple(squares))
        return For(vector, b.index(panel.vectors), "serial", body)

    def _square(
        self, outer: Outer, panel: Panel, sums: Buffer, row: Expression, channel: Expression, mask: Expression | None
    ) -> Statement:
        lanes, rows = self.tile.lanes, self.parts.rows
        assert rows is not None, "a product without rows"
        transposed, lane, own = scratch("transposed", "float32", lanes, lanes), ramp(0, lanes), Variable("channel")
        vectors: list[Expression] = [Load(sums, (b.add(row, n), ramp(channel, lanes))) for n in range(lanes)]
        stores = [Store(transposed, (b.index(n), lane), value) for n, value in enumerate(interleave(vectors))]
        places = {
            **outer,
            rows: ramp(b.add(self.first, row), lanes),
            self.parts.columns: b.add(b.add(panel.begin, channel), own),
        }
        point = [places[axis] for axis in range(len(self.parts.shape))]
        finish = Block(tuple(self.parts.epilogue.stores(point, Load(transposed, (own, lane)), mask)))
        return Allocate(transposed, Block((*stores, For(own, b.index(lanes), "serial", finish))))
