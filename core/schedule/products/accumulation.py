"""The code of a register tile: what its accumulators start from, the steps of a sum, and what becomes of the totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.accumulate import joined
from graft.core.schedule.primitives.statements import multiply_add, over, ramp, registers, scratch, wide
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir.ir import (
    Allocate,
    Block,
    Buffer,
    CallExtern,
    Constant,
    Expression,
    For,
    If,
    Let,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64, Type, element_bits

EXACT_TERMS = 256
"""So many terms are added one after the other; a longer sum is a sum of such sums, for errors grow with the length
(Higham, "The accuracy of floating point summation", 1993)."""
SECOND_LEVEL = Constant(2, INT64)
"""The cache into which panels are fetched ahead of use, as ``prefetch`` counts: 3 is the first level."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """One loop of the reduction."""

    variable: Variable
    extent: int


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the innermost loop that is summed at one time, in steps of as many terms as a tile unrolls.

    ``count`` steps from ``begin`` on, then ``rest`` terms more, if ``has_rest`` (None: always).
    """

    begin: Expression
    count: Expression
    rest: int
    has_rest: Expression | None = None


def whole_span(extent: int, unroll: int) -> Span:
    """Return the span of a whole loop."""
    return Span(b.index(0), b.index(extent // unroll), extent % unroll)


class Fetching(Protocol):
    """What is fetched into a cache while a tile is summed."""

    def after(self, steps: Expression) -> Fetching:
        """Return what to fetch after so many steps."""

    def fetches(self, step: Expression) -> list[Statement]:
        """Return the fetches of one step."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Memory that is fetched into the second-level cache meanwhile: from ``begin`` on, ``advance`` elements a step."""

    buffer: Buffer
    begin: Expression
    advance: int
    line: int
    """The bytes that a fetch brings."""

    def after(self, steps: Expression) -> Ahead:
        """Return what to fetch after so many steps."""
        return replace(self, begin=b.add(self.begin, b.multiply(steps, self.advance)))

    def fetches(self, step: Expression) -> list[Statement]:
        """Return the fetches of one step."""
        line = self.line * 8 // element_bits(self.buffer.dtype)
        start = b.add(self.begin, b.multiply(step, self.advance))
        places = (b.add(start, offset) for offset in range(0, self.advance, line))
        return [CallExtern("prefetch", (Load(self.buffer, (place,)), SECOND_LEVEL)) for place in places]


Place = tuple[Expression, ...]
Begin = Callable[[Buffer], Statement]
Factor = Callable[[int], Expression]
Product = Callable[[Expression, Expression, Expression], Expression]


def accumulate(
    tile: RegisterTile,
    kind: Type,
    begin: Callable[[Buffer], Statement],
    loops: Sequence[Reduced],
    left: Factor,
    right: Factor,
    finish: Callable[[Buffer], Statement],
    span: Span | None = None,
    ahead: Fetching | None = None,
    multiply: Product | None = None,
    exact: int = EXACT_TERMS,
) -> Statement:
    """Return the statement that fills a tile of accumulators and hands it to ``finish``.

    ``left(row)`` is a scalar and ``right(vector)`` a vector of ``tile.lanes``, both in the variables of ``loops``, and
    ``multiply(left, right, sum)`` adds their product to a sum of type ``kind`` (`multiply_add` if None). ``begin`` sets
    the accumulators, a register buffer of ``rows x columns``, to what the sums start from; ``finish`` gets them.
    ``span`` says which part of the last loop is summed: all of it if None. A long sum in float32 is summed in parts of
    ``exact`` terms.
    """
    totals = accumulators(tile, kind.dtype)
    *outer, inner = loops or (Reduced(Variable("once"), 1),)

    def step(place: Expression) -> Statement:
        known = {inner.variable: place}
        return _step(
            tile,
            totals,
            lambda row: substitute(left(row), known),
            lambda vector: substitute(right(vector), known),
            multiply or multiply_add,
        )

    def steps(own: Span, fetched: Fetching | None) -> Statement:
        return _steps(own, tile.unroll, step, fetched)

    if span is not None or kind.dtype != "float32" or math.prod(loop.extent for loop in loops) < 2 * exact:
        body = _around(outer, steps(span or whole_span(inner.extent, tile.unroll), ahead))
        return Allocate(totals, Block((begin(totals), body, finish(totals))))
    part = Variable("part")
    cut, terms = _cut([loop.extent for loop in loops], tile.unroll, exact)
    if loops[cut] is inner:
        following = None if ahead is None else ahead.after(b.multiply(part, terms // tile.unroll))
        body = steps(part_span(inner.extent, terms, tile.unroll, part), following)
    else:
        body = _around(loops[cut + 1 : -1], steps(whole_span(inner.extent, tile.unroll), ahead))
        number, first = Variable("number"), b.multiply(part, terms)
        count = b.minimum(b.index(terms), b.subtract(b.index(loops[cut].extent), first))
        body = For(number, count, "serial", Let(loops[cut].variable, b.add(first, number), body))
    parts = Reduced(part, -(-loops[cut].extent // terms))
    return _sum_of_parts(tile, totals, [*loops[:cut], parts], begin, body, finish)


def _around(loops: Sequence[Reduced], body: Statement) -> Statement:
    """Return the loops of a reduction around ``body``, without those of one iteration."""
    for loop in reversed(loops):
        once = Let(loop.variable, b.index(0), body)
        body = For(loop.variable, b.index(loop.extent), "serial", body) if loop.extent > 1 else once
    return body


def _sum_of_parts(
    tile: RegisterTile, totals: Buffer, loops: Sequence[Reduced], begin: Begin, body: Statement, finish: Begin
) -> Statement:
    """Return the sum of the sums that ``body`` adds to the accumulators in each iteration of the loops over parts."""
    dtype = totals.dtype
    sums = scratch("sums", dtype, tile.rows * tile.columns)
    kept, zero = Partial(sums, b.index(0), tile), clear(tile, b.constant(0.0, dtype))
    is_first, is_last = (
        b.all_of([b.equal(loop.variable, at * (loop.extent - 1)) for loop in loops if loop.extent > 1]) for at in (0, 1)
    )
    assert is_first is not None and is_last is not None, "a long sum of one part"
    start = _begun(is_first, begin, zero, totals)
    end = If(is_last, Block((kept.gather(totals), finish(totals))), If(is_first, kept.store(totals), kept.add(totals)))
    *outer, parts = loops
    body = _around(outer, over(parts.variable, parts.extent, "serial", Block((start, body, end))))
    return Allocate(sums, Allocate(totals, body))


def _cut(extents: Sequence[int], unroll: int, exact: int) -> tuple[int, int]:
    """Return the loop to cut, of a nest, and its length in a part, so that a part sums about ``exact`` terms."""
    cut = next(n for n in reversed(range(len(extents))) if n == 0 or math.prod(extents[n:]) > exact)
    most = max(1, exact // math.prod(extents[cut + 1 :]))
    even = -(-extents[cut] // -(-extents[cut] // most))
    return cut, -(-even // unroll) * unroll if cut == len(extents) - 1 else even


def part_span(extent: int, terms: int, unroll: int, number: Expression) -> Span:
    """Return the span of part ``number`` of a loop in parts of ``terms``; the last one may be shorter."""
    parts = -(-extent // terms)
    last = extent - (parts - 1) * terms
    is_last = b.equal(number, parts - 1)
    count: Expression = b.index(terms // unroll)
    if last // unroll != terms // unroll:
        count = b.select(is_last, b.index(last // unroll), count)
    return Span(b.multiply(number, terms), count, last % unroll, is_last)


def _steps(span: Span, unroll: int, step: Callable[[Expression], Statement], ahead: Fetching | None) -> Statement:
    """Return the loop over a span, ``unroll`` terms at a time, and the terms that are left."""
    statements: list[Statement] = []
    if span.count != b.index(0):
        number = Variable("step")
        place = b.add(span.begin, b.multiply(number, unroll))
        terms = [step(b.add(place, term)) for term in range(unroll)]
        fetches = [] if ahead is None else ahead.fetches(number)
        statements.append(For(number, span.count, "serial", Block((*fetches, *terms))))
    place = b.add(span.begin, b.multiply(span.count, unroll))
    rest = Block(tuple(step(b.add(place, term)) for term in range(span.rest)))
    if span.rest:
        statements.append(rest if span.has_rest is None else If(span.has_rest, rest))
    return Block(tuple(statements))


def accumulators(tile: RegisterTile, dtype: str) -> Buffer:
    """Return the registers of a tile."""
    return registers("totals", dtype, tile.rows, tile.columns)


def clear(tile: RegisterTile, initial: Expression) -> Callable[[Buffer], Statement]:
    """Return what sets all accumulators of a tile to one number."""
    start = wide(initial, tile.lanes)
    return begin_with(tile, lambda row, vector: start)


def begin_with(tile: RegisterTile, start: Callable[[int, int], Expression]) -> Callable[[Buffer], Statement]:
    """Return what sets the accumulators of a tile to ``start(row, vector)``."""
    return lambda totals: each(tile, lambda row, vector, place: Store(totals, place, start(row, vector)))


def store_into(tile: RegisterTile, buffer: Buffer, at: Callable[[int, int], Place]) -> Callable[[Buffer], Statement]:
    """Return what stores each vector of accumulators at ``at(row, vector)`` of a buffer."""
    return lambda totals: each(tile, lambda row, vector, place: Store(buffer, at(row, vector), Load(totals, place)))


def each(tile: RegisterTile, body: Callable[[int, int, Place], Statement]) -> Statement:
    """Return ``body(row, vector, its place among the accumulators)`` for each vector of a tile."""
    rows = [enumerate(_places(tile, row)) for row in range(tile.rows)]
    return Block(tuple(body(row, vector, place) for row, vectors in enumerate(rows) for vector, place in vectors))


@dataclass(frozen=True, slots=True)
class Partial:
    """Where the sums of a tile stand between two spans: contiguous in ``buffer``, from ``begin`` on."""

    buffer: Buffer
    begin: Expression
    tile: RegisterTile

    def gather(self, totals: Buffer) -> Statement:
        """Return what adds the sums so far to the accumulators."""
        return self._each(lambda own, place: Store(totals, place, self._joined(own, totals, place)))

    def load(self, totals: Buffer) -> Statement:
        """Return what sets the accumulators to the sums so far."""
        return self._each(lambda own, place: Store(totals, place, Load(self.buffer, own)))

    def add(self, totals: Buffer) -> Statement:
        """Return what adds the accumulators to the sums."""
        return self._each(lambda own, place: Store(self.buffer, own, self._joined(own, totals, place)))

    def store(self, totals: Buffer) -> Statement:
        """Return what keeps the sums."""
        return self._each(lambda own, place: Store(self.buffer, own, Load(totals, place)))

    def _joined(self, own: Place, totals: Buffer, place: Place) -> Expression:
        return joined("add", Load(self.buffer, own), Load(totals, place))

    def _each(self, body: Callable[[Place, Place], Statement]) -> Statement:
        tile = self.tile

        def own(row: int, vector: int) -> Place:
            return (ramp(b.add(self.begin, row * tile.columns + vector * tile.lanes), tile.lanes),)

        return each(tile, lambda row, vector, place: body(own(row, vector), place))


def _places(tile: RegisterTile, row: int) -> list[Place]:
    return [(b.index(row), ramp(vector * tile.lanes, tile.lanes)) for vector in range(tile.vectors)]


def continued(
    sums: Partial, dtype: str, ends: tuple[Expression, Expression], start: Begin, finish: Begin
) -> tuple[Begin, Begin]:
    """Return how a tile starts and finishes whose sums are kept between spans; ``ends``: it is the first, the last."""
    zero = clear(sums.tile, b.constant(0, dtype))
    is_first, is_last = ends
    if dtype != "float32":  # exact, or rounded in an order that its definition says
        return (
            lambda totals: If(is_first, start(totals), sums.load(totals)),
            lambda totals: If(is_last, finish(totals), sums.store(totals)),
        )
    return (
        lambda totals: _begun(is_first, start, zero, totals),
        lambda totals: If(
            is_last,
            Block((sums.gather(totals), finish(totals))),
            If(is_first, sums.store(totals), sums.add(totals)),
        ),
    )


def _begun(is_first: Expression, start: Begin, zero: Begin, totals: Buffer) -> Statement:
    """Return the start of a part of a sum: most sums start from zero in any case."""
    own, other = start(totals), zero(totals)
    return own if own == other else If(is_first, own, other)


def _step(tile: RegisterTile, totals: Buffer, left: Factor, right: Factor, multiply: Product) -> Statement:
    values = [right(v) for v in range(tile.vectors)]
    vectors = [Variable(f"b{v}", value.type) for v, value in enumerate(values)]
    statements: list[Statement] = []
    for row in range(tile.rows):
        value = wide(left(row), tile.lanes)
        scalar = Variable(f"a{row}", value.type)
        updates = [
            Store(totals, place, multiply(scalar, vector, Load(totals, place)))
            for place, vector in zip(_places(tile, row), vectors, strict=True)
        ]
        statements.append(Let(scalar, value, Block(tuple(updates))))
    return bind(zip(vectors, values, strict=True), Block(tuple(statements)))


def finish_tile(
    epilogue: Epilogue,
    tile: RegisterTile,
    totals: Buffer,
    point: Callable[[Expression, Expression], list[Expression]],
    mask: Callable[[int], Expression | None],
    first: int = 0,
    exist: Expression | None = None,
) -> Statement:
    """Return the stores of a tile of sums: written out if the epilogue is short, else in a loop over its rows.

    ``point(row, column)`` gives the output index of the vector that begins at that row and column of the tile. Of
    ``totals`` the vectors from ``first`` on are stored, as many as the tile has, of so many rows as ``exist``: all if
    None.
    """
    lanes, turns = tile.lanes, epilogue.turns

    def row(number: Expression, source: Buffer) -> list[Store]:
        stores: list[Store] = []
        for vector in range(first, first + tile.vectors, turns):
            columns = (ramp((vector + turn) * lanes, lanes) for turn in range(turns))
            total, *others = (Load(source, (number, column)) for column in columns)
            place = point(number, b.index(vector // turns * lanes))
            stores += epilogue.stores(place, total, mask(vector), *others)
        return stores

    if not epilogue.is_heavy:
        rows = [tuple(row(b.index(number), totals)) for number in range(tile.rows)]
        if exist is not None:
            return Block(tuple(If(b.less(b.index(n), exist), Block(stores)) for n, stores in enumerate(rows)))
        return Block(tuple(store for stores in rows for store in stores))
    spilled = scratch("sums", totals.dtype, *totals.shape)
    copies = [
        Store(spilled, place, Load(totals, place))
        for number in range(tile.rows)
        for place in _places(replace(tile, vectors=first + tile.vectors), number)[first:]
    ]
    variable = Variable("row")
    loop = For(variable, exist or b.index(tile.rows), "serial", Block(tuple(row(variable, spilled))))
    return Allocate(spilled, Block((*copies, loop)))
