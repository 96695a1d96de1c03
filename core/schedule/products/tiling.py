"""Register tiles: the inner kernel of every sum of products, and how work is cut into such tiles.

A tile is ``rows x vectors`` accumulators in registers. Each step of the reduction loads ``vectors`` vectors of the
right operand, broadcasts ``rows`` scalars of the left one and does ``rows * vectors`` fused multiply-adds: with enough
accumulators the multiply-adds, not the loads, are the limit (Goto and van de Geijn, "Anatomy of high-performance
matrix multiplication", 2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from graft.core.machine.machine import Costs
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.accumulate import joined
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.statements import bind, multiply_add, over, ramp, registers, scratch, wide
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
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64, Type, element_bits, is_custom

MAX_VECTORS, MAX_ROWS, MAX_UNROLL = 8, 32, 16
CUSTOM_REGISTERS = 11
"""Registers for a tile of a custom datatype: its roundings need the others, and are as much code as the rest."""
UNROLL = 2
"""Terms of a sum that one pass of the innermost loop adds, where no machine is asked."""
EXACT_TERMS = 256
"""So many terms are added one after the other; a longer sum is a sum of such sums, for errors grow with the length
(Higham, "The accuracy of floating point summation", 1993)."""
SECOND_LEVEL = Constant(2, INT64)
"""The cache into which panels are fetched ahead of use, as ``prefetch`` counts: 3 is the first level."""
SPLIT_CYCLES = 0.75
"""What it takes to split a vector of bytes into even and odd ones (Zen 3)."""


@dataclass(frozen=True, slots=True)
class Split:
    """A length cut into ``count`` pieces that differ by at most one: ``larger`` of ``size + 1``, then of ``size``."""

    count: int
    size: int
    larger: int

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The (number of pieces, size) that occur, in order."""
        rows = ((self.larger, self.size + 1), (self.count - self.larger, self.size))
        return tuple(row for row in rows if row[0])

    def begin(self, piece: Expression) -> Expression:
        """Return where a piece begins."""
        start = b.multiply(piece, self.size)
        return b.add(start, b.minimum(piece, b.index(self.larger))) if self.larger else start

    def length(self, piece: Expression) -> Expression:
        """Return the length of a piece."""
        if not self.larger:
            return b.index(self.size)
        return b.select(b.less(piece, self.larger), b.index(self.size + 1), self.size)

    def choose(self, piece: Expression, body: Callable[[int], Statement]) -> Statement:
        """Return ``body(size)`` for the size of a piece."""
        bodies = [body(size) for _, size in self.sizes]
        return bodies[0] if len(bodies) == 1 else If(b.less(piece, self.larger), *bodies)


def split_evenly(length: int, most: int) -> Split:
    """Cut ``length`` into as few pieces of at most ``most`` as possible, all about equally long."""
    count = max(1, -(-length // most))
    return Split(count, length // count, length % count)


def halves(height: int) -> list[int]:
    """Return a height, half of it, a quarter of it and so on, down to 1: what is left over goes in few tiles."""
    return [height >> shift for shift in range(height.bit_length())]


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The shape of a register tile: ``rows`` scalars times ``vectors`` vectors of ``lanes`` elements.

    One pass of its loop adds ``unroll`` terms.
    """

    rows: int
    vectors: int
    lanes: int
    unroll: int = UNROLL

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return self.vectors * self.lanes


def lanes_of(dtype: str, target: Target) -> int:
    """Return how many elements a vector register of the target holds."""
    return max(1, target.vector_bytes * 8 // element_bits(dtype))


@cache
def choose_tile(rows: int, columns: int, dtype: str, target: Target, busy: int = 0) -> RegisterTile:
    """Return the tile whose steps, over all tiles of a ``rows x columns`` result, take the fewest cycles.

    ``busy`` registers are needed for other things.
    """
    return ranked_tiles(rows, columns, dtype, target, busy)[0][1]


def emulating(target: Target) -> Target:
    """Return a target with the costs of products of bytes by pairs of 16 bits, even and odd ones apart."""
    own = target.machine.costs
    costs = replace(own, fused=own.fused / 2, load=own.load + SPLIT_CYCLES)
    return replace(target, machine=replace(target.machine, costs=costs))


def ranked_tiles(rows: int, columns: int, dtype: str, target: Target, busy: int = 0) -> list[Ranked]:
    """Return all tiles that fit the registers with the cycles of a step over the result, the fewest first."""
    lanes, costs = lanes_of(dtype, target), target.machine.costs
    registers = CUSTOM_REGISTERS if is_custom(dtype) else target.machine.registers - busy
    total = -(-columns // lanes)
    unroll = 1 if is_custom(dtype) else target.machine.unroll
    found: list[Ranked] = []
    for vectors in range(1, min(MAX_VECTORS, total) + 1):
        # One register is left for the broadcast scalar, and one so that the next can be loaded ahead.
        # Where even the least tile does not fit, registers are saved.
        fits = max((registers - 2 - vectors) // vectors, int(vectors == 1))
        for height in range(1, min(rows, fits) + 1):
            across = total // vectors * _cycles_down(rows, height, vectors, costs)
            if total % vectors:
                across += _cycles_down(rows, height, total % vectors, costs)
            found.append((across, RegisterTile(height, vectors, lanes, unroll)))
    assert found, (rows, columns, dtype)
    return sorted(found, key=lambda row: (row[0], -row[1].vectors, -row[1].rows))


def adjusted_tile(
    tile: RegisterTile, height: int, width: int, rows: int | None, vectors: int | None, unroll: int | None = None
) -> RegisterTile:
    """Return a tile with what is given in place of its own, as far as it fits a ``height x width`` result."""
    return RegisterTile(
        min(rows or tile.rows, height, MAX_ROWS),
        min(vectors or tile.vectors, -(-width // tile.lanes), MAX_VECTORS),
        tile.lanes,
        min(unroll or tile.unroll, MAX_UNROLL),
    )


def _cycles_down(rows: int, height: int, vectors: int, costs: Costs) -> float:
    return sum(count * _cycles(size, vectors, costs) for count, size in split_evenly(rows, height).sizes)


def _cycles(rows: int, vectors: int, costs: Costs) -> float:
    """The cycles of one step.

    What each load costs besides was fitted to races of twelve tiles on 24 products and convolutions (AVX-512, Zen 4).
    """
    multiplies, loads = rows * vectors / costs.fused, (rows + vectors) / costs.loads
    return max(multiplies, loads, costs.latency) + costs.load * (rows + vectors)


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


Ranked = tuple[float, RegisterTile]
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

    def around(loops: Sequence[Reduced], body: Statement) -> Statement:
        for loop in reversed(loops):
            once = Let(loop.variable, b.index(0), body)
            body = For(loop.variable, b.index(loop.extent), "serial", body) if loop.extent > 1 else once
        return body

    if span is not None or kind.dtype != "float32" or math.prod(loop.extent for loop in loops) < 2 * exact:
        body = around(outer, _steps(span or whole_span(inner.extent, tile.unroll), tile.unroll, step, ahead))
        return Allocate(totals, Block((begin(totals), body, finish(totals))))
    part = Variable("part")
    cut, terms = _cut([loop.extent for loop in loops], tile.unroll, exact)
    if loops[cut] is inner:
        span, steps = part_span(inner.extent, terms, tile.unroll, part), b.multiply(part, terms // tile.unroll)
        body = _steps(span, tile.unroll, step, None if ahead is None else ahead.after(steps))
    else:
        body = around(loops[cut + 1 : -1], _steps(whole_span(inner.extent, tile.unroll), tile.unroll, step, ahead))
        number = Variable("number")
        first = b.multiply(part, terms)
        count = b.minimum(b.index(terms), b.subtract(b.index(loops[cut].extent), first))
        body = For(number, count, "serial", Let(loops[cut].variable, b.add(first, number), body))
    sums = scratch("sums", kind.dtype, tile.rows * tile.columns)
    kept, zero = Partial(sums, b.index(0), tile), clear(tile, b.constant(0.0, kind.dtype))
    counts = (*(loop.extent for loop in loops[:cut]), -(-loops[cut].extent // terms))
    numbers = (*(loop.variable for loop in loops[:cut]), part)
    is_first, is_last = (
        b.all_of(
            [b.equal(number, at * (count - 1)) for number, count in zip(numbers, counts, strict=True) if count > 1]
        )
        for at in (0, 1)
    )
    assert is_first is not None and is_last is not None, "a long sum of one part"
    start = _begun(is_first, begin, zero, totals)
    end = If(is_last, Block((kept.gather(totals), finish(totals))), If(is_first, kept.store(totals), kept.add(totals)))
    body = around(loops[:cut], over(part, counts[-1], "serial", Block((start, body, end))))
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
