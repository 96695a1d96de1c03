"""3x3 convolutions of few channels, which come first, by Winograd's algorithm: products on transformed pieces.

The output, whose windows move by one or two pixels, is cut into pieces of ``m x m`` pixels. Whole rows of pieces form a
block, whose pieces stand one after another on the vector lanes: a block is transformed channel by channel, multiplied
with the transformed weights (which are made at compile time), and transformed back, through the epilogue, all while it
lies in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ContractionParameters, of_family
from graft.core.schedule.primitives.statements import (
    between,
    counter,
    deinterleave,
    interleave,
    over,
    ramp,
    scratch,
    wide,
)
from graft.core.schedule.primitives.vectorize import both
from graft.core.schedule.products.accumulation import Reduced, accumulate, clear, store_into
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.fetching import Ahead
from graft.core.schedule.products.tiling import RegisterTile, lanes_of, split_evenly
from graft.core.schedule.strategies.convolutions.winograd_cost import Plan, choose_plan, ranked_plans
from graft.core.schedule.strategies.convolutions.winograd_plan import has_few_channels
from graft.core.schedule.strategies.convolutions.winograd_transform import EXACT_TERMS, MIN_CHANNELS, MIN_LANES, WINDOW
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import (
    Block,
    Buffer,
    Expression,
    For,
    If,
    Let,
    Load,
    LoopKind,
    Stage,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.statements import allocate, bind, bound
from graft.core.types import FLOAT32

UNROLL = 4
"""Channels that one pass of the innermost loop adds: weights come from far away and are fetched by whole lines."""


def schedule_winograd(
    kernel: Kernel, stages: Sequence[Stage], target: Target, plan: Plan | None = None
) -> Scheduled | None:
    """Return the kernel by Winograd's algorithm, None if it is no such convolution or would not become faster.

    ``plan`` is followed if it is given, whether it is fast or not.
    """
    found = _analyse(kernel, stages)
    if found is None:
        return None
    plan = plan or choose_plan(found.outputs, b.dims(found.source), found.windows, target)
    return None if plan is None else _Scheduler(kernel, found, plan, target.machine.cache(2).line).scheduled()


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A plain float32 convolution of 3 x 3 windows taken apart."""

    epilogue: Epilogue
    source: Buffer
    weights: Buffer
    windows: Windows

    @property
    def outputs(self) -> int:
        """The output channels."""
        return b.dims(self.weights)[0]

    @property
    def channels(self) -> int:
        """The input channels."""
        return b.dims(self.weights)[1]

    def ranked(self, target: Target) -> list[tuple[float, Plan]]:
        """Return all plans with their cycles, the fewest first."""
        return ranked_plans(self.outputs, b.dims(self.source), self.windows, target)


def _analyse(kernel: Kernel, stages: Sequence[Stage]) -> _Convolution | None:
    """Take a convolution apart; None if it is no plain one of 3 x 3 windows in float32."""
    epilogue, found = epilogue_of(stages, kernel.outputs), convolution_of(stages[0], 4)
    if epilogue is None or found is None or found.window.groups != 1:
        return None
    source, weights = found.image("float32", "float32"), found.weights(kernel, stages, "float32", "float32")
    window, windows = found.window, found.windows
    if source is None or weights is None or not window.reads_channels_first or not window.stores_channels_first:
        return None
    if windows.kernel != (WINDOW, WINDOW) or windows.strides not in ((1, 1), (2, 2)) or windows.dilations != (1, 1):
        return None
    return _Convolution(epilogue, source, weights, windows)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block is: the image's number, and the first row of pieces."""

    image: Expression
    first: Expression


def _over_blocks(
    images: int, blocks: int, body: Callable[[Expression, Expression], Statement], memory: Sequence[Buffer], apart: bool
) -> Statement:
    """Return the loops over images and blocks of pieces around ``body(image, block)``, which needs ``memory``.

    With ``apart`` each block is one thread's; else all threads work on one block after another.
    """
    image, block = Variable("image"), counter("block", blocks)
    kind: LoopKind = "parallel" if apart else "serial"
    phases = body(image, block)
    phases = over(block, blocks, kind, allocate(memory, phases) if apart else phases)
    loops = For(image, b.index(images), kind, phases)
    return loops if apart else allocate(memory, loops)


class _Scheduler:
    """Builds the loops. A block holds ``plan.vectors`` vectors of pieces, in panels as wide as a register tile."""

    def __init__(self, kernel: Kernel, found: _Convolution, plan: Plan, line: int) -> None:
        self.line = line
        """The bytes of a cache line."""
        self.kernel, self.epilogue, self.source, self.weights = kernel, found.epilogue, found.source, found.weights
        self.windows, self.plan, self.transform = found.windows, plan, plan.transform
        self.outputs, self.channels = found.outputs, found.channels
        self.split = split_evenly(self.outputs, plan.tile.rows)
        elements = self.transform.products * self.outputs * self.channels
        self.packed = Buffer("transformed", "float32", (b.index(elements),))
        self.width = plan.vectors * plan.lanes
        """The pieces of a block, those that only fill up the last vector included."""
        self.images = self._matrices("images", self.channels)
        self.sums = self._matrices("sums", self.outputs)

    def _matrices(self, name: str, rows: int) -> Buffer:
        # A line lies between matrices, or equal places of all of them would compete for the same sets of a cache.
        return scratch(name, "float32", self.transform.products, rows * self.width + self.line // 4)

    def scheduled(self) -> Scheduled:
        """Return the function, still to be built, and the transformed weights."""
        knobs = {
            "pieces": self.transform.outputs, "lines": self.plan.rows, "rows": self.plan.tile.rows,
            "vectors": self.plan.tile.vectors,
        }  # fmt: skip
        packed = {self.weights: self._packed_weights()}
        return Scheduled(lambda: self.kernel.function(self._loops(), {self.weights: self.packed}), packed, knobs=knobs)

    def _loops(self) -> Statement:
        """Return the loops over images and blocks."""
        images = b.dims(self.source)[0]

        def phases(image: Expression, block: Expression) -> Statement:
            place = _Place(image, b.multiply(block, self.plan.rows))
            return Block((self._transform_input(place), self._multiply(), self._transform_output(place)))

        memory, apart = (self.images, self.sums), self.plan.is_apart(images)
        return _over_blocks(images, self.plan.blocks, phases, memory, apart)

    def _packed_weights(self) -> np.ndarray:
        """Return the transformed weights: for each product, tiles of output channels, each ``[channels, height]``."""
        bounds = np.cumsum([0] + [size for count, size in self.split.sizes for _ in range(count)])
        return self.transform.packed_weights(self.kernel.constants[self.weights], bounds.tolist())

    # ---- Input ----

    def _transform_input(self, place: _Place) -> Statement:
        """Return the loop over channels: rows are combined as they lie, then columns, a vector of pieces at a time."""
        size, extent = self.transform.inputs, self.width * self.transform.step + self.plan.lanes
        combined, channel = scratch("combined", "float32", 2, size, extent), Variable("channel")
        body = Block((self._clear(combined), self._combine_rows(combined, place, channel)))
        columns = self._combine_columns(combined, channel)
        return For(channel, b.index(self.channels), "parallel", allocate((combined,), Block((body, columns))))

    def _clear(self, combined: Buffer) -> Statement:
        """Return the stores of zeros where no piece is: what is there would be multiplied all the same."""
        lanes, used = self.plan.lanes, self.plan.rows * self.plan.across * self.transform.step
        half, row = Variable("half"), Variable("row")
        zero = wide(b.constant(0, "float32"), lanes)
        starts = range(used, self.width * self.transform.step, lanes)
        stores = tuple(Store(combined, (half, row, ramp(start, lanes)), zero) for start in starts)
        body = For(row, b.index(self.transform.inputs), "serial", Block(stores))
        return For(half, b.index(2), "serial", body)

    def _combine_rows(self, combined: Buffer, place: _Place, channel: Expression) -> Statement:
        """Return the loops that fill ``combined[half, i, piece * step + column]``.

        Half 0 holds columns 0 to step - 1 of each piece, half 1 those behind them, from place 0 on.
        """
        lanes, length = self.plan.lanes, self.plan.across * self.transform.step
        number, row = Variable("line"), Variable("top")
        top = b.multiply(b.add(place.first, number), self.transform.step)
        valid = [Variable(f"valid{i}", b.constant(True, "bool").type) for i in range(self.transform.inputs)]
        begin = b.multiply(number, length)
        left = self.windows.begins[1]

        def piece(start: Expression, first: int, last: int) -> Statement:
            """The vector at column ``start``, which is at least ``first`` and at most ``last``."""
            column, across = ramp(b.subtract(start, left), lanes), self.windows.source[1]
            mask = between(column, across, low=first < left, high=last - left + lanes > across)
            pixels = [
                Load(self.source, (place.image, channel, b.add(row, i), column), both(mask, wide(inside, lanes)))
                for i, inside in enumerate(valid)
            ]
            return bound("d", pixels, lambda values: stored(self.transform.input_sums(values), start, first, last))

        def stored(sums: list[Expression], start: Expression, first: int, last: int) -> Statement:
            stores: list[Statement] = []
            for half in range(2):
                shift = half * self.transform.step
                if first >= length + shift:
                    continue
                low, high = first < shift, last - shift + lanes > length
                mask = between(ramp(b.subtract(start, shift), lanes), length, low=low, high=high)
                at = ramp(b.add(begin, b.subtract(start, shift)), lanes)
                stores += [Store(combined, (b.index(half), b.index(i), at), sums[i], mask) for i in range(len(sums))]
            return Block(tuple(stores))

        body = self._over_vectors(length + self.transform.inputs - self.transform.step, piece)
        inside = [b.both(*b.inside(b.add(row, i), self.windows.source[0])) for i in range(len(valid))]
        body = bind(reversed([*zip(valid, inside, strict=True)]), body)
        return For(number, b.index(self.plan.rows), "serial", Let(row, b.subtract(top, self.windows.begins[0]), body))

    def _over_vectors(self, length: int, piece: Callable[[Expression, int, int], Statement]) -> Statement:
        """Return ``piece`` at all vectors of a row: the first and the last two apart, those between in a loop."""
        lanes, count = self.plan.lanes, -(-length // self.plan.lanes)
        if count <= 4:
            return Block(tuple(piece(b.index(v * lanes), v * lanes, v * lanes) for v in range(count)))
        step = Variable("step")
        middle = piece(b.multiply(b.add(step, 1), lanes), lanes, (count - 3) * lanes)
        ends = [piece(b.index(v * lanes), v * lanes, v * lanes) for v in (0, count - 2, count - 1)]
        return Block((ends[0], For(step, b.index(count - 3), "serial", middle), *ends[1:]))

    def _combine_columns(self, combined: Buffer, channel: Expression) -> Statement:
        """Return the loops that write ``images[i * inputs + j, panel, channel, piece of the panel]``."""
        lanes, step, size = self.plan.lanes, self.transform.step, self.transform.inputs
        row, vector = Variable("i"), Variable("vector")

        def body(begin: Expression, vectors: int) -> Statement:
            start = b.multiply(b.add(begin, vector), step * lanes)
            halves = [
                deinterleave(
                    [Load(combined, (b.index(half), row, ramp(b.add(start, v * lanes), lanes))) for v in range(step)],
                    count,
                )
                for half, count in ((0, step), (1, size - step))
            ]
            at = self._in_panel(self.channels, begin, vectors, channel, vector)

            def stores(values: list[Expression]) -> Statement:
                sums = self.transform.input_sums(values)
                first_matrix = b.multiply(row, size)
                return Block(
                    tuple(Store(self.images, (b.add(first_matrix, j), at), value) for j, value in enumerate(sums))
                )

            return For(vector, b.index(vectors), "serial", bound("c", [*halves[0], *halves[1]], stores))

        return For(row, b.index(size), "serial", self._over_panels(body))

    def _in_panel(
        self, rows: int, begin: Expression, vectors: int, row: Expression, vector: Expression | int
    ) -> Expression:
        """Return the place of a vector in a matrix of ``rows``, of the panel that begins at vector ``begin``."""
        lanes = self.plan.lanes
        inner = b.add(b.multiply(row, vectors), vector)
        return ramp(b.multiply(b.add(b.multiply(begin, rows), inner), lanes), lanes)

    def _over_panels(self, body: Callable[[Expression, int], Statement]) -> Statement:
        """Return the loop over panels: ``body(first vector, vectors)``."""
        return tiles(self.plan.vectors, self.plan.tile.vectors, body, name="panel")

    # ---- Products ----

    def _multiply(self) -> Statement:
        """Return ``sums[p] = transformed[p] x images[p]`` for each of the products p."""
        product, number = Variable("product"), Variable("tile")
        depth = Reduced(Variable("channel"), self.channels)

        def panel(begin: Expression, vectors: int) -> Statement:
            shape = replace(self.plan.tile, vectors=vectors, unroll=UNROLL)
            body = self.split.choose(number, lambda size: tile(replace(shape, rows=size), begin))
            return For(number, b.index(self.split.count), "serial", body)

        def tile(shape: RegisterTile, begin: Expression) -> Statement:
            first = self.split.begin(number)
            base = b.add(b.multiply(product, self.outputs * self.channels), b.multiply(first, self.channels))

            def left(row: int) -> Expression:
                return Load(self.packed, (b.add(base, b.add(b.multiply(depth.variable, shape.rows), row)),))

            def right(vector: int) -> Expression:
                at = self._in_panel(self.channels, begin, shape.vectors, depth.variable, vector)
                return Load(self.images, (product, at))

            def sum_at(row: int, vector: int) -> tuple[Expression, ...]:
                at = b.add(b.multiply(b.add(first, row), self.plan.vectors), b.add(begin, vector))
                return product, ramp(b.multiply(at, self.plan.lanes), self.plan.lanes)

            ahead = Ahead(self.packed, b.add(base, shape.rows * self.channels), shape.rows * shape.unroll, self.line)
            start, finish = clear(shape, b.constant(0, "float32")), store_into(shape, self.sums, sum_at)
            return accumulate(shape, FLOAT32, start, [depth], left, right, finish, ahead=ahead, exact=EXACT_TERMS)

        return For(product, b.index(self.transform.products), "parallel", self._over_panels(panel))

    # ---- Output ----

    def _transform_output(self, place: _Place) -> Statement:
        """Return the loop over output channels: back to pixels in rows, then through the epilogue into the output."""
        m, lanes = self.transform.outputs, self.plan.lanes
        channel = Variable("output")
        pixels = scratch("pixels", "float32", m, self.width * m + lanes)
        body = Block((self._to_pixels(pixels, channel), self._finish(pixels, place, channel)))
        return For(channel, b.index(self.outputs), "parallel", allocate((pixels,), body))

    def _to_pixels(self, pixels: Buffer, channel: Expression) -> Statement:
        m, size, lanes = self.transform.outputs, self.transform.inputs, self.plan.lanes
        half = scratch("columns", "float32", m, size, lanes)
        vector, column, row = Variable("vector"), Variable("j"), Variable("i")
        at = ramp(b.multiply(b.add(b.multiply(channel, self.plan.vectors), vector), lanes), lanes)
        lane = ramp(b.index(0), lanes)
        sums: list[Expression] = [Load(self.sums, (b.add(column, i * size), at)) for i in range(size)]

        def down(values: list[Expression]) -> Statement:
            results = self.transform.output_sums(values)
            return Block(tuple(Store(half, (b.index(i), column, lane), value) for i, value in enumerate(results)))

        def across(values: list[Expression]) -> Statement:
            results = interleave(self.transform.output_sums(values))
            start = b.multiply(vector, m * lanes)
            return Block(
                tuple(
                    Store(pixels, (row, ramp(b.add(start, v * lanes), lanes)), value) for v, value in enumerate(results)
                )
            )

        first = For(column, b.index(size), "serial", bound("s", sums, down))
        columns: list[Expression] = [Load(half, (row, b.index(j), lane)) for j in range(size)]
        second = For(row, b.index(m), "serial", bound("t", columns, across))
        return For(vector, b.index(self.plan.vectors), "serial", allocate((half,), Block((first, second))))

    def _finish(self, pixels: Buffer, place: _Place, channel: Expression) -> Statement:
        m, lanes = self.transform.outputs, self.plan.lanes
        height, width = self.windows.target
        line, inner, y = Variable("line"), Variable("inner"), Variable("y")
        begin = b.multiply(line, self.plan.across * m)

        def piece(start: Expression, _: int, last: int) -> Statement:
            total = Load(pixels, (inner, ramp(b.add(begin, start), lanes)))
            mask = between(ramp(start, lanes), width, low=False, high=last + lanes > width)
            point = [place.image, channel, y, ramp(start, lanes)]
            return Block(tuple(self.epilogue.stores(point, total, mask)))

        body: Statement = self._over_vectors(width, piece)
        if self.plan.blocks * self.plan.rows * m > height:
            body = If(b.less(y, height), body)
        row = b.add(b.multiply(b.add(place.first, line), m), inner)
        loop = For(inner, b.index(m), "serial", Let(y, row, body))
        return For(line, b.index(self.plan.rows), "serial", loop)


def _applies(anchor: Anchor, target: Target) -> Answer:
    if target.precision != "float32" or of_family(anchor.parameters, ContractionParameters) is not None:
        return Reject("accuracy" if target.precision != "float32" else "cost", "sums of products are wanted")
    found = None if anchor.stages is None else _analyse(anchor.kernel, anchor.stages)
    if found is None:
        return Reject("shape", "no float32 convolution of 3 x 3 windows that move by one or two pixels, without groups")
    if anchor.convolution is not None and not has_few_channels(anchor.convolution.window, target):
        return Reject("size", "channels are many: their vectors are full")
    fits = found.channels >= MIN_CHANNELS and lanes_of("float32", target) >= MIN_LANES
    return fits or Reject("size", "channels are few, or vectors short")


def _cost(anchor: Anchor, target: Target) -> float:
    found = None if anchor.stages is None else _analyse(anchor.kernel, anchor.stages)
    assert found is not None, anchor.kernel.name
    return found.ranked(target)[0][0]


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    assert anchor.stages is not None, anchor.kernel.name
    return schedule_winograd(anchor.kernel, anchor.stages, target) or OTHER_FORM


STRATEGY = Strategy("winograd_nchw", CONVOLUTIONS, _build, _applies, cost=_cost, switch="winograd")
"""Takes convolutions of few channels, which leave vectors of channels empty."""
