"""Factors of products brought to shared memory: copied past the registers, or computed where they are not plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.frames import ACCESS, block_of, repeated
from graft.plugins.cuda.strategies.product_parts import Factor
from graft.plugins.cuda.strategies.tiles import LINE

PATTERN = 1024
"""Bytes after which what is swizzled repeats, and where it begins."""
PAD = 4
"""Elements behind a line of a tile of numbers for threads, so that its columns are in different banks."""


@dataclass(frozen=True)
class Fill:
    """Brings ``lines`` of a factor, ``terms`` of each, to shared memory: ``slots`` such stages are there.

    For threads (not ``by_tensors``) neighbouring lines lie together, term after term. For tensor instructions lines
    have their terms in one piece, but a factor of 16 bits that lies the other way in memory stays so. ``is_whole`` says
    that there are no fewer terms than stages have places for.
    """

    name: str
    factor: Factor
    dtype: str
    lines: int
    terms: int
    threads: int
    thread: ir.Variable
    by_tensors: bool
    slots: int = 1
    is_copied: bool = False
    is_whole: bool = False
    is_swizzled: bool = False
    """For a warpgroup: lines of 128 bytes, 16-byte parts in the order of their number xor that of the line of eight."""

    @property
    def is_transposed(self) -> bool:
        """Whether lines for tensor instructions lie together."""
        return self.by_tensors and is_transposed(self.factor, self.dtype)

    def buffer(self) -> ir.Buffer:
        """Return the shared memory: a pad behind each row keeps what is read at one time in different banks."""
        if self.is_swizzled:
            across = LINE * 8 // element_bits(self.dtype)
            transposed = (self.lines // across, self.terms, across)
            places = (self.slots, *(transposed if self.is_transposed else (self.lines, across)))
            return ir.Buffer(self.name, self.dtype, tuple(map(b.index, places)), memory="shared", alignment=PATTERN)
        pad = ACCESS * 8 // element_bits(self.dtype) if self.by_tensors else PAD
        inner_lines = self.is_transposed or not self.by_tensors
        shape = (self.terms, self.lines + pad) if inner_lines else (self.lines, self.terms + pad)
        extents = tuple(map(b.index, (self.slots, *shape)))
        return ir.Buffer(self.name, self.dtype, extents, memory="shared", alignment=ACCESS)

    def place(self, slot: ir.Expression, line: ir.Expression, term: ir.Expression) -> tuple[ir.Expression, ...]:
        """Return where an element lies."""
        if self.is_swizzled and self.is_transposed:
            across = LINE * 8 // element_bits(self.dtype)
            return (slot, b.divide(line, across), term, self._swizzled(b.modulo(line, across), term))
        if self.is_swizzled:
            return (slot, line, self._swizzled(term, line))
        return (slot, term, line) if self.is_transposed or not self.by_tensors else (slot, line, term)

    def _swizzled(self, place: ir.Expression, line: ir.Expression) -> ir.Expression:
        """Return where an element of a line of 128 bytes lies within it."""
        part = ACCESS * 8 // element_bits(self.dtype)
        moved = ir.Binary("xor", b.divide(place, part), b.modulo(line, 8))
        return b.add(b.multiply(moved, part), b.modulo(place, part))

    @property
    def _follows(self) -> bool:
        """Whether neighbours in memory are neighbours in shared memory."""
        return self.factor.goes_by_terms == (self.by_tensors and not self.is_transposed)

    def statement(
        self,
        target: ir.Buffer,
        slot: ir.Expression,
        begin: ir.Expression,
        first: ir.Expression,
        batch: Mapping[ir.Variable, ir.Expression],
    ) -> ir.Statement:
        """Return what brings the lines from ``begin`` and the terms from ``first`` on."""
        factor, lanes, by_terms = self.factor, self._lanes(), self.factor.goes_by_terms
        fast = (self.terms if by_terms else self.lines) // lanes
        groups = self.lines * self.terms // lanes
        turn = ir.Variable("turn")
        number = b.add(b.multiply(turn, self.threads), self.thread)
        quick, slow = b.multiply(b.modulo(number, fast), lanes), b.divide(number, fast)
        line, term = (slow, quick) if by_terms else (quick, slow)
        whole = b.add(first, term)
        place = _clamped(b.add(begin, line), factor.own.count, 1 if by_terms else lanes)
        inside = None if self.is_whole else b.less(whole, b.extent(factor.terms.count))
        if inside is not None:
            whole = _clamped(whole, factor.terms.count, lanes if by_terms else 1)
        at = {**batch, **factor.own.at(place), **factor.terms.at(whole)}
        if self.is_copied:
            source = factor.value_at(at, exact=True)
            assert isinstance(source, ir.Load), "what is copied is an element"
            size = ir.Constant(lanes * element_bits(self.dtype) // 8, b.index(0).type)
            body: ir.Statement = ir.CallExtern(
                "copy_async", (ir.Load(target, self.place(slot, line, term)), source, size)
            )
        else:
            body = self._stored(target, self._value(at, lanes, inside), lanes, slot, line, term)
        if groups % self.threads:
            body = ir.If(b.less(number, groups), body)
        return repeated(turn, -(-groups // self.threads), body)

    def _value(self, at: dict[ir.Variable, ir.Expression], lanes: int, inside: ir.Expression | None) -> ir.Expression:
        factor = self.factor
        inner = (factor.terms if factor.goes_by_terms else factor.own).variables
        vector = {inner[-1]: ir.Ramp(at[inner[-1]], 1, lanes)} if lanes > 1 else {}
        is_exact = factor.exact.type.dtype == self.dtype
        value = b.cast(vectorize_expression(factor.exact if is_exact else factor.value, {**at, **vector}), self.dtype)
        if inside is None:
            return value
        return b.select(wide(inside, lanes), value, wide(b.constant(0, self.dtype), lanes))

    def _stored(
        self,
        target: ir.Buffer,
        value: ir.Expression,
        lanes: int,
        slot: ir.Expression,
        line: ir.Expression,
        term: ir.Expression,
    ) -> ir.Statement:
        *outer, last = self.place(slot, line, term)
        if lanes == 1 or self._follows:
            return ir.Store(target, (*outer, ir.Ramp(last, 1, lanes) if lanes > 1 else last), value)
        kept = ir.Variable("kept", value.type)
        stores = []
        for lane in range(lanes):
            one = (line, b.add(term, lane)) if self.factor.goes_by_terms else (b.add(line, lane), term)
            stores.append(ir.Store(target, self.place(slot, *one), ir.Shuffle((kept,), (lane,))))
        return ir.Let(kept, value, block_of(stores))

    def _lanes(self) -> int:
        """Return how many neighbours a thread brings at one time."""
        if self.is_copied:
            size = element_bits(self.dtype) // 8
            return copied_bytes(self.factor, self.dtype, by_tensors=self.by_tensors) // size
        size = max(element_bits(self.factor.exact.type.dtype), element_bits(self.dtype)) // 8
        lanes = min(ACCESS // size, self.terms if self.factor.goes_by_terms else self.lines)
        while lanes > 1 and not (self.factor.groups(lanes) and self.lines * self.terms % lanes == 0):
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
