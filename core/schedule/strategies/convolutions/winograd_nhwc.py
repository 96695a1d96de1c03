"""3x3 convolutions by Winograd's algorithm with channels last, of images of any extents, known or not.

Pieces of all images are counted through, and blocks of them are transformed, multiplied and transformed back while they
lie in the second-level cache; vectors are of channels, so that no element changes its lane. In bfloat16, by
F(2 x 2, 3 x 3) alone, transformed pieces and weights are rounded for products of pairs, whose sums are float32:
rounding there costs half a bit more than rounding the factors of the convolution itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.parameters import ContractionParameters, of_family
from graft.core.schedule.primitives.statements import column_mask, ramp, scratch
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.accumulation import Begin, Reduced, accumulate, clear, store_into
from graft.core.schedule.products.borders import bordered
from graft.core.schedule.products.fetching import Ahead
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tiling import RegisterTile, lanes_of
from graft.core.schedule.strategies.convolutions.direct_nhwc import pair_cycles
from graft.core.schedule.strategies.convolutions.winograd_blocks import (
    DOT,
    IN_PAIRS,
    ImageInPieces,
    Plan,
    chosen_plan,
    taken_apart,
)
from graft.core.schedule.strategies.convolutions.winograd_cost import (
    INPUT_CYCLES,
    MIN_CHANNELS,
    MIN_LANES,
    MIN_PARALLEL_BLOCKS,
    OUTPUT_CYCLES,
)
from graft.core.schedule.strategies.convolutions.winograd_nchw import EXACT_TERMS
from graft.core.schedule.strategies.convolutions.winograd_transform import WINDOW, Transform
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy, of_stages
from graft.core.tensor_ir.ir import (
    Bitcast,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Stage,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate, bind, bound
from graft.core.types import FLOAT32, element_bits

TASKS = 4
"""Blocks that there should be for several threads, where it is not known how many there are."""

_Element = Callable[[Expression, Expression], Expression]
_Sums = Callable[[Sequence[Expression]], list[Expression]]
_Stored = Callable[[Expression, list[Expression]], Statement]


def schedule_winograd_last(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return a kernel by Winograd's algorithm, with both bodies where extents vary; None if that never pays."""
    own = taken_apart(kernel, stages, target)
    plan = None if own is None else chosen_plan(own, target)
    if own is None or plan is None:
        return None
    name, near = own.weights.name, np.empty(0, np.float32 if plan.width == 1 else np.int32)
    if own.direct is not None:
        name, near = own.direct.panels.buffer.name, own.direct.panels.packed(own.direct.elements)
    contents = np.concatenate([near, plan.packed(kernel.constants[own.weights])])
    packed = Buffer(name, str(contents.dtype), (b.index(contents.size),), None, "host", 64)
    if own.direct is not None:
        own = replace(own, direct=replace(own.direct, panels=replace(own.direct.panels, buffer=packed)))
    loops = _Loops(own, plan, packed, near.size, target)
    knobs = {"pieces": plan.transform.outputs, "block": plan.most, "rows": plan.tile.rows,
             "vectors": plan.tile.vectors, **({"from_pixels": plan.least} if own.direct else {})}  # fmt: skip

    def function() -> Function:
        return loops.layout.function(kernel.function(lower_loops(loops.body()), {own.weights: packed}))

    return Scheduled(function, {own.weights: contents}, knobs=knobs)


class _Loops:
    """Builds the loops: images ``[product, piece, input channel]`` and sums ``[product, piece, output channel]``."""

    def __init__(self, own: ImageInPieces, plan: Plan, weights: Buffer, first: int, target: Target) -> None:
        self.convolution, self.plan, self.weights, self.first, self.target = own, plan, weights, first, target
        self.transform, self.lanes, self.windows = plan.transform, plan.tile.lanes, own.found.windows
        self.count, self.rows, self.columns, _ = own.epilogue.anchor.buffer.shape
        self.down, self.across, self.pieces = Variable("pieces_down"), Variable("pieces_across"), Variable("pieces")
        self.size, self.begin, self.own = Variable("size"), Variable("begin"), Variable("own")
        self.line = target.machine.cache(2).line
        self.layout = Layout(Simplifier())
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
        half, image = plan.tile.rows // 2, self.convolution.image
        filled = b.multiply(b.divide(b.add(self.pieces, half - 1), half), half)
        cost = b.add(b.multiply(filled, ceil(plan.by_piece)), ceil(plan.once))
        pays = b.less(cost, b.multiply(pixels, int(plan.by_pixel)))
        if not self.target.machine.masks:  # there must be an element to read in place of what is beyond a side
            pays = b.both(pays, b.greater(b.multiply(image.shape[1], image.shape[2]), 0))
        return bind(known, If(pays, self._blocks(), direct.loops(self.target, self.layout)))

    def _blocks(self) -> Statement:
        """Return the loop over blocks of pieces, each one thread's; of few, all threads work on one after the other.

        In float32, and where extents vary, several threads get smaller blocks of few pieces instead.
        """
        plan, block, number, rows = self.plan, Variable("block"), b.subtract(self.size, 1), self.plan.tile.rows
        size: Expression = b.index(plan.most)
        is_apart = self.convolution.direct is not None or plan.width == 1
        if is_apart:
            tasks = self.target.threads or TASKS
            rounds = b.maximum(b.divide(b.add(self.pieces, tasks * plan.most - 1), tasks * plan.most), 1)
            each = b.multiply(rounds, tasks * rows)  # so many blocks that each thread has as many as any other
            size = b.multiply(b.divide(b.subtract(b.add(self.pieces, each), 1), each), rows)
        else:
            is_apart = self.convolution.pieces(self.transform) > (MIN_PARALLEL_BLOCKS - 1) * plan.most
        known = [
            (self.begin, b.multiply(block, self.size)),
            (self.own, b.minimum(b.subtract(self.pieces, self.begin), self.size)),
        ]
        phases: Statement = bind(known, Block((self._transform_input(), self._over_groups())))
        phases = allocate((self.images,), phases) if is_apart else phases
        count = b.divide(b.add(self.pieces, number), self.size)
        loop = Let(self.size, size, For(block, count, "parallel" if is_apart else "serial", phases))
        return loop if is_apart else allocate((self.images,), loop)

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
        w, piece, inputs = self.windows, Variable("piece"), self.transform.inputs
        image, y, x, top, left = (Variable(name) for name in ("image", "y", "x", "top", "left"))
        limits: list[Expression] = []
        for place, axis in ((top, 1), (left, 2)):
            extent = self.convolution.image.shape[axis]
            limits += [b.greater_equal(place, 0), b.less_equal(b.add(place, inputs), extent)]
        inside = b.all_of(limits)
        assert inside is not None, "no limits"
        whole, cut = (self._transformed(piece, (image, top, left), checked) for checked in ((), (1, 2)))
        begins = zip((top, left), (y, x), w.strides, w.begins, strict=True)
        known = [(own, b.subtract(b.multiply(pixel, stride), begin)) for own, pixel, stride, begin in begins]
        body = self._at_piece(piece, (image, y, x), bind(known, If(inside, whole, cut)))
        return For(piece, b.multiply(self._halves(), self.plan.tile.rows // 2), "parallel", body)

    def _transformed(self, piece: Expression, at: tuple[Expression, ...], checked: tuple[int, ...]) -> Statement:
        """Return the loop over vectors of channels of one piece: its columns are combined, then the rows of these."""
        (image, top, left), step, lanes, size = at, Variable("step"), self.lanes, self.transform.inputs
        # The last vector ends with the last channel, and of fewer channels than a vector the rest is zero.
        first = b.minimum(b.multiply(step, lanes), b.index(max(self.plan.inputs - lanes, 0)))
        channels, own = ramp(first, lanes), ramp(self._in_images(piece, first), lanes)
        mask = column_mask(first, self.plan.inputs, lanes) if self.plan.inputs < lanes else None

        def pixel(row: Expression, column: Expression) -> Expression:
            place = (image, b.add(top, row), b.add(left, column), channels)
            loaded = bordered(self.convolution.image, place, checked, mask, masks=self.target.machine.masks)
            return b.cast(loaded, "float32")

        def stored(row: Expression, sums: list[Expression]) -> Statement:
            first, values = b.multiply(row, size), sums if self.plan.width == 1 else map(rounded, sums)
            return Block(tuple(Store(self.images, (b.add(first, j), own), value) for j, value in enumerate(values)))

        body = self._both_ways(pixel, self.transform.input_sums, size, stored)
        return For(step, b.index(-(-self.plan.inputs // lanes)), "serial", body)

    def _both_ways(self, element: _Element, sums: _Sums, results: int, stored: _Stored) -> Statement:
        """Return the loop over columns of a square, which are combined, and that over the ``results`` rows of these."""
        size, lane = self.transform.inputs, ramp(0, self.lanes)
        half, row, column = scratch("half", "float32", results, size, self.lanes), Variable("i"), Variable("j")

        def down(values: list[Expression]) -> Statement:
            return Block(tuple(Store(half, (b.index(i), column, lane), one) for i, one in enumerate(sums(values))))

        def across(values: list[Expression]) -> Statement:
            return bound("r", sums(values), lambda values: stored(row, values))

        columns = bound("d", [element(b.index(i), column) for i in range(size)], down)
        rows = bound("c", [Load(half, (row, b.index(j), lane)) for j in range(size)], across)
        first, second = For(column, b.index(size), "serial", columns), For(row, b.index(results), "serial", rows)
        return allocate((half,), Block((first, second)))

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
        return For(product, b.index(self.transform.products), "serial", panels)

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
        loop = For(number, whole, "serial", tile(rows, b.multiply(number, rows)))
        return Block((loop, If(b.greater(rest, 0), tile(rows // 2, b.multiply(whole, rows)))))

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
        piece, lanes, size = Variable("piece"), self.lanes, self.transform.inputs
        image, y, x = (Variable(name) for name in ("image", "y", "x"))
        epilogue, channels = self.convolution.epilogue, self.convolution.found.window.outputs

        def inside(place: Expression, extent: Expression, body: Statement) -> Statement:
            is_whole = isinstance(extent, Constant) and int(extent.value) % self.transform.outputs == 0
            return body if is_whole else If(b.less(place, extent), body)

        def one_vector(column: Expression, count: int) -> Statement:
            own, outputs = ramp(self._in_sums(piece, columns, column), lanes), b.add(group, column)
            mask = column_mask(outputs, channels, lanes) if count < lanes else None

            def element(row: Expression, number: Expression) -> Expression:
                return Load(sums, (b.add(b.multiply(row, size), number), own))

            def stored(row: Expression, pixels: list[Expression]) -> Statement:
                stores: list[Statement] = []
                for number, value in enumerate(pixels):
                    place = b.add(x, number)
                    point = [image, b.add(y, row), place, ramp(outputs, lanes)]
                    one = Block(tuple(epilogue.stores(point, value, mask)))
                    stores.append(inside(place, self.columns, one) if number else one)
                return inside(b.add(y, row), self.rows, Block(tuple(stores)))

            return self._both_ways(element, self.transform.output_sums, self.transform.outputs, stored)

        vectors = tiles(min(columns, channels), lanes, one_vector, name="vector")
        return For(piece, self.own, "serial", self._at_piece(piece, (image, y, x), vectors))


def _applies_to_any(anchor: Anchor, target: Target) -> Answer:
    if of_family(anchor.parameters, ContractionParameters) is not None or target.precision not in ("float32", "bf16"):
        return Reject("accuracy", "sums of products are wanted")
    found, in_pairs = anchor.convolution, target.precision == "bf16"
    if found is None:
        return OTHER_FORM
    window, lanes = found.window, lanes_of("float32", target)
    w, strides = window.windows, [(1, 1)] if in_pairs else [(1, 1), (2, 2)]
    if window.groups != 1 or w.kernel != (WINDOW, WINDOW) or w.strides not in strides or max(w.dilations) > 1:
        pixels = "one pixel" if in_pairs else "one or two pixels"
        return Reject("shape", f"no convolution of 3 x 3 windows that move by {pixels}, without groups")
    if not window.reads_channels_last or not window.stores_channels_last:
        return Reject("layout", "channels are not last")
    if window.inputs < MIN_CHANNELS or lanes < MIN_LANES:
        return Reject("shape", "channels are few, or vectors short")
    if in_pairs and (window.inputs % lanes or window.outputs % lanes):
        return Reject("shape", "channels do not fill whole vectors")
    return True


def _applies(anchor: Anchor, target: Target) -> Answer:
    if not _is_in_pairs(anchor, target):
        return _applies_to_any(anchor, target)
    found = anchor.convolution
    if found is None or found.image("float32", "bfloat16") is None:
        return Reject("dtype", "no bfloat16 image")
    if 0 in found.windows.source:  # there must be an element to read in place of what is beyond a side
        return Reject("shape", "the image is empty")
    return _applies_to_any(anchor, target)


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return _is_in_pairs(anchor, target)


def _is_in_pairs(anchor: Anchor, target: Target) -> bool:
    """Whether extents are known, and images are stored in bfloat16."""
    return target.precision == "bf16" and not anchor.varies


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles of one image in bfloat16; in float32 the plan decides when it is built."""
    if not _is_in_pairs(anchor, target):
        return None
    found = anchor.convolution
    assert found is not None, anchor.kernel.name
    window = found.window
    (size,), stride = IN_PAIRS, window.windows.strides[0]
    transform, lanes = Transform(size, stride), lanes_of("float32", target)
    pieces = prod(-(-extent // size) for extent in window.windows.target)
    moved = window.inputs * INPUT_CYCLES[stride][size] + window.outputs * OUTPUT_CYCLES[stride][size]
    return pair_cycles(found, pieces, transform.products, target) + pieces * moved / lanes


STRATEGY = Strategy(
    "winograd_nhwc",
    CONVOLUTIONS,
    of_stages(schedule_winograd_last),
    _applies,
    rounds=_rounds,
    cost=_cost,
    varies=None,
    switch="winograd",
)
"""Takes convolutions that `direct_nhwc` takes, too, and, where extents vary, sums those of few pixels as it does."""
