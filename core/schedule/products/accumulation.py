"""The code of a register tile: what its accumulators start from, the steps of a sum, and what becomes of the totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.accumulate import joined
from graft.core.schedule.primitives.statements import multiply_add, over, ramp, registers, scratch, wide
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.fetching import Fetching
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type

EXACT_TERMS = 256
"""So many terms are added one after the other; a longer sum is a sum of such sums, for errors grow with the length
(Higham, "The accuracy of floating point summation", 1993)."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """One loop of the reduction."""

    variable: ir.Variable
    extent: int


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the innermost loop that is summed at one time, in steps of as many terms as a tile unrolls.

    ``count`` steps from ``begin`` on, then ``rest`` terms more, if ``has_rest`` (None: always).
    """

    begin: ir.Expression
    count: ir.Expression
    rest: int
    has_rest: ir.Expression | None = None


def whole_span(extent: int, unroll: int) -> Span:
    """Return the span of a whole loop."""
    return Span(b.index(0), b.index(extent // unroll), extent % unroll)


Place = tuple[ir.Expression, ...]
Begin = Callable[[ir.Buffer], ir.Statement]
Factor = Callable[[int], ir.Expression]
Product = Callable[[ir.Expression, ir.Expression, ir.Expression], ir.Expression]


def accumulate(
    tile: RegisterTile,
    kind: Type,
    begin: Callable[[ir.Buffer], ir.Statement],
    loops: Sequence[Reduced],
    left: Factor,
    right: Factor,
    finish: Callable[[ir.Buffer], ir.Statement],
    span: Span | None = None,
    ahead: Fetching | None = None,
    multiply: Product | None = None,
    exact: int = EXACT_TERMS,
) -> ir.Statement:
    """Return the statement that fills a tile of accumulators and hands it to ``finish``.

    ``left(row)`` is a scalar and ``right(vector)`` a vector of ``tile.lanes``, both in the variables of ``loops``, and
    ``multiply(left, right, sum)`` adds their product to a sum of type ``kind`` (`multiply_add` if None). ``begin`` sets
    the accumulators, a register buffer of ``rows x columns``, to what the sums start from; ``finish`` gets them.
    ``span`` says which part of the last loop is summed: all of it if None. A long sum in float32 is summed in parts of
    ``exact`` terms.
    """
    totals = accumulators(tile, kind.dtype)
    *outer, inner = loops or (Reduced(ir.Variable("once"), 1),)

    def step(place: ir.Expression) -> ir.Statement:
        known = {inner.variable: place}
        return _step(
            tile,
            totals,
            lambda row: substitute(left(row), known),
            lambda vector: substitute(right(vector), known),
            multiply or multiply_add,
        )

    def steps(own: Span, fetched: Fetching | None) -> ir.Statement:
        return _steps(own, tile.unroll, step, fetched)

    if span is not None or kind.dtype != "float32" or math.prod(loop.extent for loop in loops) < 2 * exact:
        body = _around(outer, steps(span or whole_span(inner.extent, tile.unroll), ahead))
        return ir.Allocate(totals, ir.Block((begin(totals), body, finish(totals))))
    part = ir.Variable("part")
    cut, terms = _cut([loop.extent for loop in loops], tile.unroll, exact)
    if loops[cut] is inner:
        following = None if ahead is None else ahead.after(b.multiply(part, terms // tile.unroll))
        body = steps(part_span(inner.extent, terms, tile.unroll, part), following)
    else:
        body = _around(loops[cut + 1 : -1], steps(whole_span(inner.extent, tile.unroll), ahead))
        number, first = ir.Variable("number"), b.multiply(part, terms)
        count = b.minimum(b.index(terms), b.subtract(b.index(loops[cut].extent), first))
        body = ir.For(number, count, "serial", ir.Let(loops[cut].variable, b.add(first, number), body))
    parts = Reduced(part, -(-loops[cut].extent // terms))
    return _sum_of_parts(tile, totals, [*loops[:cut], parts], begin, body, finish)


def _around(loops: Sequence[Reduced], body: ir.Statement) -> ir.Statement:
    """Return the loops of a reduction around ``body``, without those of one iteration."""
    for loop in reversed(loops):
        once = ir.Let(loop.variable, b.index(0), body)
        body = ir.For(loop.variable, b.index(loop.extent), "serial", body) if loop.extent > 1 else once
    return body


def _sum_of_parts(
    tile: RegisterTile, totals: ir.Buffer, loops: Sequence[Reduced], begin: Begin, body: ir.Statement, finish: Begin
) -> ir.Statement:
    """Return the sum of the sums that ``body`` adds to the accumulators in each iteration of the loops over parts."""
    dtype = totals.dtype
    sums = registers("sums", dtype, tile.rows, tile.columns)
    start, zero = begin(sums), clear(tile, b.constant(0.0, dtype))(totals)

    def added(row: int, vector: int, place: Place) -> ir.Statement:
        return ir.Store(sums, place, joined("add", ir.Load(sums, place), ir.Load(totals, place)))

    *outer, parts = loops
    part = ir.Block((zero, body, each(tile, added)))
    body = _around(outer, over(parts.variable, parts.extent, "serial", part))
    return ir.Allocate(sums, ir.Allocate(totals, ir.Block((start, body, finish(sums)))))


def _cut(extents: Sequence[int], unroll: int, exact: int) -> tuple[int, int]:
    """Return the loop to cut, of a nest, and its length in a part, so that a part sums about ``exact`` terms."""
    cut = next(n for n in reversed(range(len(extents))) if n == 0 or math.prod(extents[n:]) > exact)
    most = max(1, exact // math.prod(extents[cut + 1 :]))
    even = -(-extents[cut] // -(-extents[cut] // most))
    return cut, -(-even // unroll) * unroll if cut == len(extents) - 1 else even


def part_span(extent: int, terms: int, unroll: int, number: ir.Expression) -> Span:
    """Return the span of part ``number`` of a loop in parts of ``terms``; the last one may be shorter."""
    parts = -(-extent // terms)
    last = extent - (parts - 1) * terms
    is_last = b.equal(number, parts - 1)
    count: ir.Expression = b.index(terms // unroll)
    if last // unroll != terms // unroll:
        count = b.select(is_last, b.index(last // unroll), count)
    return Span(b.multiply(number, terms), count, last % unroll, is_last)


def _steps(
    span: Span, unroll: int, step: Callable[[ir.Expression], ir.Statement], ahead: Fetching | None
) -> ir.Statement:
    """Return the loop over a span, ``unroll`` terms at a time, and the terms that are left."""
    statements: list[ir.Statement] = []
    if span.count != b.index(0):
        number = ir.Variable("step")
        place = b.add(span.begin, b.multiply(number, unroll))
        terms = [step(b.add(place, term)) for term in range(unroll)]
        fetches = [] if ahead is None else ahead.fetches(number)
        statements.append(ir.For(number, span.count, "serial", ir.Block((*fetches, *terms))))
    place = b.add(span.begin, b.multiply(span.count, unroll))
    rest = ir.Block(tuple(step(b.add(place, term)) for term in range(span.rest)))
    if span.rest:
        statements.append(rest if span.has_rest is None else ir.If(span.has_rest, rest))
    return ir.Block(tuple(statements))


def accumulators(tile: RegisterTile, dtype: str) -> ir.Buffer:
    """Return the registers of a tile."""
    return registers("totals", dtype, tile.rows, tile.columns)


def clear(tile: RegisterTile, initial: ir.Expression) -> Callable[[ir.Buffer], ir.Statement]:
    """Return what sets all accumulators of a tile to one number."""
    start = wide(initial, tile.lanes)
    return begin_with(tile, lambda row, vector: start)


def begin_with(tile: RegisterTile, start: Callable[[int, int], ir.Expression]) -> Callable[[ir.Buffer], ir.Statement]:
    """Return what sets the accumulators of a tile to ``start(row, vector)``."""
    return lambda totals: each(tile, lambda row, vector, place: ir.Store(totals, place, start(row, vector)))


def store_into(
    tile: RegisterTile, buffer: ir.Buffer, at: Callable[[int, int], Place]
) -> Callable[[ir.Buffer], ir.Statement]:
    """Return what stores each vector of accumulators at ``at(row, vector)`` of a buffer."""
    return lambda totals: each(
        tile, lambda row, vector, place: ir.Store(buffer, at(row, vector), ir.Load(totals, place))
    )


def each(tile: RegisterTile, body: Callable[[int, int, Place], ir.Statement]) -> ir.Statement:
    """Return ``body(row, vector, its place among the accumulators)`` for each vector of a tile."""
    rows = [enumerate(_places(tile, row)) for row in range(tile.rows)]
    return ir.Block(tuple(body(row, vector, place) for row, vectors in enumerate(rows) for vector, place in vectors))


@dataclass(frozen=True, slots=True)
class Partial:
    """Where the sums of a tile stand between two spans: contiguous in ``buffer``, from ``begin`` on."""

    buffer: ir.Buffer
    begin: ir.Expression
    tile: RegisterTile

    def gather(self, totals: ir.Buffer) -> ir.Statement:
        """Return what adds the sums so far to the accumulators."""
        return self._each(lambda own, place: ir.Store(totals, place, self._joined(own, totals, place)))

    def load(self, totals: ir.Buffer) -> ir.Statement:
        """Return what sets the accumulators to the sums so far."""
        return self._each(lambda own, place: ir.Store(totals, place, ir.Load(self.buffer, own)))

    def add(self, totals: ir.Buffer) -> ir.Statement:
        """Return what adds the accumulators to the sums."""
        return self._each(lambda own, place: ir.Store(self.buffer, own, self._joined(own, totals, place)))

    def store(self, totals: ir.Buffer) -> ir.Statement:
        """Return what keeps the sums."""
        return self._each(lambda own, place: ir.Store(self.buffer, own, ir.Load(totals, place)))

    def _joined(self, own: Place, totals: ir.Buffer, place: Place) -> ir.Expression:
        return joined("add", ir.Load(self.buffer, own), ir.Load(totals, place))

    def _each(self, body: Callable[[Place, Place], ir.Statement]) -> ir.Statement:
        tile = self.tile

        def own(row: int, vector: int) -> Place:
            return (ramp(b.add(self.begin, row * tile.columns + vector * tile.lanes), tile.lanes),)

        return each(tile, lambda row, vector, place: body(own(row, vector), place))


def _places(tile: RegisterTile, row: int) -> list[Place]:
    return [(b.index(row), ramp(vector * tile.lanes, tile.lanes)) for vector in range(tile.vectors)]


def continued(
    sums: Partial, dtype: str, ends: tuple[ir.Expression, ir.Expression], start: Begin, finish: Begin
) -> tuple[Begin, Begin]:
    """Return how a tile starts and finishes whose sums are kept between spans; ``ends``: it is the first, the last."""
    zero = clear(sums.tile, b.constant(0, dtype))
    is_first, is_last = ends
    if dtype != "float32":  # exact, or rounded in an order that its definition says
        return (
            lambda totals: ir.If(is_first, start(totals), sums.load(totals)),
            lambda totals: ir.If(is_last, finish(totals), sums.store(totals)),
        )
    return (
        lambda totals: _begun(is_first, start, zero, totals),
        lambda totals: ir.If(
            is_last,
            ir.Block((sums.gather(totals), finish(totals))),
            ir.If(is_first, sums.store(totals), sums.add(totals)),
        ),
    )


def _begun(is_first: ir.Expression, start: Begin, zero: Begin, totals: ir.Buffer) -> ir.Statement:
    """Return the start of a part of a sum: most sums start from zero in any case."""
    own, other = start(totals), zero(totals)
    return own if own == other else ir.If(is_first, own, other)


def _step(tile: RegisterTile, totals: ir.Buffer, left: Factor, right: Factor, multiply: Product) -> ir.Statement:
    values = [right(v) for v in range(tile.vectors)]
    vectors = [ir.Variable(f"b{v}", value.type) for v, value in enumerate(values)]
    statements: list[ir.Statement] = []
    for row in range(tile.rows):
        value = wide(left(row), tile.lanes)
        scalar = ir.Variable(f"a{row}", value.type)
        updates = [
            ir.Store(totals, place, multiply(scalar, vector, ir.Load(totals, place)))
            for place, vector in zip(_places(tile, row), vectors, strict=True)
        ]
        statements.append(ir.Let(scalar, value, ir.Block(tuple(updates))))
    return bind(zip(vectors, values, strict=True), ir.Block(tuple(statements)))


def finish_tile(
    epilogue: Epilogue,
    tile: RegisterTile,
    totals: ir.Buffer,
    point: Callable[[ir.Expression, ir.Expression], list[ir.Expression]],
    mask: Callable[[int], ir.Expression | None],
    first: int = 0,
) -> ir.Statement:
    """Return the stores of a tile of sums: written out if the epilogue is short, else in a loop over its rows.

    ``point(row, column)`` gives the output index of the vector that begins at that row and column of the tile. Of
    ``totals`` the vectors from ``first`` on are stored, as many as the tile has.
    """
    lanes, turns = tile.lanes, epilogue.turns

    def row(number: ir.Expression, source: ir.Buffer) -> list[ir.Store]:
        stores: list[ir.Store] = []
        for vector in range(first, first + tile.vectors, turns):
            columns = (ramp((vector + turn) * lanes, lanes) for turn in range(turns))
            total, *others = (ir.Load(source, (number, column)) for column in columns)
            place = point(number, b.index(vector // turns * lanes))
            stores += epilogue.stores(place, total, mask(vector), *others)
        return stores

    if not epilogue.is_heavy:
        return ir.Block(tuple(store for number in range(tile.rows) for store in row(b.index(number), totals)))
    spilled = scratch("sums", totals.dtype, *totals.shape)
    copies = [
        ir.Store(spilled, place, ir.Load(totals, place))
        for number in range(tile.rows)
        for place in _places(replace(tile, vectors=first + tile.vectors), number)[first:]
    ]
    variable = ir.Variable("row")
    loop = ir.For(variable, b.index(tile.rows), "serial", ir.Block(tuple(row(variable, spilled))))
    return ir.Allocate(spilled, ir.Block((*copies, loop)))
