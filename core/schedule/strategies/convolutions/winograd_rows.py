"""Rows of pieces of images whose channels come first: squares of pixels and channels are transposed in registers.

The pieces of a block that lie side by side are a run. Of a vector of channels, the pixels of a run stand in a strip in
the first-level cache, channels last: that is what Winograd's algorithm transforms, and what it leaves. Each copy is the
plain loops of one element; steps make vectors and squares of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import let, loop
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.statements import divided, scratch
from graft.core.schedule.primitives.transpose import Transpose
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.strategies.convolutions.winograd_transform import Transform
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import Block, Buffer, Constant, Expression, If, Load, Statement, Store, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.statements import allocate, bind, loops_over

_Run = Callable[[Expression, Expression | None], Statement]
"""What is done for a vector of places: from the first on all, or so many as exist."""

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
        return loops_over([(number, count)], bind(known, body(own)))


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


def pixel(pixels: Buffer, row: Expression, column: Expression, channel: Expression) -> tuple[Expression, ...]:
    """Return the place of channels of a pixel in a strip."""
    return row, b.add(column, lanes_of(pixels)), channel


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

    def square(begin: Expression, exist: Expression | None) -> Statement:
        lane, column = Variable("lane"), Variable("column")
        place, inside = b.add(begin, column), None if exist is None else b.less(column, exist)
        value: Expression = Load(image, (run.image, b.add(first, lane), y, place), inside)
        if count < lanes:
            value = b.select(b.less(lane, count), value, 0)
        store = Store(pixels, pixel(pixels, row, b.subtract(place, left), lane), value)
        return simplify_statement(taken(_square(lane, column, lanes, store), [Transpose("lane", "column")]))

    def zeros(begin: Expression, end: Expression) -> Statement:
        lane, column = Variable("lane"), Variable("column")
        store = Store(pixels, pixel(pixels, row, b.add(begin, column), lane), b.constant(0, "float32"))
        body = loops_over([(column, b.subtract(end, begin)), (lane, b.index(lanes))], store)
        return lower_loops(taken(body, [Vectorize("lane")]))

    inside = b.both(*b.inside(y, height))
    squares = _squares(b.add(left, low), b.add(left, high), width, lanes, square)
    seen = Block((squares, zeros(b.index(0), low), zeros(high, columns)))
    rows = bind([(y, b.add(top, row))], If(inside, seen, zeros(b.index(0), columns)))
    return bind(known, loops_over([(row, b.index(transform.inputs))], rows))


def _square(outer: Variable, inner: Variable, lanes: int, body: Statement) -> Statement:
    return loops_over([(outer, b.index(lanes)), (inner, b.index(lanes))], body)


def _squares(low: Expression, high: Expression, width: Expression, lanes: int, square: _Run) -> Statement:
    """Return squares at the pixels of a row from ``low`` to ``high``; if a row fills a vector, the last may overlap."""
    count = b.subtract(high, low)
    if not isinstance(width, Constant) or int(width.value) < lanes:
        return _runs(low, count, lanes, square)

    def whole(number: Expression) -> Statement:
        place = b.add(low, b.multiply(number, lanes))
        return let(b.maximum(b.minimum(place, b.subtract(high, lanes)), 0), lambda begin: square(begin, None), "begin")

    return loop(b.divide(b.add(count, lanes - 1), lanes), whole, name="square")


def _runs(low: Expression, count: Expression, lanes: int, run: _Run) -> Statement:
    """Return ``run(place, how many exist)`` at whole vectors of ``count`` places from ``low`` on, and what is left."""
    whole, rest = divided(count, lanes)
    whole_runs = loop(whole, lambda number: run(b.add(low, b.multiply(number, lanes)), None), name="square")
    return Block((whole_runs, If(b.greater(rest, 0), run(b.add(low, b.multiply(whole, lanes)), rest))))


def finish(
    pixels: Buffer, run: Run, channels: tuple[Expression, int], transform: Transform, epilogue: Epilogue
) -> Statement:
    """Return what stores a strip of results through the epilogue: rows of pixels of one channel after another."""
    (first, count), lanes, m = channels, lanes_of(pixels), transform.outputs
    height, width = epilogue.anchor.buffer.shape[2:]
    row, channel, columns = (Variable(name) for name in ("row", "channel", "columns"))
    by_channel = scratch("by_channel", "float32", lanes, m, RUN_PIXELS)

    def square(number: Expression) -> Statement:
        lane, column = Variable("lane"), Variable("column")
        place = b.add(b.multiply(number, lanes), column)
        store = Store(by_channel, (lane, row, place), Load(pixels, pixel(pixels, row, place, lane)))
        return taken(_square(column, lane, lanes, store), [Transpose("column", "lane")])

    def stored(begin: Expression, exist: Expression | None) -> Statement:
        column = Variable("column")
        place = b.add(begin, column)
        point = [run.image, b.add(first, channel), b.add(run.y, row), b.add(run.x, place)]

        def of(total: Expression) -> Statement:
            stores = Block(tuple(epilogue.stores(point, total, None)))
            return stores if exist is None else If(b.less(column, exist), stores)

        body = let(Load(by_channel, (channel, row, place)), of, "total")
        return lower_loops(taken(loops_over([(column, b.index(lanes))], body), [Vectorize("column")]))

    squares = loop(b.divide(b.add(columns, lanes - 1), lanes), square, name="square")
    rows = b.minimum(b.index(m), b.subtract(height, run.y))
    stores = loops_over([(channel, b.index(count)), (row, rows)], _runs(b.index(0), columns, lanes, stored))
    body = Block((loops_over([(row, b.index(m))], squares), stores))
    own = b.minimum(b.multiply(run.count, m), b.subtract(width, run.x))
    return bind([(columns, own)], allocate((by_channel,), body))
