"""Extents by cases: each minimum and maximum is one of its operands, within narrower ranges.

``min(s, 1)`` is ``s`` where ``s <= 1``, and 1 where ``s >= 2``. An extent is split at its innermost minima and maxima
until it has none, or there are `MOST_CASES`; its interval is the hull of those of its cases, and it is equal to another
where the difference is 0 in each. So ``max(s - min(s + min(s, 1), 1) + min(s, 1), 0)`` is ``s``.

It is sound on any expression: a case that cannot be decided stays a minimum or maximum, bounded by its operands, and
what is assumed of a case is a fact of the bindings that it stands for, negative and empty extents among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from graft.core.affine.atoms import Bounded, extreme, floordiv, operands
from graft.core.affine.counterexamples import sampled
from graft.core.affine.intervals import ANY, Interval, Range, Ranges, bounds, relevant
from graft.core.affine.polynomials import CACHED, TooLargeError, add, multiply, of_terms, subtract, terms
from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol, symbols_of

MOST_CASES = 32
FEW = 4
"""Numbers of a symbol that are tried one by one in a case that is no sum of symbols."""
MOST_EXTREMES = 8
"""Minima and maxima, nested ones too, of an extent that is looked at for something simpler."""
Case: TypeAlias = tuple[Extent, Ranges]
"""What an extent is, and the ranges within which it is that."""


def interval(extent: Extent, ranges: Ranges | None = None) -> Interval:
    """Return bounds of an extent for symbols within ``ranges`` (0 and above where they say nothing)."""
    known = ranges or {}
    found = bounds(extent, known)
    if found[0] == found[1] or not 1 <= len(set(_extremes(extent))) <= MOST_EXTREMES:
        return found
    hulls = [bounds(one, narrower) for one, narrower in _cases(extent, relevant(extent, known))]
    if not hulls:
        return found
    lows, highs = zip(*hulls, strict=True)
    return max(found[0], min(lows)), min(found[1], max(highs))


def simplified(extent: Extent, ranges: Ranges | None = None) -> Extent:
    """Return one of the cases, or a minimum or maximum inside, that an extent is equal to in all; itself if none is."""
    known, inside = ranges or {}, dict.fromkeys(_extremes(extent))
    if not 2 <= len(inside) <= MOST_EXTREMES:
        return extent
    cases = _cases(extent, relevant(extent, known))
    for candidate in dict.fromkeys((*(one for one, _ in cases), *inside)):
        may_be = candidate != extent and _has_value(candidate, known)
        same = may_be and all(one == other for one, other in sampled((extent, candidate), known))
        if same and all(_is_zero(subtract(one, candidate), narrower) for one, narrower in cases):
            return candidate
    return extent


def _has_value(extent: Extent, ranges: Ranges) -> bool:
    """Whether no divisor in an extent can be 0: one of its cases alone may divide by what is 0 in others."""
    if not isinstance(extent, Operation):
        return True
    if extent.operator == "floordiv" and bounds(extent.right, ranges)[0] < 1:
        return False
    return _has_value(extent.left, ranges) and _has_value(extent.right, ranges)


def _is_zero(extent: Extent, ranges: Ranges) -> bool:
    return bounds(extent, ranges) == (0, 0) or interval(extent, ranges) == (0, 0)


@lru_cache(CACHED)
def _cases(extent: Extent, known: tuple[tuple[Extent, Range], ...]) -> tuple[Case, ...]:
    """Return the cases of an extent; together they hold all bindings within the ranges."""
    found: list[Case] = []
    left: list[Case] = [(extent, dict(known))]
    while left:
        one, ranges = left.pop()
        try:
            one = within(one, ranges)
        except TooLargeError:
            return ((extent, dict(known)),)
        except ModelError:  # a divisor is 0: there is no value
            continue
        parts = _split(one, ranges) if len(found) + len(left) + FEW < MOST_CASES else None
        if parts is None:
            found.append((one, ranges))
        else:
            left += parts
    return tuple(found)


def _split(extent: Extent, ranges: Ranges) -> list[Case] | None:
    """Return the cases of an innermost minimum or maximum, or else of a symbol's last numbers; None for no such."""
    atom = next(_extremes(extent), None)
    if atom is None:
        symbol = _of_few_numbers(extent, ranges)
        if symbol is None:
            return None
        low, high = ranges[symbol].low, ranges[symbol].high or 0
        return [(extent, {**ranges, symbol: Range(number, number)}) for number in range(low, high + 1)]
    parts: list[Case] = []
    for kept, other, least in ((atom.left, atom.right, 0), (atom.right, atom.left, 1)):
        more = subtract(other, kept) if atom.operator == "min" else subtract(kept, other)
        narrower = _assuming(ranges, more, least)
        if narrower is not None:
            parts.append((_replaced(extent, atom, kept), narrower))
    return parts


def _replaced(extent: Extent, atom: Operation, other: Extent) -> Extent:
    """Return an extent, not canonical, with an atom replaced wherever it stands."""
    if extent == atom or not isinstance(extent, Operation):
        return other if extent == atom else extent
    return Operation(extent.operator, _replaced(extent.left, atom, other), _replaced(extent.right, atom, other))


def _of_few_numbers(extent: Extent, ranges: Ranges) -> Symbol | None:
    """Return a symbol with few numbers left in an extent that is not linear, which each of them may make simple."""
    if all(len(monomial) < 2 and not any(isinstance(a, Operation) for a in monomial) for monomial, _ in terms(extent)):
        return None
    for symbol in dict.fromkeys(symbols_of(extent)):
        known = ranges.get(symbol, ANY)
        if known.high is not None and known.high - known.low < FEW:
            return symbol
    return None


def _extremes(extent: Extent) -> Iterator[Operation]:
    """Yield the minima and maxima in an extent, inner ones first."""
    if isinstance(extent, Operation):
        yield from _extremes(extent.left)
        yield from _extremes(extent.right)
        if extent.operator in ("min", "max"):
            yield extent


def within(extent: Extent, ranges: Ranges, bounded: Bounded = bounds) -> Extent:
    """Return an extent for symbols within ranges: those of one number replaced, minima and maxima decided by bounds."""
    if isinstance(extent, Symbol):
        known = ranges.get(extent, ANY)
        return known.low if known.low == known.high else extent
    if isinstance(extent, int):
        return extent
    left, right, *others = (within(one, ranges, bounded) for one in operands(extent))
    match extent.operator:
        case "add":
            return add(left, right)
        case "sub":
            return subtract(left, right)
        case "mul":
            return multiply(left, right)
        case "floordiv":
            return floordiv(left, right)
        case "mod":
            return subtract(left, multiply(right, floordiv(left, right)))
        case "min" | "max":
            return extreme(extent.operator, (left, right, *others), ranges, bounded)


def _assuming(ranges: Ranges, extent: Extent, least: int) -> Ranges | None:
    """Return the ranges with the fact that an extent is ``least`` or more; None if it cannot be."""
    low, high = bounds(extent, ranges)
    if high < least:
        return None
    if low >= least:
        return ranges
    products = [(monomial, factor) for monomial, factor in terms(extent) if monomial]
    least -= sum(factor for monomial, factor in terms(extent) if not monomial)
    common = math.gcd(*(factor for _, factor in products))
    products, least = [(monomial, factor // common) for monomial, factor in products], -(-least // common)
    match products:
        case [([Symbol() as symbol], 1)]:
            known = ranges.get(symbol, ANY)
            return {**ranges, symbol: Range(max(known.low, least), known.high)}
        case [([Symbol() as symbol], -1)]:
            known = ranges.get(symbol, ANY)
            return {**ranges, symbol: Range(known.low, -least if known.high is None else min(known.high, -least))}
        case [([Operation("floordiv", dividend, int(divisor))], 1)]:
            return _assuming(ranges, dividend, least * divisor)
        case [([Operation("floordiv", dividend, int(divisor))], -1)]:
            return _assuming(ranges, multiply(-1, dividend), least * divisor - divisor + 1)
    whole = of_terms(products)
    known = ranges.get(whole, Range(least))
    return {**ranges, whole: Range(max(known.low, least), known.high)}
