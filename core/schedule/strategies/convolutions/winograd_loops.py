"""3x3 convolutions by Winograd's algorithm, of images of any extents, known or not, with channels first or last.

Pieces of all images are counted through, and blocks of them are transformed, multiplied and transformed back while they
lie in the second-level cache; what is done for a channel becomes what is done for a vector of them by a step, and no
element changes its lane. Where channels come first, rows of pixels are transposed on their way (`winograd_rows`). In
bfloat16, by F(2 x 2, 3 x 3) alone, transformed pieces and weights are rounded for products of pairs, whose sums are
float32: rounding there costs half a bit more than rounding the factors of the convolution itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.statements import ramp, scratch
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.accumulation import Begin, Reduced, accumulate, clear, store_into
from graft.core.schedule.products.borders import bordered
from graft.core.schedule.products.fetching import Ahead
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.schedule.strategies.convolutions.direct_nhwc import direct_loops
from graft.core.schedule.strategies.convolutions.winograd_plan import (
    DOT,
    TASKS,
    ImageInPieces,
    Plan,
)
from graft.core.schedule.strategies.convolutions.winograd_rows import (
    Pieces,
    Run,
    fill,
    finish,
    pixel,
    strip,
)
from graft.core.schedule.strategies.convolutions.winograd_transform import (
    EXACT_TERMS,
)
from graft.core.tensor_ir.ir import (
    Bitcast,
    Block,
    Buffer,
    Constant,
    Expression,
    If,
    Let,
    Load,
    LoopKind,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate, bind, bound, loops_over
from graft.core.types import FLOAT32, element_bits

_Element = Callable[[Expression, Expression], Expression]
_Sums = Callable[[Sequence[Expression]], list[Expression]]
_Stored = Callable[[Expression, list[Expression]], Statement]


class Loops:
    """Builds the loops: images ``[product, piece, input channel]`` and sums ``[product, piece, output channel]``."""

    def __init__(self, own: ImageInPieces, plan: Plan, weights: Buffer, first: int, target: Target) -> None:
        self.convolution, self.plan, self.weights, self.first, self.target = own, plan, weights, first, target
        self.transform, self.lanes, self.windows = plan.transform, plan.tile.lanes, own.found.windows
        shape = own.epilogue.anchor.buffer.shape
        self.count, self.rows, self.columns = (shape[own.axis(number)] for number in (0, 2, 3))
        self.down, self.across, self.pieces = Variable("pieces_down"), Variable("pieces_across"), Variable("pieces")
        self.size, self.begin, self.own = Variable("size"), Variable("begin"), Variable("own")
        self.line = target.machine.cache(2).line
        self.layout = Layout(Simplifier())
        self.kind: LoopKind = "serial" if plan.apart else "parallel"
        self.images = self._matrices("images", "float32" if plan.width == 1 else "bfloat16", plan.inputs)

    def body(self) -> Statement:
        """Return the loops; where extents vary both bodies, and the question which of them is to run."""
        plan, m, direct = self.plan, self.transform.outputs, self.convolution.direct
        known = [
            (self.down, b.divide(b.add(self.rows, m - 1), m)),
            (self.across, b.divide(b.add(self.columns, m - 1), m)),
            (self.pieces, b.multiply(self.count, b.multiply(self.down, self.across))),
        ]
        if direct is None:
            return bind(known, self._blocks())
        pixels = b.multiply(self.count, b.multiply(self.rows, self.columns))
        half, source = plan.tile.rows // 2, [self.convolution.image.shape[axis] for axis in self._spatial]
        filled = b.multiply(b.divide(b.add(self.pieces, half - 1), half), half)
        cost = b.add(b.multiply(filled, ceil(plan.by_piece)), ceil(plan.once))
        pays = b.less(cost, b.multiply(pixels, int(plan.by_pixel)))
        if not self.target.machine.masks:  # there must be an element to read in place of what is beyond a side
            pays = b.both(pays, b.greater(b.multiply(*source), 0))
        return bind(known, If(pays, self._blocks(), direct_loops(direct, self.target, self.layout)))

    def _blocks(self) -> Statement:
        """Return the loop over blocks of pieces, each one thread's; of few, all threads work on one after the other.

        In float32, and where extents vary, several threads get smaller blocks of few pieces instead.
        """
        plan, block, number, rows = self.plan, Variable("block"), b.subtract(self.size, 1), self.plan.tile.rows
        size: Expression = b.index(plan.most)
        is_apart = plan.apart
        if is_apart and plan.is_cut:
            tasks = self.target.threads or TASKS
            part = rows if tasks == 1 else rows // 2  # behind whole tiles there may be half a one
            rounds = b.maximum(b.divide(b.add(self.pieces, tasks * plan.most - 1), tasks * plan.most), 1)
            each = b.multiply(rounds, tasks * part)  # so many blocks that each thread has as many as any other
            size = b.multiply(b.divide(b.subtract(b.add(self.pieces, each), 1), each), part)
        known = [
            (self.begin, b.multiply(block, self.size)),
            (self.own, b.minimum(b.subtract(self.pieces, self.begin), self.size)),
        ]
        phases: Statement = bind(known, self._phases())
        phases = allocate((self.images,), phases) if is_apart else phases
        count = b.divide(b.add(self.pieces, number), self.size)
        blocks = loops_over([(block, count)], phases, "parallel" if is_apart else "serial")
        whole = Let(self.size, size, blocks)
        return whole if is_apart else allocate((self.images,), whole)

    def _phases(self) -> Statement:
        """Return what is done with one block."""
        return Block((self._transform_input(), self._over_groups()))

    def _matrices(self, name: str, dtype: str, columns: int) -> Buffer:
        """Return memory for a matrix of each product: rows of pieces, an odd number of lines apart."""
        line = self._pad(dtype)
        lines = -(-self.plan.most * (columns + line) // line) | 1
        return scratch(name, dtype, self.transform.products, lines * line)

    def _pad(self, dtype: str) -> int:
        """Return the elements between rows of a matrix: a line of the cache."""
        return self.line * 8 // element_bits(dtype)

    def _in_images(self, piece: Expression, channel: Expression) -> Expression:
        """Return the place of a channel of a piece in a matrix of images."""
        return b.add(b.multiply(piece, self.plan.inputs + self._pad(self.images.dtype)), channel)

    def _in_sums(self, piece: Expression, columns: int, column: Expression) -> Expression:
        """Return the place of a column of a piece in a matrix of the sums of a group."""
        return b.add(b.multiply(piece, columns + self._pad("float32")), column)

    @property
    def _spatial(self) -> tuple[int, int]:
        """Where the image has its rows and columns."""
        layout = self.convolution.found.window.layout
        return layout.index(2), layout.index(3)

    def _pieces(self) -> Pieces:
        return Pieces(self.begin, self.own, self.down, self.across, self.transform)

    def _halves(self) -> Expression:
        """Return the number of half register tiles of a block; the last one repeats the last of all pieces."""
        half = self.plan.tile.rows // 2
        return b.divide(b.add(self.own, half - 1), half)

    def _at_piece(self, piece: Expression, at: Sequence[Variable], body: Statement) -> Statement:
        """Return ``body`` with the image and the first pixel of a piece in ``at``."""
        number, line = Variable("number"), Variable("line")
        known = [
            (number, b.minimum(b.add(self.begin, piece), b.subtract(self.pieces, 1))),
            (line, b.divide(number, self.across)),
            (at[0], b.divide(line, self.down)),
            (at[1], b.multiply(b.modulo(line, self.down), self.transform.outputs)),
            (at[2], b.multiply(b.modulo(number, self.across), self.transform.outputs)),
        ]
        return bind(known, body)

    # ---- Input ----

    def _transform_input(self) -> Statement:
        """Return the loop over pieces; one that lies inside of the image is read without masks."""
        if self.convolution.found.window.reads_channels_first:
            return self._transform_rows()
        w, piece, inputs = self.windows, Variable("piece"), self.transform.inputs
        image, y, x, top, left = (Variable(name) for name in ("image", "y", "x", "top", "left"))
        limits: list[Expression] = []
        for place, axis in zip((top, left), self._spatial, strict=True):
            extent = self.convolution.image.shape[axis]
            limits += [b.greater_equal(place, 0), b.less_equal(b.add(place, inputs), extent)]
        inside = b.all_of(limits)
        assert inside is not None, "no limits"
        whole, cut = (self._transformed(piece, (image, top, left), checked) for checked in ((), (1, 2)))
        begins = zip((top, left), (y, x), w.strides, w.begins, strict=True)
        known = [(own, b.subtract(b.multiply(pixel, stride), begin)) for own, pixel, stride, begin in begins]
        body = self._at_piece(piece, (image, y, x), bind(known, If(inside, whole, cut)))
        return loops_over([(piece, b.multiply(self._halves(), self.plan.tile.rows // 2))], body, "parallel")

    def _transformed(self, piece: Expression, at: tuple[Expression, ...], checked: tuple[int, ...]) -> Statement:
        """Return the loop over vectors of channels of one piece: its columns are combined, then the rows of these."""
        (image, top, left), inputs = at, self.plan.inputs

        def channel(own: Expression) -> Statement:
            mask = b.less(own, inputs) if inputs < self.lanes else None

            def element(row: Expression, column: Expression) -> Expression:
                place = (image, b.add(top, row), b.add(left, column), own)
                loaded = bordered(self.convolution.image, place, checked, mask, masks=self.target.machine.masks)
                return b.cast(loaded, "float32")

            return self._into_images(element, piece, own)

        return self._over_channels(lambda first: self._vector(lambda lane: channel(b.add(first, lane))))

    def _vector(self, body: Callable[[Expression], Statement]) -> Statement:
        """Return what is done for each lane of a vector of channels."""
        lane = Variable("lane")
        return lower_loops(taken(loops_over([(lane, b.index(self.lanes))], body(lane)), [Vectorize("lane")]))

    def _over_channels(self, body: Callable[[Expression], Statement]) -> Statement:
        """Return the loop over vectors of channels of the image; the last one ends with the last channel.

        Of fewer channels than a vector the rest is zero.
        """
        step, last = Variable("step"), b.index(max(self.plan.inputs - self.lanes, 0))
        vector = body(b.minimum(b.multiply(step, self.lanes), last))
        return loops_over([(step, b.index(-(-self.plan.inputs // self.lanes)))], vector, self.kind)

    def _into_images(self, element: _Element, piece: Expression, channel: Expression) -> Statement:
        """Return the transform of a channel of a piece, whose pixels are given."""
        own, size = self._in_images(piece, channel), self.transform.inputs

        def stored(row: Expression, sums: list[Expression]) -> Statement:
            first, values = b.multiply(row, size), sums if self.plan.width == 1 else map(rounded, sums)
            return Block(tuple(Store(self.images, (b.add(first, j), own), value) for j, value in enumerate(values)))

        return self._both_ways(element, self.transform.input_sums, size, stored)

    def _transform_rows(self) -> Statement:
        """Return the loops over channels and runs of pieces, whose pixels are put in a strip first."""
        size, step, image = self.transform.inputs, self.transform.step, self.convolution.image
        pixels, count, piece = strip("pixels", size, self.lanes), min(self.plan.inputs, self.lanes), Variable("piece")

        def channels(first: Expression) -> Statement:
            def run(own: Run) -> Statement:
                def transformed(lane: Expression) -> Statement:
                    def element(row: Expression, column: Expression) -> Expression:
                        return Load(pixels, pixel(pixels, row, b.add(b.multiply(piece, step), column), lane))

                    return self._into_images(element, b.add(own.piece, piece), b.add(first, lane))

                copy = fill(pixels, image, own, (first, count), self.transform, self.windows)
                return Block((copy, loops_over([(piece, own.count)], self._vector(transformed))))

            return allocate((pixels,), self._pieces().runs(size - step, step, run))

        return Block((self._over_channels(channels), self._rest_of_images()))

    def _rest_of_images(self) -> Statement:
        """Return zeros for the pieces of the last tile that do not exist, which are multiplied all the same."""
        product, rest = Variable("product"), Variable("rest")

        def zero(channel: Expression) -> Statement:
            place = self._in_images(b.add(self.own, rest), channel)
            return Store(self.images, (product, place), b.constant(0, self.images.dtype))

        count = b.subtract(b.multiply(self._halves(), self.plan.tile.rows // 2), self.own)
        body = self._over_channels(lambda first: self._vector(lambda lane: zero(b.add(first, lane))))
        return loops_over([(product, b.index(self.transform.products))], loops_over([(rest, count)], body), self.kind)

    def _both_ways(
        self, element: _Element, sums: _Sums, results: int, stored: _Stored, lanes: Sequence[int] = ()
    ) -> Statement:
        """Return the loop over columns of a square, which are combined, and that over the ``results`` rows of these.

        Elements are numbers, or vectors of ``lanes``.
        """
        size, lane = self.transform.inputs, [ramp(0, count) for count in lanes]
        half, row, column = scratch("half", "float32", results, size, *lanes), Variable("i"), Variable("j")

        def down(values: list[Expression]) -> Statement:
            return Block(tuple(Store(half, (b.index(i), column, *lane), one) for i, one in enumerate(sums(values))))

        def across(values: list[Expression]) -> Statement:
            return bound("r", sums(values), lambda values: stored(row, values))

        columns = bound("d", [element(b.index(i), column) for i in range(size)], down)
        rows = bound("c", [Load(half, (row, b.index(j), *lane)) for j in range(size)], across)
        loops = [loops_over([(column, b.index(size))], columns), loops_over([(row, b.index(results))], rows)]
        return allocate((half,), Block(tuple(loops)))

    # ---- Products and output ----

    def _over_groups(self) -> Statement:
        """Return the loop over groups of output channels: the products of one, then back to pixels."""

        def group(begin: Expression, columns: int) -> Statement:
            sums = self._matrices("sums", "float32", columns)
            phases = Block((self._multiply(sums, begin, columns), self._transform_output(sums, begin, columns)))
            return allocate((sums,), phases)

        return tiles(self.plan.outputs, self.plan.group, group, "parallel", "group")

    def _multiply(self, sums: Buffer, group: Expression, columns: int) -> Statement:
        """Return ``sums[p] = images[p] x weights[p]`` for each of the products p, in the order of the weights."""
        product, depth = Variable("product"), self.plan.depth
        begin = b.add(b.multiply(group, self.transform.products * depth), b.multiply(product, columns * depth))

        def panel(column: Expression, width: int) -> Statement:
            base = b.add(b.add(begin, b.multiply(column, depth)), self.first)
            return self._product(sums, product, base, columns, column, width // self.lanes)

        panels = tiles(columns, self.plan.tile.columns, panel, name="panel")
        return loops_over([(product, b.index(self.transform.products))], panels, self.kind)

    def _product(
        self, sums: Buffer, product: Expression, base: Expression, columns: int, column: Expression, vectors: int
    ) -> Statement:
        """Return the tiles of one product and one panel, whose weights begin at ``base``."""
        number, rows, lanes = Variable("tile"), self.plan.tile.rows, self.lanes

        def tile(height: int, row: Expression) -> Statement:
            def sum_at(offset: int, vector: int) -> tuple[Expression, ...]:
                place = self._in_sums(b.add(row, offset), columns, b.add(column, vector * lanes))
                return product, ramp(place, lanes)

            shape = replace(self.plan.tile, rows=height, vectors=vectors)
            return self._tile(shape, product, base, row, store_into(shape, sums, sum_at))

        whole, rest = b.divide(self._halves(), 2), b.modulo(self._halves(), 2)
        tiles_of_all = loops_over([(number, whole)], tile(rows, b.multiply(number, rows)))
        return Block((tiles_of_all, If(b.greater(rest, 0), tile(rows // 2, b.multiply(whole, rows)))))

    def _tile(
        self, shape: RegisterTile, product: Expression, base: Expression, row: Expression, finish: Begin
    ) -> Statement:
        """Return the sums of a tile of pieces from ``row`` on."""
        width, lanes, depth = self.plan.width, self.lanes, Reduced(Variable("term"), self.plan.depth)

        def left(offset: int) -> Expression:
            place = self._in_images(b.add(row, offset), b.multiply(depth.variable, width))
            if width == 1:
                return Load(self.images, (product, place))
            return Bitcast(Load(self.images, (product, ramp(place, width))), self.weights.dtype)

        def right(vector: int) -> Expression:
            place = b.add(base, b.add(b.multiply(depth.variable, shape.columns), vector * lanes))
            return Load(self.weights, (ramp(place, lanes),))

        following = b.add(base, depth.extent * shape.columns)
        ahead = Ahead(self.weights, following, shape.columns * shape.unroll, self.line)
        multiply = None if width == 1 else Multiply(DOT)
        start = clear(shape, b.constant(0, "float32"))
        return accumulate(
            shape, FLOAT32, start, [depth], left, right, finish, ahead=ahead, multiply=multiply, exact=EXACT_TERMS
        )

    def _transform_output(self, sums: Buffer, group: Expression, columns: int) -> Statement:
        """Return the loop over pieces: back to pixels, through the epilogue into the output."""
        if self.convolution.found.window.stores_channels_first:
            return self._transform_rows_back(sums, group, columns)
        piece, lanes = Variable("piece"), self.lanes
        image, y, x = (Variable(name) for name in ("image", "y", "x"))
        epilogue, channels = self.convolution.epilogue, self.convolution.found.window.outputs

        def inside(place: Expression, extent: Expression, body: Statement) -> Statement:
            is_whole = isinstance(extent, Constant) and int(extent.value) % self.transform.outputs == 0
            return body if is_whole else If(b.less(place, extent), body)

        def channel(column: Expression, is_cut: bool) -> Statement:
            output = b.add(group, column)

            def stored(row: Expression, pixels: list[Expression]) -> Statement:
                stores: list[Statement] = []
                for number, value in enumerate(pixels):
                    place = b.add(x, number)
                    one: Statement = Block(tuple(epilogue.stores([image, b.add(y, row), place, output], value, None)))
                    one = If(b.less(output, channels), one) if is_cut else one
                    stores.append(inside(place, self.columns, one) if number else one)
                return inside(b.add(y, row), self.rows, Block(tuple(stores)))

            return self._out_of_sums(sums, self._in_sums(piece, columns, column), stored)

        def one_vector(first: Expression, count: int) -> Statement:
            return self._vector(lambda lane: channel(b.add(first, lane), count < lanes))

        vectors = tiles(min(columns, channels), lanes, one_vector, name="vector")
        return loops_over([(piece, self.own)], self._at_piece(piece, (image, y, x), vectors), self.kind)

    def _out_of_sums(self, sums: Buffer, place: Expression, stored: _Stored, lanes: Sequence[int] = ()) -> Statement:
        """Return the way back to pixels of a piece, of what stands at a place of each matrix."""
        size = self.transform.inputs

        def element(row: Expression, number: Expression) -> Expression:
            return Load(sums, (b.add(b.multiply(row, size), number), place))

        return self._both_ways(element, self.transform.output_sums, self.transform.outputs, stored, lanes)

    def _transform_rows_back(self, sums: Buffer, group: Expression, columns: int) -> Statement:
        """Return the loops over vectors of channels and runs of pieces, whose pixels a strip has before the output."""
        m, piece = self.transform.outputs, Variable("piece")
        pixels, channels = strip("results", m, self.lanes), self.convolution.found.window.outputs

        def one_vector(column: Expression, count: int) -> Statement:
            def run(own: Run) -> Statement:
                def back(lane: Expression) -> Statement:
                    def stored(row: Expression, values: list[Expression]) -> Statement:
                        places = (pixel(pixels, row, b.add(b.multiply(piece, m), number), lane) for number in range(m))
                        return Block(tuple(Store(pixels, at, one) for at, one in zip(places, values, strict=True)))

                    place = self._in_sums(b.add(own.piece, piece), columns, b.add(column, lane))
                    return self._out_of_sums(sums, place, stored)

                pieces = loops_over([(piece, own.count)], self._vector(back))
                output = (b.add(group, column), count)
                return Block((pieces, finish(pixels, own, output, self.transform, self.convolution.epilogue)))

            return allocate((pixels,), self._pieces().runs(0, m, run))

        return tiles(min(columns, channels), self.lanes, one_vector, self.kind, "vector")
