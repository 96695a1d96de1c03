"""Bounds of extents for symbols within ranges: interval arithmetic over sums of products.

`bounds` is sound on every extent wherever that has a value, that is, where no divisor is 0. What interval
arithmetic forgets, that a quotient and its dividend belong together, is put back: ``d*(e//d)`` is ``e`` less a rest
between 0 and the divisor, so ``4*((s + 3)//4) - s`` lies in 0..3. Minima and maxima are bounded by their operands
alone: `graft.core.affine.cases` knows more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias

from graft.core.affine import polynomials
from graft.runtime.extents import Extent, Operation, Symbol, symbols_of

DIVISIONS = 3
"""Quotients that are replaced by their dividends, one after another."""
Interval: TypeAlias = tuple[float, float]
"""Whole numbers or infinities, both included."""
OPEN: Interval = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an extent may be, both bounds included; ``high`` is None where it is open."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"

    @property
    def interval(self) -> Interval:
        """The range as bounds."""
        return self.low, math.inf if self.high is None else self.high


ANY = Range()
Ranges: TypeAlias = Mapping[Extent, Range]
"""By symbol or canonical sum of symbols: ``past + seq`` may have a range beside those of ``past`` and ``seq``."""


def bounds(extent: Extent, ranges: Ranges) -> Interval:
    """Return bounds of a canonical extent for symbols within ``ranges`` (0 and above where they say nothing)."""
    if isinstance(extent, int):
        return extent, extent
    return _bounds(extent, relevant(extent, ranges), DIVISIONS)


def relevant(extent: Extent, ranges: Ranges) -> tuple[tuple[Extent, Range], ...]:
    """Return the ranges that bound an extent: those of its symbols, and of sums that share one with it, or with these.

    A model may have thousands; so what is done with an extent does not grow with them.
    """
    if not ranges:
        return ()
    left = [whole for whole in ranges if isinstance(whole, Operation)]
    found: dict[Extent, None] = dict.fromkeys(symbols_of(extent))
    while met := [whole for whole in left if any(one in found for one in symbols_of(whole))]:
        left = [whole for whole in left if whole not in met]
        for whole in met:
            found[whole] = None
            found |= dict.fromkeys(symbols_of(whole), None)
    return tuple((one, ranges[one]) for one in found if one in ranges)


@lru_cache(polynomials.CACHED)
def _bounds(extent: Extent, known: tuple[tuple[Extent, Range], ...], divisions: int) -> Interval:
    ranges = dict(known)
    found = _sum_bounds(extent, ranges)
    for whole in ranges:
        if isinstance(whole, Operation):
            for factor in _multiples(extent, whole):
                found = _both(found, _with_sum(extent, whole, factor, ranges))
    found = _both(found, _factored(extent, ranges))
    if divisions and found[0] != found[1]:
        for quotient in _quotients(extent):
            found = _both(found, _without_quotient(extent, quotient, known, divisions - 1))
    return found


def _with_sum(extent: Extent, whole: Extent, factor: int, ranges: Ranges) -> Interval:
    """Return bounds of ``factor`` times a sum whose range is known and of what is left."""
    try:
        rest = polynomials.subtract(extent, polynomials.multiply(factor, whole))
    except polynomials.TooLargeError:
        return OPEN
    of_symbols: Ranges = {
        one: known for one, known in ranges.items() if isinstance(one, Symbol)
    }  # else it would not end
    return _plus(_times((factor, factor), ranges[whole].interval), _sum_bounds(rest, of_symbols))


def _multiples(extent: Extent, whole: Extent) -> set[int]:
    """Return the numbers of times that a sum may stand in another: once, taken away once, by its leading term."""
    (leading, lead), *_ = polynomials.terms(whole)
    factor = dict(polynomials.terms(extent)).get(leading, 0)
    return {1, -1, factor // lead} - {0} if factor % lead == 0 else {1, -1}


def _sum_bounds(extent: Extent, ranges: Ranges) -> Interval:
    """Return bounds of a sum of products from those of its atoms alone."""
    result: Interval = (0, 0)
    for monomial, factor in polynomials.terms(extent):
        result = _plus(result, _times(_product_bounds(monomial, ranges), (factor, factor)))
    return result


def _product_bounds(monomial: polynomials.Monomial, ranges: Ranges) -> Interval:
    result: Interval = (1, 1)
    for atom in monomial:
        result = _times(result, _atom_bounds(atom, ranges))
    return result


def _atom_bounds(atom: Symbol | Operation, ranges: Ranges) -> Interval:
    if isinstance(atom, Symbol):
        return ranges.get(atom, ANY).interval
    left, right = bounds(atom.left, ranges), bounds(atom.right, ranges)
    match atom.operator:
        case "min":
            return min(left[0], right[0]), min(left[1], right[1])
        case "max":
            return max(left[0], right[0]), max(left[1], right[1])
        case "floordiv":
            return _quotient_bounds(left, right)
        case "mod":  # in an extent that is not canonical
            return _rest_bounds(right)
        case "add" | "sub" | "mul":
            raise AssertionError(f"'{atom}' is no atom")


def _factored(extent: Extent, ranges: Ranges) -> Interval:
    """Return bounds of a sum whose products have atoms in common: ``b*s - 8*b`` is ``b*(s - 8)``."""
    products = polynomials.terms(extent)
    if len(products) < 2:
        return OPEN
    common = reduce(polynomials.shared, (monomial for monomial, _ in products))
    if not common:
        return OPEN
    rest = polynomials.of_terms((polynomials.without(monomial, common) or (), factor) for monomial, factor in products)
    return _times(_product_bounds(common, ranges), _sum_bounds(rest, ranges))


# ---- Quotients ----


def _quotients(extent: Extent) -> Iterator[Operation]:
    """Yield the floor divisions that a sum of products has as factors."""
    found = {atom: None for monomial, _ in polynomials.terms(extent) for atom in monomial}
    for atom in found:
        if isinstance(atom, Operation) and atom.operator == "floordiv":
            yield atom


def _without_quotient(
    extent: Extent, quotient: Operation, known: tuple[tuple[Extent, Range], ...], divisions: int
) -> Interval:
    """Return bounds of ``a*(e//d) + b`` from ``d*(e//d) == e - rest``, times d where that is a number."""
    inside = [(monomial, factor) for monomial, factor in polynomials.terms(extent) if quotient in monomial]
    shares = [(polynomials.without(monomial, (quotient,)) or (), factor) for monomial, factor in inside]
    if any(quotient in share for share, _ in shares) or (isinstance(quotient.right, int) and quotient.right < 1):
        return OPEN
    factor, other = polynomials.of_terms(shares), polynomials.subtract(extent, polynomials.of_terms(inside))
    dividend, divisor = quotient.left, quotient.right
    ranges = dict(known)
    try:
        if isinstance(divisor, int):
            whole, scale = (
                polynomials.add(polynomials.multiply(factor, dividend), polynomials.multiply(divisor, other)),
                divisor,
            )
        else:
            share = polynomials.divided(polynomials.terms(factor), polynomials.terms(divisor))
            if share is None:
                return OPEN
            factor, whole, scale = share, polynomials.add(polynomials.multiply(share, dividend), other), 1
    except polynomials.TooLargeError:
        return OPEN
    rest = _times(bounds(factor, ranges), _rest_bounds(bounds(divisor, ranges)))
    low, high = _plus(_bounds(whole, known, divisions), (-rest[1], -rest[0]))
    return (low if math.isinf(low) else -(-low // scale)), (high if math.isinf(high) else high // scale)


def _quotient_bounds(left: Interval, right: Interval) -> Interval:
    """Bounds of a floor division; the divisor is never 0, for that is an error."""
    parts = []
    if right[1] > 0:
        parts.append((left, (max(right[0], 1), right[1])))
    if right[0] < 0:
        parts.append(((-left[1], -left[0]), (max(-right[1], 1), -right[0])))
    corners = [_floored(one, other) for upper, lower in parts for one in upper for other in lower]
    return (min(corners), max(corners)) if corners else OPEN


def _rest_bounds(divisor: Interval) -> Interval:
    """Bounds of what a floor division leaves: it has the sign of the divisor."""
    return min(divisor[0] + 1, 0), max(divisor[1] - 1, 0)


def _floored(left: float, right: float) -> float:
    if math.isinf(left):
        return left
    return (-1 if left < 0 else 0) if math.isinf(right) else left // right


# ---- Intervals ----


def _plus(left: Interval, right: Interval) -> Interval:
    return left[0] + right[0], left[1] + right[1]


def _times(left: Interval, right: Interval) -> Interval:
    corners = [0 if one == 0 or other == 0 else one * other for one in left for other in right]
    return min(corners), max(corners)


def _both(left: Interval, right: Interval) -> Interval:
    """Return what two intervals share, each of which is right."""
    return max(left[0], right[0]), min(left[1], right[1])
