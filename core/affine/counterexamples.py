"""Extents at a few bindings of their symbols: what one of them contradicts holds not for all, and need not be proven.

Most questions about extents have the answer that it depends, which no proof finds before it has tried everything. Two
bindings say so at once: each symbol at the least that it may be, and all of them at numbers that differ.
"""

from __future__ import annotations

from graft.core.affine.intervals import ANY, Range, Ranges, relevant
from graft.errors import GraftError
from graft.runtime.extents import Extent, Symbol, evaluate, symbols_of

SPREAD = 1009
"""How far the numbers of symbols lie apart: a prime, so that no window or number of heads divides them all."""


def sampled(extents: tuple[Extent, ...], ranges: Ranges | None = None) -> list[tuple[int, ...]]:
    """Return what extents are, together, for some bindings within the ranges for which they all have a value."""
    known = dict(entry for extent in extents for entry in relevant(extent, ranges or {}))
    symbols = dict.fromkeys(symbol for extent in (*extents, *known) for symbol in symbols_of(extent))
    found = []
    for step in (0, SPREAD):
        values = {one.name: _number(known.get(one, ANY), step * place) for place, one in enumerate(symbols, 1)}
        if all(_is_within(whole, one, values) for whole, one in known.items() if not isinstance(whole, Symbol)):
            try:
                found.append(tuple(evaluate(extent, values) for extent in extents))
            except GraftError:  # it divides by zero there, or is beyond what an extent may be
                continue
    return found


def _number(known: Range, offset: int) -> int:
    return known.low + offset if known.high is None else min(known.low + offset, known.high)


def _is_within(whole: Extent, known: Range, values: dict[str, int]) -> bool:
    low, high = known.interval
    return low <= evaluate(whole, values) <= high
