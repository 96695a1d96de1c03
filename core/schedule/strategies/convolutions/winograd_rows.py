"""Rows of pieces of images whose channels come first: squares of pixels and channels are transposed in registers.

The pieces of a block that lie side by side are a run. Of a vector of channels, the pixels of a run stand in a strip in
the first-level cache, channels last: that is what Winograd's algorithm transforms, and what it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import divided, ramp, scratch, wide
from graft.core.schedule.primitives.transpose import transposed
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.strategies.convolutions.winograd_transform import Transform
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import Block, Buffer, Constant, Expression, For, If, Load, Statement, Store, Variable
from graft.core.tensor_ir.statements import allocate, bind

RUN_PIXELS = 64
"""Pixels of a row of a run at the most, so that a strip stays in the first-level cache."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a block: ``count`` from number ``begin`` on, of images of ``down x across`` pieces."""

    begin: Expression
    count: Expression
    down: Expression
    across: Expression
    transform: Transform

    def runs(self, overlap: int, step: int, body: Callable[[Run], Statement]) -> Statement:
        """Return the loop over runs, of ``step`` pixels of each piece and ``overlap`` more, around their body."""
        most, end = (RUN_PIXELS - overlap) // step, b.add(self.begin, self.count)
        each, number = b.divide(b.add(self.across, most - 1), most), Variable("number")
        segment, line, low, high = (Variable(name) for name in ("segment", "line", "low", "high"))
        y, x, image, pieces = (Variable(name) for name in ("y", "x", "image", "run"))

        def of(piece: Expression) -> Expression:
            """The number of the run of a piece, of all runs of all images."""
            run = b.divide(b.modulo(piece, self.across), most)
            return b.add(b.multiply(b.divide(piece, self.across), each), run)

        begin, start = b.multiply(line, self.across), b.multiply(b.modulo(segment, each), most)
        known = [
            (segment, b.add(of(self.begin), number)),
            (line, b.divide(segment, each)),
            (low, b.maximum(self.begin, b.add(begin, start))),
            (high, b.minimum(end, b.add(begin, b.minimum(b.add(start, most), self.across)))),
            (image, b.divide(line, self.down)),
            (y, b.multiply(b.modulo(line, self.down), self.transform.outputs)),
            (x, b.multiply(b.subtract(low, begin), self.transform.outputs)),
            (pieces, b.subtract(high, low)),
        ]
        count = b.add(b.subtract(of(b.subtract(end, 1)), of(self.begin)), 1)
        own = Run(image, y, x, b.subtract(low, self.begin), pieces)
        return For(number, count, "serial", bind(known, body(own)))


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` pieces side by side, the first of which is number ``piece`` of its block and begins at ``y``, ``x``."""

    image: Expression
    y: Expression
    x: Expression
    piece: Expression
    count: Expression


def lanes_of(pixels: Buffer) -> int:
    """Return the channels of a vector of a strip."""
    (extent,) = (axis for axis in pixels.shape[-1:] if isinstance(axis, Constant))
    return int(extent.value)


def strip(name: str, rows: int, lanes: int) -> Buffer:
    """Return memory for rows of pixels of a vector of channels, with room for a square before them and one behind."""
    return scratch(name, "float32", rows, RUN_PIXELS + 2 * lanes, lanes)


def fill(
    pixels: Buffer, image: Buffer, run: Run, channels: tuple[Expression, int], transform: Transform, windows: Windows
) -> Statement:
    """Return what copies into a strip the pixels that a run sees: ``channels`` from the first on, zeros elsewhere."""
    (first, count), lanes, row = channels, lanes_of(pixels), Variable("row")
    height, width = image.shape[2:]
    top, left, y, low, high = (Variable(name) for name in ("top", "left", "y", "low", "high"))
    columns = b.add(b.multiply(run.count, transform.step), transform.inputs - transform.step)
    known = [
        (top, b.subtract(b.multiply(run.y, windows.strides[0]), windows.begins[0])),
        (left, b.subtract(b.multiply(run.x, windows.strides[1]), windows.begins[1])),
        (low, b.minimum(b.maximum(b.subtract(0, left), 0), columns)),
        (high, b.maximum(b.minimum(b.subtract(width, left), columns), low)),
    ]

    def square(place: Expression, mask: Expression | None) -> Statement:
        column = ramp(place, lanes)
        rows: list[Expression] = [
            Load(image, (run.image, b.add(first, channel), y, column), mask)
            if channel < count
            else wide(b.constant(0, "float32"), lanes)
            for channel in range(lanes)
        ]
        return _transposed(rows, lambda n: (pixels, (row, b.add(b.subtract(b.add(place, n), left), lanes))))

    def zeros(begin: Expression, end: Expression) -> Statement:
        column = Variable("column")
        place = (row, b.add(b.add(begin, column), lanes), ramp(0, lanes))
        store = Store(pixels, place, wide(b.constant(0, "float32"), lanes))
        return For(column, b.subtract(end, begin), "serial", store)

    inside = b.both(*b.inside(y, height))
    squares = _squares(b.add(left, low), b.add(left, high), width, lanes, square)
    seen = Block((squares, zeros(b.index(0), low), zeros(high, columns)))
    rows = bind([(y, b.add(top, row))], If(inside, seen, zeros(b.index(0), columns)))
    return bind(known, For(row, b.index(transform.inputs), "serial", rows))


def pixel(pixels: Buffer, row: Expression, column: Expression) -> tuple[Expression, ...]:
    """Return the place of the vector of a pixel in a strip."""
    lanes = lanes_of(pixels)
    return row, b.add(column, lanes), ramp(0, lanes)


def _squares(
    low: Expression,
    high: Expression,
    width: Expression,
    lanes: int,
    square: Callable[[Expression, Expression | None], Statement],
) -> Statement:
    """Return squares at the pixels of a row from ``low`` to ``high``; if a row fills a vector, the last may overlap."""
    number, count = Variable("square"), b.subtract(high, low)
    place = b.add(low, b.multiply(number, lanes))
    if isinstance(width, Constant) and int(width.value) >= lanes:
        begin = Variable("begin")
        known = [(begin, b.maximum(b.minimum(place, b.subtract(high, lanes)), 0))]
        return For(number, b.divide(b.add(count, lanes - 1), lanes), "serial", bind(known, square(begin, None)))
    return _vectors(low, count, lanes, square)


def _vectors(
    low: Expression, count: Expression, lanes: int, square: Callable[[Expression, Expression | None], Statement]
) -> Statement:
    """Return ``square(place, mask)`` at whole vectors of ``count`` places from ``low`` on, and at what is left."""
    number, (whole, rest) = Variable("square"), divided(count, lanes)
    loop = For(number, whole, "serial", square(b.add(low, b.multiply(number, lanes)), None))
    mask = b.less(ramp(0, lanes), wide(rest, lanes))
    return Block((loop, If(b.greater(rest, 0), square(b.add(low, b.multiply(whole, lanes)), mask))))


def _transposed(
    vectors: Sequence[Expression],
    place: Callable[[int], tuple[Buffer, tuple[Expression, ...]]],
    begin: Expression | int = 0,
) -> Statement:
    """Return what stores a square of vectors transposed, row by row, from ``begin`` on in each."""
    rows = [Variable(f"d{number}", one.type) for number, one in enumerate(vectors)]
    bindings = list(zip(rows, vectors, strict=True))
    columns = transposed(rows, bindings)
    stores = []
    for number, value in enumerate(columns):
        buffer, indices = place(number)
        stores.append(Store(buffer, (*indices, ramp(begin, len(vectors))), value))
    return bind(bindings, Block(tuple(stores)))


def finish(
    pixels: Buffer, run: Run, channels: tuple[Expression, int], transform: Transform, epilogue: Epilogue
) -> Statement:
    """Return what stores a strip of results through the epilogue: rows of pixels of one channel after another."""
    (first, count), lanes, m = channels, lanes_of(pixels), transform.outputs
    height, width = epilogue.anchor.buffer.shape[2:]
    row, square, channel, columns = (Variable(name) for name in ("row", "square", "channel", "columns"))
    by_channel, begin = scratch("by_channel", "float32", lanes, m, RUN_PIXELS), b.multiply(square, lanes)
    vectors = [Load(pixels, pixel(pixels, row, b.add(begin, n))) for n in range(lanes)]
    squares: Statement = _transposed(vectors, lambda n: (by_channel, (b.index(n), row)), begin)
    squares = For(square, b.divide(b.add(columns, lanes - 1), lanes), "serial", squares)

    def vector(place: Expression, mask: Expression | None) -> Statement:
        point = [run.image, b.add(first, channel), b.add(run.y, row), ramp(b.add(run.x, place), lanes)]
        return Block(tuple(epilogue.stores(point, Load(by_channel, (channel, row, ramp(place, lanes))), mask)))

    rows = b.minimum(b.index(m), b.subtract(height, run.y))
    stores = For(row, rows, "serial", _vectors(b.index(0), columns, lanes, vector))
    stores = For(channel, b.index(count), "serial", stores)
    body = Block((For(row, b.index(m), "serial", squares), stores))
    own = b.minimum(b.multiply(run.count, m), b.subtract(width, run.x))
    return bind([(columns, own)], allocate((by_channel,), body))
