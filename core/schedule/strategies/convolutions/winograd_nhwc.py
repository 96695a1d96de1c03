"""Winograd's algorithm F(2 x 2, 3 x 3) in bfloat16 for images with channels last.

The vectors of both transforms are of channels, so no element changes its lane. Transformed pieces and weights are
rounded to bfloat16 for sixteen products of matrices, whose sums are float32; rounding there costs half a bit more than
rounding the factors of the convolution itself. Rows of pieces form blocks that stay in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.narrowing import rounded, widened
from graft.core.schedule.parameters import ContractionParameters, of_family
from graft.core.schedule.primitives.statements import ramp, scratch, wide
from graft.core.schedule.products.accumulation import Reduced, accumulate, clear, store_into
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tiling import RegisterTile, choose_tile, lanes_of, split_evenly
from graft.core.schedule.strategies.convolutions.im2col_bf16 import Window, product_cycles, rounds, window_of
from graft.core.schedule.strategies.convolutions.winograd_transform import (
    WINDOW,
    Transform,
    in_columns,
    in_rows,
    over_blocks,
)
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_stages
from graft.core.tensor_ir.ir import Bitcast, Block, Buffer, Expression, For, If, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import allocate, bind, bound
from graft.core.types import FLOAT32
from graft.runtime.dtypes import numpy_dtype

TRANSFORM = Transform(2)
PIECE, INPUTS, PRODUCTS = TRANSFORM.outputs, TRANSFORM.inputs, TRANSFORM.products
CACHE_SHARE = 5 / 8
"""What a block takes of the second-level cache."""
MIN_PARALLEL_BLOCKS = 8
"""At least so many blocks are shared out among threads; of fewer, each is worked on by all threads together."""
INPUT_CYCLES, OUTPUT_CYCLES = 60, 50
"""Cycles to transform a vector of channels of a piece."""


def schedule_winograd_last(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return a bfloat16 convolution by Winograd's algorithm; None if it is none of 3 x 3, or would not gain."""
    window, epilogue = window_of(kernel, stages), epilogue_of(stages, kernel.outputs)
    if window is None or epilogue is None or _refusal(window, target) is not None:
        return None
    return _Scheduler(kernel, epilogue, window, _plan(window, target), target.machine.cache(1).line).scheduled()


def _refusal(window: Window, target: Target) -> Reject | None:
    """Return why the algorithm is not for a convolution; None if it is."""
    w, lanes = window.windows, lanes_of("float32", target)
    if w.kernel != (WINDOW, WINDOW) or w.strides != (1, 1) or w.dilations != (1, 1):
        return Reject("shape", "no windows of 3 x 3 that move by one pixel")
    if lanes == 1 or window.channels % lanes or window.shape[3] % lanes:
        return Reject("shape", "channels do not fill whole vectors")
    return None


def _cost(anchor: Anchor, target: Target) -> float:
    window = window_of(anchor.kernel, anchor.stages or ())
    assert window is not None, anchor.kernel.name
    lanes, outputs = lanes_of("float32", target), window.shape[3]
    pieces = -(-window.shape[1] // PIECE) * -(-window.shape[2] // PIECE)
    moved = pieces * (window.channels * INPUT_CYCLES + outputs * OUTPUT_CYCLES) / lanes
    return product_cycles(window, pieces, PRODUCTS, target) + moved


@dataclass(frozen=True, slots=True)
class _Plan:
    """``rows`` rows of ``across`` pieces form one of ``blocks`` blocks."""

    rows: int
    across: int
    blocks: int
    tile: RegisterTile

    @property
    def pieces(self) -> int:
        """The pieces of a block."""
        return self.rows * self.across


def _plan(window: Window, target: Target) -> _Plan:
    """Return blocks that fit the cache and of which the last is as full as possible."""
    _, height, width, outputs = window.shape
    down, across = -(-height // PIECE), -(-width // PIECE)
    tile = choose_tile(down * across, outputs, "int32", target)
    row_bytes = across * PRODUCTS * (2 * window.channels + 4 * tile.columns)
    most = max(1, min(down, int(CACHE_SHARE * target.machine.working_set(2)) // row_bytes))
    rows = min(range(most, most // 2, -1), key=lambda rows: -(-down // rows) * rows)
    tile = choose_tile(rows * across, outputs, "int32", target)
    return _Plan(rows, across, -(-down // rows), tile)


@dataclass(frozen=True, slots=True)
class _Scheduler:
    """Builds the loops: images ``[product, piece, channel]`` and sums ``[product, piece, column of a panel]``."""

    kernel: Kernel
    epilogue: Epilogue
    window: Window
    plan: _Plan
    line: int
    """The bytes of a cache line."""

    @property
    def _lanes(self) -> int:
        return self.plan.tile.lanes

    def scheduled(self) -> Scheduled:
        """Return the function, still to be built, and the transformed weights."""
        packed = self._packed_weights()
        weights = Buffer("transformed", "int32", (b.index(packed.size),))
        tile = self.plan.tile
        knobs = {"pieces": PIECE, "lines": self.plan.rows, "rows": tile.rows, "vectors": tile.vectors}
        own = self.window.weights
        return Scheduled(lambda: self.kernel.function(self._loops(weights), {own: weights}), {own: packed}, knobs=knobs)

    def _packed_weights(self) -> np.ndarray:
        """Return words of two channels: for each panel and product, ``[pairs of channels, columns]``."""
        weights, matrix = self.kernel.constants[self.window.weights], TRANSFORM.weight_matrix()
        square = np.kron(matrix, matrix).astype(np.float32)
        outputs, channels = weights.shape[:2]
        moved = weights.transpose(2, 3, 1, 0).reshape(WINDOW * WINDOW, -1)
        small = (square @ moved).astype(numpy_dtype("bfloat16")).view(np.uint16)
        pairs = small.reshape(PRODUCTS, channels // 2, 2, outputs).astype(np.uint32)
        words = (pairs[:, :, 0] | pairs[:, :, 1] << 16).view(np.int32)
        columns = self.plan.tile.columns
        panels = [words[:, :, begin : begin + columns].reshape(-1) for begin in range(0, outputs, columns)]
        return np.concatenate(panels)

    def _loops(self, weights: Buffer) -> Statement:
        """Return the loops over images and blocks."""
        images, count = self._matrices("images", "bfloat16", self.window.channels), self.window.shape[0]

        def phases(image: Expression, block: Expression) -> Statement:
            first = b.multiply(block, self.plan.rows)
            moved = self._transform_input(images, image, first)
            return Block((moved, self._over_panels(images, weights, image, first)))

        apart = self.plan.blocks * count >= MIN_PARALLEL_BLOCKS
        return over_blocks(count, self.plan.blocks, phases, (images,), apart)

    def _matrices(self, name: str, dtype: str, columns: int) -> Buffer:
        """Return memory for a matrix of each product; an odd number of cache lines lies between them."""
        line = self.line // (2 if dtype == "bfloat16" else 4)
        lines = -(-self.plan.pieces * columns // line) | 1
        return scratch(name, dtype, PRODUCTS, lines * line)

    def _at_piece(self, first: Expression, body: Statement, piece: Variable, at: Sequence[Variable]) -> Statement:
        """Return ``body`` with the first pixel of a piece of a block in ``at``."""
        line, column = b.divide(piece, self.plan.across), b.modulo(piece, self.plan.across)
        pixel = (b.multiply(b.add(first, line), PIECE), b.multiply(column, PIECE))
        return bind(zip(at, pixel, strict=True), body)

    # ---- Input ----

    def _transform_input(self, images: Buffer, image: Expression, first: Expression) -> Statement:
        """Return the loop over pieces; one that lies inside of the image is read without masks."""
        w, piece = self.window.windows, Variable("piece")
        y, x = Variable("y"), Variable("x")
        top, left = b.subtract(y, w.begins[0]), b.subtract(x, w.begins[1])
        limits: list[Expression] = []
        for place, extent in ((top, w.source[0]), (left, w.source[1])):
            limits += [b.less_equal(b.index(0), place), b.less_equal(b.add(place, INPUTS), extent)]
        inside = b.all_of(limits)
        assert inside is not None, "no limits"
        whole = self._transformed(images, piece, (image, top, left), masked=False)
        body = If(inside, whole, self._transformed(images, piece, (image, top, left), masked=True))
        return For(piece, b.index(self.plan.pieces), "parallel", self._at_piece(first, body, piece, (y, x)))

    def _transformed(self, images: Buffer, piece: Expression, at: tuple[Expression, ...], *, masked: bool) -> Statement:
        """Return the loop over vectors of channels of one piece."""
        (image, top, left), step, lanes = at, Variable("step"), self._lanes
        channels = ramp(b.multiply(step, lanes), lanes)
        pixels: list[Expression] = []
        for place in range(PRODUCTS):
            row, column = b.add(top, place // INPUTS), b.add(left, place % INPUTS)
            mask = None
            if masked:
                source = self.window.windows.source
                mask = b.all_of([*b.inside(row, source[0]), *b.inside(column, source[1])])
            switch = None if mask is None else wide(mask, lanes)
            pixels.append(widened(Load(self.window.source, (image, row, column, channels), switch)))
        own = ramp(b.add(b.multiply(piece, self.window.channels), b.multiply(step, lanes)), lanes)

        def stored(sums: list[Expression]) -> Statement:
            places = enumerate(sums)
            return Block(tuple(Store(images, (b.index(number), own), rounded(value)) for number, value in places))

        down, across = in_columns(TRANSFORM.input_sums, INPUTS), in_rows(TRANSFORM.input_sums, INPUTS)
        body = bound("d", pixels, lambda d: bound("c", down(d), lambda c: bound("r", across(c), stored)))
        return For(step, b.index(self.window.channels // lanes), "serial", body)

    # ---- Products and output ----

    def _over_panels(self, images: Buffer, weights: Buffer, image: Expression, first: Expression) -> Statement:
        """Return the loop over panels of output channels: products of one, then back to pixels."""

        def panel(begin: Expression, columns: int) -> Statement:
            sums, vectors = self._matrices("sums", "float32", columns), columns // self._lanes
            products = self._products(images, weights, sums, begin, vectors)
            return allocate((sums,), Block((products, self._transform_output(sums, image, first, begin, vectors))))

        return tiles(self.window.shape[3], self.plan.tile.columns, panel, "parallel", "panel")

    def _products(self, images: Buffer, weights: Buffer, sums: Buffer, begin: Expression, vectors: int) -> Statement:
        """Return ``sums[p] = images[p] x weights[p]`` for each of the products p."""
        product, number, lanes = Variable("product"), Variable("tile"), self._lanes
        channels, columns = self.window.channels, vectors * self._lanes
        depth = Reduced(Variable("pair"), channels // 2)
        split = split_evenly(self.plan.pieces, self.plan.tile.rows)
        base = b.add(b.multiply(begin, PRODUCTS * depth.extent), b.multiply(product, depth.extent * columns))
        row = split.begin(number)

        def left(offset: int) -> Expression:
            place = b.add(b.multiply(b.add(row, offset), channels), b.multiply(depth.variable, 2))
            return Bitcast(Load(images, (product, ramp(place, 2))), "int32")

        def right(vector: int) -> Expression:
            place = b.add(base, b.add(b.multiply(depth.variable, columns), vector * lanes))
            return Load(weights, (ramp(place, lanes),))

        def tile(height: int) -> Statement:
            shape = RegisterTile(height, vectors, lanes, self.plan.tile.unroll)

            def sum_at(offset: int, vector: int) -> tuple[Expression, ...]:
                place = b.add(b.multiply(b.add(row, offset), columns), vector * lanes)
                return product, ramp(place, lanes)

            start = clear(shape, b.constant(0, "float32"))
            finish = store_into(shape, sums, sum_at)
            return accumulate(shape, FLOAT32, start, [depth], left, right, finish, multiply=Multiply("dot2_bf16"))

        tiles = For(number, b.index(split.count), "serial", split.choose(number, tile))
        return For(product, b.index(PRODUCTS), "serial", tiles)

    def _transform_output(
        self, sums: Buffer, image: Expression, first: Expression, begin: Expression, vectors: int
    ) -> Statement:
        """Return the loop over pieces of one panel: back to pixels, through the epilogue into the output."""
        piece, vector, lanes = Variable("piece"), Variable("vector"), self._lanes
        y, x = Variable("y"), Variable("x")
        height, width = self.window.windows.target
        column = b.multiply(vector, lanes)
        own = ramp(b.add(b.multiply(piece, vectors * lanes), column), lanes)
        values: list[Expression] = [Load(sums, (b.index(number), own)) for number in range(PRODUCTS)]

        def stored(pixels: list[Expression]) -> Statement:
            statements: list[Statement] = []
            for number, value in enumerate(pixels):
                down, right = divmod(number, PIECE)
                point = [image, b.add(y, down), b.add(x, right), ramp(b.add(begin, column), lanes)]
                body: Statement = Block(tuple(self.epilogue.stores(point, value, None)))
                conditions = []
                if self.plan.blocks * self.plan.rows * PIECE > height:
                    conditions.append(b.less(point[1], height))
                if self.plan.across * PIECE > width and right:
                    conditions.append(b.less(point[2], width))
                inside = b.all_of(conditions)
                statements.append(body if inside is None else If(inside, body))
            return Block(tuple(statements))

        back_down, back = in_columns(TRANSFORM.output_sums, INPUTS), in_rows(TRANSFORM.output_sums, INPUTS)
        body = bound("s", values, lambda s: bound("t", back_down(s), lambda t: bound("o", back(t), stored)))
        body = self._at_piece(first, For(vector, b.index(vectors), "serial", body), piece, (y, x))
        return For(piece, b.index(self.plan.pieces), "serial", body)


def _applies(anchor: Anchor, target: Target) -> Answer:
    if target.precision != "bf16":
        return Reject("accuracy", "bfloat16 is not wanted")
    if of_family(anchor.parameters, ContractionParameters) is not None:
        return Reject("cost", "sums of products are wanted")
    window = anchor.stages and window_of(anchor.kernel, anchor.stages)
    refusal = _refusal(window, target) if window else Reject("layout", "no bfloat16 image with channels last")
    return True if refusal is None else refusal


STRATEGY = Strategy(
    "winograd_nhwc",
    CONVOLUTIONS,
    of_stages(schedule_winograd_last),
    _applies,
    rounds=rounds,
    cost=_cost,
    switch="winograd",
)
