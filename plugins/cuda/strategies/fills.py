"""Factors of products brought to shared memory: copied past the registers, or computed where they are not plain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.frames import ACCESS, WRITTEN_OUT, places
from graft.plugins.cuda.strategies.product_parts import Factor
from graft.plugins.cuda.strategies.tiles import LINE

PATTERN = 1024
"""Bytes after which what is swizzled repeats, and where it begins."""
PAD = 4
"""Elements behind a line of a tile of numbers for threads, so that its columns are in different banks."""


@dataclass(frozen=True)
class Tile:
    """``lines`` of a factor in shared memory, ``terms`` of each.

    For threads (not ``by_tensors``) neighbouring lines lie together, term after term. For tensor instructions lines
    have their terms in one piece, but a factor of 16 bits that lies the other way in memory stays so (`is_transposed`).
    """

    name: str
    dtype: str
    lines: int
    terms: int
    by_tensors: bool = False
    is_transposed: bool = False
    is_swizzled: bool = False
    """For a warpgroup: lines of 128 bytes, 16-byte parts in the order of their number xor that of the line of eight."""

    @property
    def across(self) -> int:
        """The elements of a swizzled line."""
        return LINE * 8 // element_bits(self.dtype)

    @property
    def part(self) -> int:
        """The elements of 16 bytes."""
        return ACCESS * 8 // element_bits(self.dtype)

    @cached_property
    def buffer(self) -> ir.Buffer:
        """The shared memory: a pad behind each row keeps what is read at one time in different banks."""
        outer, inner = (
            (self.lines, self.terms) if self.by_tensors and not self.is_transposed else (self.terms, self.lines)
        )
        pad = 0 if self.is_swizzled else self.part if self.by_tensors else PAD
        shape: tuple[int, ...] = outer, inner + pad
        if self.is_swizzled and self.is_transposed:
            shape = self.lines // self.across, self.terms, self.across
        alignment = PATTERN if self.is_swizzled else ACCESS
        return ir.Buffer(self.name, self.dtype, tuple(map(b.index, shape)), memory="shared", alignment=alignment)

    def place(self, line: ir.Expression, term: ir.Expression) -> tuple[ir.Expression, ...]:
        """Return where an element lies."""
        if self.is_swizzled and self.is_transposed:
            return (b.divide(line, self.across), term, self._swizzled(b.modulo(line, self.across), term))
        if self.is_swizzled:
            return (line, self._swizzled(term, line))
        return (line, term) if self.by_tensors and not self.is_transposed else (term, line)

    def _swizzled(self, place: ir.Expression, line: ir.Expression) -> ir.Expression:
        """Return where an element of a line of 128 bytes lies within it."""
        moved = ir.Binary("xor", b.divide(place, self.part), b.modulo(line, 8))
        return b.add(b.multiply(moved, self.part), b.modulo(place, self.part))


@dataclass(frozen=True)
class Fill:
    """Brings a tile of a factor to shared memory.

    ``is_copied`` says that it lies as it is stored, and may be copied past the registers, ``is_whole`` that there are
    no fewer terms than stages have places for.
    """

    tile: Tile
    factor: Factor
    is_copied: bool = False
    is_whole: bool = False

    @property
    def _follows(self) -> bool:
        """Whether neighbours in memory are neighbours in shared memory."""
        return self.factor.goes_by_terms == (self.tile.by_tensors and not self.tile.is_transposed)

    def turns(self, threads: int) -> str:
        """Return the step that writes out the turns of a block's threads, where they are few."""
        turns = -(-self.tile.lines * self.tile.terms // self._lanes() // threads)
        return f"unroll {self.tile.name}.fill.turn\n" if 1 < turns <= WRITTEN_OUT else ""

    def statement(
        self, begin: ir.Expression, first: ir.Expression, batch: Mapping[ir.Variable, ir.Expression]
    ) -> ir.Statement:
        """Return what brings the lines from ``begin`` and the terms from ``first`` on: a parallel loop."""
        factor, tile, lanes, by_terms = self.factor, self.tile, self._lanes(), self.factor.goes_by_terms
        outer, inner = (tile.lines, tile.terms // lanes) if by_terms else (tile.terms, tile.lines // lanes)
        number = ir.Variable(f"{tile.name}.fill")
        slow, quick = places(number, (outer, inner))
        line, term = (slow, b.multiply(quick, lanes)) if by_terms else (b.multiply(quick, lanes), slow)
        whole = b.add(first, term)
        place = _clamped(b.add(begin, line), factor.own.count, 1 if by_terms else lanes)
        inside = None if self.is_whole else b.less(whole, b.extent(factor.terms.count))
        if inside is not None and not self.is_copied:
            whole = _clamped(whole, factor.terms.count, lanes if by_terms else 1)
        at = {**batch, **factor.own.at(place), **factor.terms.at(whole)}
        body = self._stored(self._value(at, lanes, inside), lanes, line, term)
        return loops_over([(number, b.index(outer * inner))], body, "parallel")

    def _value(self, at: dict[ir.Variable, ir.Expression], lanes: int, inside: ir.Expression | None) -> ir.Expression:
        factor = self.factor
        inner = (factor.terms if factor.goes_by_terms else factor.own).variables
        vector = {inner[-1]: ir.Ramp(at[inner[-1]], 1, lanes)} if lanes > 1 else {}
        is_exact = factor.exact.type.dtype == self.tile.dtype
        value = b.cast(
            vectorize_expression(factor.exact if is_exact else factor.value, {**at, **vector}), self.tile.dtype
        )
        if inside is None:
            return value
        if self.is_copied:
            assert isinstance(value, ir.Load), "what is copied is an element"
            return replace(value, mask=wide(inside, lanes))
        return b.select(wide(inside, lanes), value, wide(b.constant(0, self.tile.dtype), lanes))

    def _stored(
        self,
        value: ir.Expression,
        lanes: int,
        line: ir.Expression,
        term: ir.Expression,
    ) -> ir.Statement:
        *outer, last = self.tile.place(line, term)
        if lanes == 1 or self._follows:
            return ir.Store(self.tile.buffer, (*outer, ir.Ramp(last, 1, lanes) if lanes > 1 else last), value)
        kept = ir.Variable("kept", value.type)
        stores = []
        for lane in range(lanes):
            one = (line, b.add(term, lane)) if self.factor.goes_by_terms else (b.add(line, lane), term)
            stores.append(ir.Store(self.tile.buffer, self.tile.place(*one), ir.Shuffle((kept,), (lane,))))
        return ir.Let(kept, value, ir.Block(tuple(stores)))

    def _lanes(self) -> int:
        """Return how many neighbours a thread brings at one time."""
        if self.is_copied:
            size = element_bits(self.tile.dtype) // 8
            return copied_bytes(self.factor, self.tile.dtype, by_tensors=self.tile.by_tensors) // size
        size = max(element_bits(self.factor.exact.type.dtype), element_bits(self.tile.dtype)) // 8
        lanes = min(ACCESS // size, self.tile.terms if self.factor.goes_by_terms else self.tile.lines)
        while lanes > 1 and not (self.factor.groups(lanes) and self.tile.lines * self.tile.terms % lanes == 0):
            lanes //= 2
        return lanes


def is_transposed(factor: Factor, dtype: str) -> bool:
    """Whether a factor for tensor instructions lies in shared memory with its own lines inside."""
    return not factor.goes_by_terms and element_bits(dtype) == 16


def copied_bytes(factor: Factor, dtype: str, *, by_tensors: bool) -> int:
    """Return how many bytes of a factor can be copied at one time to shared memory as they are, 0 if none can."""
    size = element_bits(dtype) // 8
    if factor.plain is None or factor.exact.type.dtype != dtype:
        return 0
    follows = (factor.goes_by_terms or size == 2) if by_tensors else not factor.goes_by_terms
    lanes = ACCESS // size if follows else 1
    while lanes > 1 and not factor.groups(lanes):
        lanes //= 2
    return lanes * size if lanes * size >= 4 else 0


def _clamped(place: ir.Expression, count: Count, lanes: int) -> ir.Expression:
    """Return a place of which it and its neighbours exist."""
    last = count - lanes if isinstance(count, int) else b.subtract(count, lanes)
    return b.minimum(place, b.extent(last))


def behind(fills: Iterable[object], threads: int, stages: int, staged: str) -> str:
    """Return the steps behind that which shares a block's loops among its threads, for some ``stages``."""
    written = "".join(one.turns(threads) for one in fills if isinstance(one, Fill))
    return written + (f"pipeline_async step {stages} {staged}\n" if stages > 1 else "")
