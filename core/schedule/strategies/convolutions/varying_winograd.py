"""3x3 convolutions by Winograd's algorithm of images whose extents are known only when a kernel runs; channels last.

Pieces of all images are counted through, and blocks of them are transformed, multiplied and transformed back while they
lie in the second-level cache; vectors are of channels, so that no element changes its lane. Transformed weights are
larger than those of the window and are read for every block: few pixels are better summed directly, and a kernel
has both bodies. Which of the two runs is asked at run time: a model of cycles gives what each costs for a piece, for a
pixel, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.parameters import ContractionParameters, of_family
from graft.core.schedule.primitives.statements import ramp, scratch
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.accumulation import Ahead, Reduced, accumulate, clear, store_into
from graft.core.schedule.products.borders import bordered
from graft.core.schedule.products.tiling import RegisterTile, lanes_of, ranked_tiles
from graft.core.schedule.strategies.convolutions.varying_convolution import DirectSums, direct_sums
from graft.core.schedule.strategies.convolutions.winograd_cost import (
    DIRECT_CYCLES,
    INPUT_CYCLES,
    MIN_CHANNELS,
    MIN_LANES,
    OUTPUT_CYCLES,
    PRODUCT_CYCLES,
)
from graft.core.schedule.strategies.convolutions.winograd_nchw import EXACT_TERMS
from graft.core.schedule.strategies.convolutions.winograd_transform import POINTS, WINDOW, Transform
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy, of_stages
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import (
    Block,
    Buffer,
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
from graft.core.types import FLOAT32

USUAL_WORK = 4096 * 64 * 64
"""Pixels x channels x channels that a layer is taken to have: where channels double, networks halve their images."""
CACHE_SHARE = 1 / 2
"""What a block takes of the second-level cache."""
LEAST_PIECES, MOST_PIECES = 32, 96
"""Pieces of a block: the weights are read for each of them."""
MOST_ROWS = 16
"""Pieces of a register tile at the most, an even number: behind whole tiles there may be half a one."""
NEAR_SHARE = 0.7
"""Of the first-level cache: the weights of a tile for one product stay there for all pieces of a block."""
FAR_SHARE = 1 / 2
"""Of the bandwidth of memory, what there is for transformed weights that few pieces wait for."""
TASKS = 4
"""Blocks that there should be for several threads."""

_Element = Callable[[Expression, Expression], Expression]
_Sums = Callable[[Sequence[Expression]], list[Expression]]
_Stored = Callable[[Expression, list[Expression]], Statement]


def schedule_winograd(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return a kernel with both bodies; None if it is no such convolution, or the algorithm never pays."""
    direct = direct_sums(kernel, stages, target)
    if direct is None or direct.epilogue.anchor.value.type != FLOAT32:
        return None
    window = direct.found.window
    plans = (_Plan.of(Transform(pieces, window.windows.strides[0]), window, target)
             for pieces in POINTS[window.windows.strides[0]])  # fmt: skip
    usual = USUAL_WORK // (window.inputs * window.outputs)
    plan = min((plan for plan in plans if plan.pays), key=lambda plan: plan.cycles(usual), default=None)
    if plan is None:
        return None
    weights = kernel.constants[direct.elements.weights]
    near = direct.panels.packed(direct.elements)
    contents = np.concatenate([near, plan.packed(weights)])
    both = replace(direct.panels.buffer, shape=(b.index(contents.size),))
    direct = replace(direct, panels=replace(direct.panels, buffer=both))
    loops = _Loops(direct, plan, both, near.size, target)
    knobs = {"pieces": plan.transform.outputs, "from_pixels": plan.least, "rows": plan.tile.rows,
             "vectors": plan.tile.vectors}  # fmt: skip

    def function() -> Function:
        made = kernel.function(lower_loops(loops.body()), {direct.elements.weights: both})
        return loops.layout.function(made)

    return Scheduled(
        function,
        {direct.elements.weights: contents},
        knobs=knobs,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A size of pieces, the register tile, the ``most`` pieces of a block; cycles by piece, by pixel directly, once."""

    transform: Transform
    tile: RegisterTile
    inputs: int
    outputs: int
    most: int
    by_piece: float
    by_pixel: float
    once: float

    @classmethod
    def of(cls, transform: Transform, window: Window, target: Target) -> _Plan:
        """Return the plan for a window."""
        lanes, inputs, outputs = lanes_of("float32", target), window.inputs, window.outputs
        ranked = (tile for _, tile in ranked_tiles(MOST_PIECES, outputs, "float32", target))
        tiles = (replace(tile, rows=tile.rows // 2 * 2) for tile in ranked if 2 <= tile.rows <= MOST_ROWS)
        near = NEAR_SHARE * target.machine.working_set(1)
        tile = next(tile for tile in tiles if tile.vectors == 1 or 4 * inputs * tile.columns <= near)
        each = transform.products * 4 * (inputs + outputs)
        fitting = int(CACHE_SHARE * target.machine.working_set(2)) // each
        most = min(max(fitting, LEAST_PIECES), MOST_PIECES) // tile.rows * tile.rows
        weights = inputs * outputs
        into, out = (cycles[transform.stride][transform.outputs] for cycles in (INPUT_CYCLES, OUTPUT_CYCLES))
        by_piece = (transform.products * weights * PRODUCT_CYCLES + inputs * into + outputs * out) / lanes
        by_pixel = WINDOW**2 * weights * DIRECT_CYCLES / lanes
        once = 4 * weights * (transform.products - WINDOW**2) / (FAR_SHARE * target.machine.far.bandwidth)
        return cls(transform, tile, inputs, outputs, most, by_piece, by_pixel, once)

    @property
    def pays(self) -> bool:
        """Whether it is faster for a large image."""
        return self.by_piece < self.by_pixel * self.transform.outputs**2

    @property
    def least(self) -> int:
        """The pixels from which on it is faster, where pieces are whole."""
        return ceil(self.once / (self.by_pixel - self.by_piece / self.transform.outputs**2))

    def cycles(self, pixels: int) -> float:
        """Return the cycles of so many pixels."""
        return self.once + self.by_piece * -(-pixels // self.transform.outputs**2)

    def packed(self, weights: np.ndarray) -> np.ndarray:
        """Return the transformed weights: for each product, panels of output channels, each ``[channels, width]``."""
        return self.transform.packed_weights(weights, [*range(0, self.outputs, self.tile.columns), self.outputs])


class _Loops:
    """Builds the loops: images ``[product, piece, input channel]`` and sums ``[product, piece, output channel]``."""

    def __init__(self, direct: DirectSums, plan: _Plan, weights: Buffer, first: int, target: Target) -> None:
        self.direct, self.plan, self.weights, self.first, self.target = direct, plan, weights, first, target
        self.epilogue, self.transform, self.lanes = direct.epilogue, plan.transform, plan.tile.lanes
        self.windows, self.image = direct.found.windows, direct.elements.image
        self.count, self.rows, self.columns, _ = direct.epilogue.anchor.buffer.shape
        self.down, self.across, self.pieces = Variable("pieces_down"), Variable("pieces_across"), Variable("pieces")
        self.size, self.begin, self.own = Variable("size"), Variable("begin"), Variable("own")
        self.line = target.machine.cache(2).line
        self.layout = Layout(Simplifier())
        self.images, self.sums = self._matrices("images", plan.inputs), self._matrices("sums", plan.outputs)

    def body(self) -> Statement:
        """Return both bodies, and the question which of them is to run."""
        plan, m = self.plan, self.transform.outputs
        pixels = b.multiply(self.count, b.multiply(self.rows, self.columns))
        half = plan.tile.rows // 2
        filled = b.multiply(b.divide(b.add(self.pieces, half - 1), half), half)
        cost = b.add(b.multiply(filled, ceil(plan.by_piece)), ceil(plan.once))
        pays = b.less(cost, b.multiply(pixels, int(plan.by_pixel)))
        if not self.target.machine.masks:  # there must be an element to read in place of what is beyond a side
            pays = b.both(pays, b.greater(b.multiply(self.image.shape[1], self.image.shape[2]), 0))
        known = [
            (self.down, b.divide(b.add(self.rows, m - 1), m)),
            (self.across, b.divide(b.add(self.columns, m - 1), m)),
            (self.pieces, b.multiply(self.count, b.multiply(self.down, self.across))),
        ]
        return bind(known, If(pays, self._blocks(), self.direct.loops(self.target.machine, self.layout)))

    def _blocks(self) -> Statement:
        """Return the loop over blocks of pieces; several threads get smaller ones of few pieces."""
        plan, block = self.plan, Variable("block")
        tasks = 1 if self.target.threads == 1 else TASKS
        share = b.divide(b.add(self.pieces, tasks * plan.tile.rows - 1), tasks * plan.tile.rows)
        size = b.minimum(b.multiply(share, plan.tile.rows), b.index(plan.most))
        begin = b.multiply(block, self.size)
        own = b.minimum(b.subtract(self.pieces, self.begin), self.size)
        phases: Statement = Block((self._transform_input(), self._multiply(), self._transform_output()))
        phases = allocate((self.images, self.sums), phases)
        count = b.divide(b.add(self.pieces, b.subtract(self.size, 1)), self.size)
        loop = For(block, count, "parallel", bind([(self.begin, begin), (self.own, own)], phases))
        return Let(self.size, size, loop)

    def _matrices(self, name: str, columns: int) -> Buffer:
        """Return memory for a matrix of each product: rows of pieces, and a line between equal places of any two."""
        return scratch(name, "float32", self.transform.products, self.plan.most * (columns + self.lanes) + self.lanes)

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
            limits += [b.greater_equal(place, 0), b.less_equal(b.add(place, inputs), self.image.shape[axis])]
        inside = b.all_of(limits)
        assert inside is not None, "no limits"
        whole, cut = (self._transformed(piece, (image, top, left), checked) for checked in ((), (1, 2)))
        begins = zip((top, left), (y, x), w.strides, w.begins, strict=True)
        known = [(own, b.subtract(b.multiply(pixel, stride), begin)) for own, pixel, stride, begin in begins]
        body = self._at_piece(piece, (image, y, x), bind(known, If(inside, whole, cut)))
        return For(piece, b.multiply(self._halves(), self.plan.tile.rows // 2), "serial", body)

    def _transformed(self, piece: Expression, at: tuple[Expression, ...], checked: tuple[int, ...]) -> Statement:
        """Return the loop over vectors of channels of one piece: its columns are combined, then the rows of these."""
        (image, top, left), step, lanes, size = at, Variable("step"), self.lanes, self.transform.inputs
        channels = ramp(b.multiply(step, lanes), lanes)
        own = ramp(b.add(b.multiply(piece, self.plan.inputs + lanes), b.multiply(step, lanes)), lanes)

        def pixel(row: Expression, column: Expression) -> Expression:
            place = (image, b.add(top, row), b.add(left, column), channels)
            return bordered(self.image, place, checked, None, masks=self.target.machine.masks)

        def stored(row: Expression, sums: list[Expression]) -> Statement:
            first = b.multiply(row, size)
            return Block(tuple(Store(self.images, (b.add(first, j), own), value) for j, value in enumerate(sums)))

        body = self._both_ways(pixel, self.transform.input_sums, size, stored)
        return For(step, b.index(self.plan.inputs // lanes), "serial", body)

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

    def _multiply(self) -> Statement:
        """Return ``sums[p] = images[p] x weights[p]`` for each of the products p, in the order of the weights."""
        product = Variable("product")

        def panel(begin: Expression, columns: int) -> Statement:
            return self._product(product, begin, columns // self.lanes)

        panels = tiles(self.plan.outputs, self.plan.tile.columns, panel, name="panel")
        return For(product, b.index(self.transform.products), "serial", panels)

    def _product(self, product: Expression, begin: Expression, vectors: int) -> Statement:
        """Return the tiles of one product and one panel of output channels from ``begin`` on."""
        number, rows = Variable("tile"), self.plan.tile.rows
        shape, halves = replace(self.plan.tile, vectors=vectors), self._halves()
        whole, rest = b.divide(halves, 2), b.modulo(halves, 2)
        tiles = For(number, whole, "serial", self._tile(shape, product, begin, b.multiply(number, rows)))
        last = self._tile(replace(shape, rows=rows // 2), product, begin, b.multiply(whole, rows))
        return Block((tiles, If(b.greater(rest, 0), last)))

    def _tile(self, shape: RegisterTile, product: Expression, begin: Expression, row: Expression) -> Statement:
        """Return the sums of a tile of pieces from ``row`` on."""
        plan, lanes, depth = self.plan, self.lanes, Reduced(Variable("channel"), self.plan.inputs)
        panels = b.add(b.multiply(product, plan.inputs * plan.outputs), b.multiply(begin, plan.inputs))
        base = b.add(panels, self.first)

        def left(offset: int) -> Expression:
            place = b.multiply(b.add(row, offset), plan.inputs + lanes)
            return Load(self.images, (product, b.add(place, depth.variable)))

        def right(vector: int) -> Expression:
            place = b.add(base, b.add(b.multiply(depth.variable, shape.columns), vector * lanes))
            return Load(self.weights, (ramp(place, lanes),))

        def sum_at(offset: int, vector: int) -> tuple[Expression, ...]:
            place = b.add(b.multiply(b.add(row, offset), plan.outputs + lanes), b.add(begin, vector * lanes))
            return product, ramp(place, lanes)

        following = b.add(base, plan.inputs * shape.columns)
        ahead = Ahead(self.weights, following, shape.columns * shape.unroll, self.line)
        start, finish = clear(shape, b.constant(0, "float32")), store_into(shape, self.sums, sum_at)
        return accumulate(shape, FLOAT32, start, [depth], left, right, finish, ahead=ahead, exact=EXACT_TERMS)

    def _transform_output(self) -> Statement:
        """Return the loop over pieces: back to pixels, through the epilogue into the output."""
        piece, vector, lanes, size = Variable("piece"), Variable("vector"), self.lanes, self.transform.inputs
        image, y, x = (Variable(name) for name in ("image", "y", "x"))
        column = b.multiply(vector, lanes)
        own = ramp(b.add(b.multiply(piece, self.plan.outputs + lanes), column), lanes)

        def element(row: Expression, number: Expression) -> Expression:
            return Load(self.sums, (b.add(b.multiply(row, size), number), own))

        def stored(row: Expression, pixels: list[Expression]) -> Statement:
            stores: list[Statement] = []
            for number, value in enumerate(pixels):
                place = b.add(x, number)
                point = [image, b.add(y, row), place, ramp(column, lanes)]
                one = Block(tuple(self.epilogue.stores(point, value, None)))
                stores.append(If(b.less(place, self.columns), one) if number else one)
            return If(b.less(b.add(y, row), self.rows), Block(tuple(stores)))

        body = self._both_ways(element, self.transform.output_sums, self.transform.outputs, stored)
        vectors = For(vector, b.index(self.plan.outputs // lanes), "serial", body)
        return For(piece, self.own, "serial", self._at_piece(piece, (image, y, x), vectors))


def _applies(anchor: Anchor, target: Target) -> Answer:
    if target.precision != "float32" or of_family(anchor.parameters, ContractionParameters) is not None:
        return Reject("accuracy", "sums of products are wanted")
    if anchor.convolution is None:
        return OTHER_FORM
    window, lanes = anchor.convolution.window, lanes_of("float32", target)
    w = window.windows
    if window.groups != 1 or w.kernel != (WINDOW, WINDOW) or w.strides not in ((1, 1), (2, 2)) or max(w.dilations) > 1:
        return Reject("shape", "no convolution of 3 x 3 windows that move by one or two pixels, without groups")
    if not window.reads_channels_last or not window.stores_channels_last:
        return Reject("layout", "channels are not last")
    if window.inputs < MIN_CHANNELS or lanes < MIN_LANES or window.inputs % lanes or window.outputs % lanes:
        return Reject("shape", "channels are few, or do not fill whole vectors")
    return True


STRATEGY = Strategy(
    "varying_winograd", CONVOLUTIONS, of_stages(schedule_winograd), _applies, varies=True, switch="winograd"
)
"""Takes convolutions that `varying_convolution` takes, too, and sums those of few pixels as it does."""
