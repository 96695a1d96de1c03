"""Winograd's algorithm for few channels that come first: vectors are of pieces, and rows of pixels stay as they lie.

A block is whole rows of pieces, which stand one after another: rows of pixels are combined as they lie, then columns,
a vector of pieces at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop, tiles
from graft.core.schedule.primitives.statements import between, deinterleave, interleave, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import both
from graft.core.schedule.products.accumulation import Reduced, accumulate, clear, store_into
from graft.core.schedule.products.fetching import Ahead
from graft.core.schedule.products.tiling import RegisterTile, split_evenly
from graft.core.schedule.strategies.convolutions.winograd_loops import Loops
from graft.core.schedule.strategies.convolutions.winograd_plan import ImageInPieces, Plan
from graft.core.schedule.strategies.convolutions.winograd_transform import EXACT_TERMS
from graft.core.tensor_ir.ir import Block, Buffer, Expression, If, Let, Load, Statement, Store, Variable
from graft.core.tensor_ir.statements import allocate, bind, bound, loops_over
from graft.core.types import FLOAT32

MOST_WRITTEN = 4
"""Vectors of a row that are written out."""


class PieceLoops(Loops):
    """Builds the loops: images ``[product, input channel, piece]`` and sums ``[product, output channel, piece]``."""

    def __init__(self, own: ImageInPieces, plan: Plan, weights: Buffer, first: int, target: Target) -> None:
        self.split, self.vectors = split_evenly(plan.outputs, plan.tile.rows), -(-plan.most // plan.tile.lanes)
        super().__init__(own, plan, weights, first, target)

    def _matrices(self, name: str, dtype: str, columns: int) -> Buffer:
        return scratch(name, dtype, self.transform.products, columns * self.width + self._pad(dtype))

    @property
    def width(self) -> int:
        """The pieces of a block, those that only fill up the last vector included."""
        return self.vectors * self.lanes

    def _in_images(self, piece: Expression, channel: Expression) -> Expression:
        return b.add(b.multiply(channel, self.width), piece)

    def _in_sums(self, piece: Expression, columns: int, column: Expression) -> Expression:
        return self._in_images(piece, column)

    def _lines(self, body: Callable[[Expression, Expression, Expression], Statement]) -> Statement:
        """Return the loop over rows of pieces of a block around ``body(number in the block, image, first row)``."""
        number, (_, down, _) = Variable("line"), self.plan.grid
        line = b.add(b.divide(self.begin, self.across), number)
        image, y = Variable("image"), Variable("y")
        known = [(image, b.divide(line, down)), (y, b.multiply(b.modulo(line, down), self.transform.outputs))]
        return loops_over([(number, b.divide(self.own, self.across))], bind(known, body(number, image, y)))

    def _over_vectors(self, length: int, piece: Callable[[Expression, int, int], Statement]) -> Statement:
        """Return ``piece`` at all vectors of a row: the first and the last two apart, those between in a loop.

        It gets where the vector begins, and what that is at the least and at the most.
        """
        lanes, count = self.lanes, -(-length // self.lanes)
        if count <= MOST_WRITTEN:
            return Block(tuple(piece(b.index(v * lanes), v * lanes, v * lanes) for v in range(count)))

        def between_ends(step: Expression) -> Statement:
            return piece(b.multiply(b.add(step, 1), lanes), lanes, (count - 3) * lanes)

        first, *last = (piece(b.index(v * lanes), v * lanes, v * lanes) for v in (0, count - 2, count - 1))
        return Block((first, loop(count - 3, between_ends, name="step"), *last))

    # ---- Input ----

    def _transform_input(self) -> Statement:
        """Return the loop over channels: rows are combined as they lie, then columns, a vector of pieces at a time.

        Half 0 of ``combined`` has the columns of each piece up to the next one, half 1 those behind them.
        """
        size, extent, channel = (
            self.transform.inputs,
            self.width * self.transform.step + self.lanes,
            Variable("channel"),
        )
        combined = scratch("combined", "float32", 2, size, extent)
        rows = self._lines(lambda *line: self._combine_rows(combined, channel, *line))
        body = Block((self._clear(combined), rows, self._combine_columns(combined, channel)))
        return loops_over([(channel, b.index(self.plan.inputs))], allocate((combined,), body), self.kind)

    def _clear(self, combined: Buffer) -> Statement:
        """Return the stores of zeros where no piece is: what is there would be multiplied all the same."""
        lanes, half, row = self.lanes, Variable("half"), Variable("row")
        zero = wide(b.constant(0, "float32"), lanes)
        starts = range(self.plan.most * self.transform.step, self.width * self.transform.step, lanes)
        stores = tuple(Store(combined, (half, row, ramp(start, lanes)), zero) for start in starts)
        return loops_over([(half, b.index(2)), (row, b.index(self.transform.inputs))], Block(stores))

    def _combine_rows(
        self, combined: Buffer, channel: Expression, number: Expression, image: Expression, y: Expression
    ) -> Statement:
        """Return the loops that fill ``combined[half, i, piece * step + column]`` for a row of pieces."""
        size, step, lanes, w, row = (
            self.transform.inputs,
            self.transform.step,
            self.lanes,
            self.windows,
            Variable("top"),
        )
        length, left, across = self.plan.grid[2] * step, w.begins[1], w.source[1]
        valid = [Variable(f"valid{i}", b.constant(True, "bool").type) for i in range(size)]

        def piece(start: Expression, first: int, last: int) -> Statement:
            column = ramp(b.subtract(start, left), lanes)
            mask = between(column, across, low=first < left, high=last - left + lanes > across)
            pixels = [
                Load(self.convolution.image, (image, channel, b.add(row, i), column), both(mask, wide(inside, lanes)))
                for i, inside in enumerate(valid)
            ]
            return bound("d", pixels, lambda values: stored(self.transform.input_sums(values), start, first, last))

        def stored(sums: list[Expression], start: Expression, first: int, last: int) -> Statement:
            stores: list[Statement] = []
            for half in range(2):
                shift = half * step
                if first >= length + shift:
                    continue
                place = b.subtract(start, shift)
                mask = between(ramp(place, lanes), length, low=first < shift, high=last - shift + lanes > length)
                at = ramp(b.add(b.multiply(number, length), place), lanes)
                stores += [Store(combined, (b.index(half), b.index(i), at), one, mask) for i, one in enumerate(sums)]
            return Block(tuple(stores))

        body = self._over_vectors(length + size - step, piece)
        inside = ((one, b.both(*b.inside(b.add(row, i), w.source[0]))) for i, one in enumerate(valid))
        return bind([(row, b.subtract(b.multiply(y, w.strides[0]), w.begins[0])), *inside], body)

    def _combine_columns(self, combined: Buffer, channel: Expression) -> Statement:
        """Return the loops over rows and vectors of pieces."""
        size, step, lanes, row = self.transform.inputs, self.transform.step, self.lanes, Variable("i")

        def vector(number: int, count: int, start: Expression) -> list[Expression]:
            places = (ramp(b.add(b.multiply(start, step), v * lanes), lanes) for v in range(step))
            return deinterleave([Load(combined, (b.index(number), row, place)) for place in places], count)

        def columns(start: Expression, _: int) -> Statement:
            at, first = ramp(self._in_images(start, channel), lanes), b.multiply(row, size)

            def stores(values: list[Expression]) -> Statement:
                sums = enumerate(self.transform.input_sums(values))
                return Block(tuple(Store(self.images, (b.add(first, j), at), one) for j, one in sums))

            return bound("c", [*vector(0, step, start), *vector(1, size - step, start)], stores)

        return loops_over([(row, b.index(size))], tiles(self.width, lanes, columns, name="vector"))

    # ---- Products and output ----

    def _multiply(self, sums: Buffer, group: Expression, columns: int) -> Statement:
        """Return ``sums[p] = weights[p] x images[p]`` for each of the products p."""
        product, number = Variable("product"), Variable("tile")

        def panel(begin: Expression, vectors: int) -> Statement:
            shape = replace(self.plan.tile, vectors=vectors)
            body = self.split.choose(
                number, lambda rows: self._channels(replace(shape, rows=rows), sums, product, begin, number)
            )
            return loops_over([(number, b.index(self.split.count))], body)

        panels = tiles(self.vectors, self.plan.tile.vectors, panel, name="panel")
        return loops_over([(product, b.index(self.transform.products))], panels, self.kind)

    def _channels(
        self, shape: RegisterTile, sums: Buffer, product: Expression, panel: Expression, number: Expression
    ) -> Statement:
        """Return the sums of a tile of output channels and the pieces from vector ``panel`` on."""
        depth, lanes, inputs = Reduced(Variable("channel"), self.plan.inputs), self.lanes, self.plan.inputs
        first, begin = self.split.begin(number), b.multiply(panel, lanes)
        base = b.add(b.multiply(product, self.plan.outputs * inputs), b.add(b.multiply(first, inputs), self.first))

        def left(row: int) -> Expression:
            return Load(self.weights, (b.add(base, b.add(b.multiply(depth.variable, shape.rows), row)),))

        def right(vector: int) -> Expression:
            return Load(
                self.images, (product, ramp(self._in_images(b.add(begin, vector * lanes), depth.variable), lanes))
            )

        def sum_at(row: int, vector: int) -> tuple[Expression, ...]:
            return product, ramp(self._in_images(b.add(begin, vector * lanes), b.add(first, row)), lanes)

        ahead = Ahead(self.weights, b.add(base, shape.rows * inputs), shape.rows * shape.unroll, self.line)
        start, finish = clear(shape, b.constant(0, "float32")), store_into(shape, sums, sum_at)
        return accumulate(shape, FLOAT32, start, [depth], left, right, finish, ahead=ahead, exact=EXACT_TERMS)

    def _transform_output(self, sums: Buffer, group: Expression, columns: int) -> Statement:
        """Return the loop over output channels: back to pixels in rows, then through the epilogue into the output."""
        m, lanes, channel, vector = self.transform.outputs, self.lanes, Variable("output"), Variable("vector")
        pixels, first = scratch("pixels", "float32", m, self.width * m + lanes), b.multiply(vector, lanes)

        def stored(row: Expression, values: list[Expression]) -> Statement:
            begins = (b.add(b.multiply(first, m), v * lanes) for v in range(m))
            stores = zip(begins, interleave(values), strict=True)
            return Block(tuple(Store(pixels, (row, ramp(begin, lanes)), value) for begin, value in stores))

        at = ramp(self._in_sums(first, columns, channel), lanes)
        back = self._out_of_sums(sums, at, stored, [lanes])
        rows = self._lines(lambda *line: self._finish(pixels, channel, *line))
        body = Block((loops_over([(vector, b.index(self.vectors))], back), rows))
        return loops_over([(channel, b.index(self.plan.outputs))], allocate((pixels,), body), self.kind)

    def _finish(
        self, pixels: Buffer, channel: Expression, number: Expression, image: Expression, y: Expression
    ) -> Statement:
        """Return the loop over the rows of pixels of a row of pieces."""
        m, lanes, inner, row = self.transform.outputs, self.lanes, Variable("inner"), Variable("row")
        (height, width), begin = self.windows.target, b.multiply(number, self.plan.grid[2] * m)

        def piece(start: Expression, _: int, last: int) -> Statement:
            total = Load(pixels, (inner, ramp(b.add(begin, start), lanes)))
            mask = between(ramp(start, lanes), width, low=False, high=last + lanes > width)
            return Block(
                tuple(self.convolution.epilogue.stores([image, channel, row, ramp(start, lanes)], total, mask))
            )

        body = self._over_vectors(width, piece)
        body = If(b.less(row, height), body) if height % m else body
        return loops_over([(inner, b.index(m))], Let(row, b.add(y, inner), body))
