"""The algebra of extents at compile time: one canonical form, equality and intervals.

An extent in canonical form is a sum of products of atoms with whole coefficients; atoms are symbols, floor divisions,
minima and maxima, whose operands are canonical too. So extents that are equal by the laws of rings look equal, and
`equal` says yes, no, or that it is not known. There is no general simplification, whose time nobody can bound: a sum
of more than `MOST_TERMS` products is given up. Symbols are whole numbers of at least 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias

from graft.errors import ModelError
from graft.runtime.extents import Extent, ExtentOperator, Operation, Symbol, symbols_of

MOST_TERMS = 64
CACHED = 1 << 15

Monomial: TypeAlias = tuple["Symbol | Operation", ...]
"""Atoms multiplied with each other, sorted; the empty one is 1."""
Polynomial: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Monomials with their coefficients, none of them 0, those of the highest degree first."""


class TooLargeError(ModelError):
    """An extent has too many terms to go on with; whoever computes shapes takes a symbol of its own instead."""


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an extent may be, both bounds included; ``high`` is None where it is open."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


ANY = Range()
Ranges: TypeAlias = Mapping[Extent, Range]
"""By symbol or canonical sum of symbols: ``past + seq`` may have a range beside those of ``past`` and ``seq``."""


# ---- Operations: canonical extents in, a canonical extent out ----


def add(*extents: Extent) -> Extent:
    """Return the sum."""
    result: Extent = 0
    for extent in extents:
        result = _add(result, extent)
    return result


def subtract(left: Extent, right: Extent) -> Extent:
    """Return ``left - right``."""
    return _add(left, multiply(-1, right))


def multiply(*extents: Extent) -> Extent:
    """Return the product; raise TooLargeError beyond `MOST_TERMS`."""
    result: Extent = 1
    for extent in extents:
        result = _multiply(result, extent)
    return result


@lru_cache(CACHED)
def floordiv(left: Extent, right: Extent) -> Extent:
    """Return ``left // right``, rounded towards minus infinity; raise ModelError if ``right`` is 0.

    What divides exactly is divided: ``(batch * seq * 64) // (batch * 8)`` is ``8 * seq``, also where batch is 0.
    """
    if right == 0:
        raise ModelError(f"extent '{left}' is divided by zero")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    exact = _divided(terms(left), terms(right))
    if exact is not None:
        return exact
    if isinstance(right, int) and right > 0:
        return _floordiv_number(terms(left), right)
    common = math.gcd(*(factor for _, factor in (*terms(left), *terms(right))))
    if common > 1:
        return floordiv(_scaled(left, common), _scaled(right, common))
    return Operation("floordiv", left, right)


def ceildiv(left: Extent, right: int) -> Extent:
    """Return ``left / right`` rounded up, for a positive number."""
    return floordiv(add(left, right - 1), right)


def modulo(left: Extent, right: Extent) -> Extent:
    """Return what ``left // right`` leaves, with the sign of ``right``."""
    return subtract(left, multiply(right, floordiv(left, right)))


def minimum(*extents: Extent) -> Extent:
    """Return the least."""
    return _extreme("min", extents)


def maximum(*extents: Extent) -> Extent:
    """Return the greatest."""
    return _extreme("max", extents)


OPERATIONS: Mapping[ExtentOperator, Callable[[Extent, Extent], Extent]] = {
    "add": add, "sub": subtract, "mul": multiply, "floordiv": floordiv, "mod": modulo, "min": minimum, "max": maximum,
}  # fmt: skip


@lru_cache(CACHED)
def canonical(extent: Extent) -> Extent:
    """Return the canonical form of any extent."""
    if isinstance(extent, Operation):
        return OPERATIONS[extent.operator](canonical(extent.left), canonical(extent.right))
    return extent


def substituted(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    """Return an extent, canonical, with symbols replaced."""
    match extent:
        case Symbol(name):
            return values.get(name, extent)
        case Operation(operator, left, right):
            return OPERATIONS[operator](substituted(left, values), substituted(right, values))
        case _:
            return extent


def narrowed(extent: Extent, ranges: Ranges) -> Extent:
    """Return an extent without minima and maxima that the ranges decide: ``min(seq, 1024)`` is ``seq`` up to 512."""
    if not isinstance(extent, Operation):
        return extent
    left, right = narrowed(extent.left, ranges), narrowed(extent.right, ranges)
    if extent.operator in ("min", "max"):
        low, high = interval(subtract(left, right), ranges)
        if high <= 0 or low >= 0:
            return left if (high <= 0) == (extent.operator == "min") else right
    return OPERATIONS[extent.operator](left, right)


# ---- Questions ----


def equal(left: Extent, right: Extent, ranges: Ranges | None = None) -> bool | None:
    """Whether two extents are equal for all values of their symbols; None if that is not known, or depends."""
    difference = subtract(left, right)
    if difference == 0:
        return True
    low, high = interval(difference, ranges)
    return False if low > 0 or high < 0 else None


def interval(extent: Extent, ranges: Ranges | None = None) -> tuple[float, float]:
    """Return bounds of an extent for symbols within ``ranges`` (0 and above where they say nothing)."""
    ranges = ranges or {}
    low, high = _sum_interval(extent, ranges)
    for whole, known in ranges.items():
        if isinstance(whole, Operation):  # extent = whole + rest, and extent = rest - whole
            most = math.inf if known.high is None else known.high
            above, below = _sum_interval(subtract(extent, whole), ranges), _sum_interval(add(extent, whole), ranges)
            low = max(low, known.low + above[0], below[0] - most)
            high = min(high, most + above[1], below[1] - known.low)
    return low, high


def _sum_interval(extent: Extent, ranges: Ranges) -> tuple[float, float]:
    """Return bounds of a sum of products from those of its atoms alone."""
    low: float = 0
    high: float = 0
    for monomial, factor in terms(extent):
        bounds: tuple[float, float] = (1, 1)
        for atom in monomial:
            bounds = _times(bounds, _atom_interval(atom, ranges))
        bounds = _times(bounds, (factor, factor))
        low, high = low + bounds[0], high + bounds[1]
    return low, high


def is_at_least(extent: Extent, least: int, ranges: Ranges | None = None) -> bool:
    """Whether an extent is known to be ``least`` or more."""
    return interval(extent, ranges)[0] >= least


def names_in(extents: Iterable[Extent | None]) -> set[str]:
    """Return the names of all symbols in some extents."""
    return {symbol.name for extent in extents if extent is not None for symbol in symbols_of(extent)}


# ---- The canonical form ----


@lru_cache(CACHED)
def terms(extent: Extent) -> Polynomial:
    """Return a canonical extent as a sum of products."""
    match extent:
        case int():
            return (((), extent),) if extent else ()
        case Operation("add", left, right):
            return _sorted(_summed(terms(left), terms(right)))
        case Operation("mul", left, right):
            return _sorted(_product(terms(left), terms(right)))
        case Operation("sub", left, right):
            return _sorted(_summed(terms(left), _product(terms(right), (((), -1),)).items()))
        case _:
            return (((extent,), 1),)


def _extent(polynomial: Iterable[tuple[Monomial, int]]) -> Extent:
    """Return the canonical extent of a sum of products: subtractions stand where coefficients are negative."""
    ordered = _sorted(dict(polynomial))
    if not ordered:
        return 0
    # what is added comes first, so that a sum begins with a number of at least 0 wherever it can
    result: Extent | None = None
    for monomial, factor in sorted(ordered, key=lambda term: term[1] < 0):
        size = abs(factor) if result is not None else factor
        part: Extent = size if not monomial else reduce(lambda one, other: Operation("mul", one, other), monomial)
        if monomial and size != 1:
            part = Operation("mul", size, part)
        result = part if result is None else Operation("add" if factor > 0 else "sub", result, part)
    assert result is not None
    return result


def _sorted(factors: Mapping[Monomial, int]) -> Polynomial:
    present = [(monomial, factor) for monomial, factor in factors.items() if factor]
    if len(present) > MOST_TERMS:
        raise TooLargeError(f"an extent has {len(present)} terms, more than {MOST_TERMS}")
    return tuple(sorted(present, key=lambda term: _rank(term[0])))


def _rank(monomial: Monomial) -> tuple[int, tuple[tuple[bool, str], ...]]:
    return -len(monomial), tuple(map(_key, monomial))


@lru_cache(CACHED)
def _key(atom: Symbol | Operation) -> tuple[bool, str]:
    return isinstance(atom, Operation), str(atom)


def _summed(left: Polynomial, right: Iterable[tuple[Monomial, int]]) -> dict[Monomial, int]:
    result = dict(left)
    for monomial, factor in right:
        result[monomial] = result.get(monomial, 0) + factor
    return result


def _product(left: Polynomial, right: Polynomial) -> dict[Monomial, int]:
    result: dict[Monomial, int] = {}
    for one, factor in left:
        for other, second in right:
            monomial = tuple(sorted((*one, *other), key=_key))
            result[monomial] = result.get(monomial, 0) + factor * second
    return result


@lru_cache(CACHED)
def _add(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _extent(_summed(terms(left), terms(right)).items())


@lru_cache(CACHED)
def _multiply(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return _extent(_product(terms(left), terms(right)).items())


def _scaled(extent: Extent, divisor: int) -> Extent:
    return _extent((monomial, factor // divisor) for monomial, factor in terms(extent))


def _divided(left: Polynomial, right: Polynomial) -> Extent | None:
    """Return the quotient of two sums of products where one divides the other exactly: division by leading terms."""
    quotient: dict[Monomial, int] = {}
    rest = dict(left)
    (leading, lead), *_ = right
    while rest:
        monomial, factor = next(iter(_sorted(rest)), ((), 0))
        share = _without(monomial, leading)
        if share is None or factor % lead or len(quotient) > MOST_TERMS:
            return None
        quotient[share] = quotient.get(share, 0) + factor // lead
        rest = _summed(tuple(rest.items()), _product(right, ((share, -factor // lead),)).items())
        rest = {monomial: factor for monomial, factor in rest.items() if factor}
    return _extent(quotient.items())


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Return what is left of a monomial without the factors of another, None if it has not got them."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _floordiv_number(dividend: Polynomial, divisor: int) -> Extent:
    """Divide by a positive number: multiples of it are taken out, what is left has coefficients below it.

    That of the first monomial is at most half of it: ``(3*h)//4`` is ``h - (h + 3)//4``.
    """
    outside = [(monomial, factor // divisor) for monomial, factor in dividend]
    inside = [(monomial, factor % divisor) for monomial, factor in dividend if factor % divisor]
    constant = sum(factor for monomial, factor in inside if not monomial)
    varying = [(monomial, factor) for monomial, factor in inside if monomial]
    if not varying:
        return _extent(outside)
    if 2 * varying[0][1] > divisor:
        rounded_up = add(multiply(-1, _extent(inside)), divisor - 1)
        return subtract(_extent(outside), _floordiv_number(terms(rounded_up), divisor))
    common = math.gcd(divisor, *(factor for _, factor in varying))
    reduced = [(monomial, factor // common) for monomial, factor in varying]
    constant, divisor = constant // common, divisor // common
    rest = _extent([*reduced, ((), constant)])
    if divisor == 1:
        return add(_extent(outside), rest)
    match reduced:
        case [([Operation("floordiv", left, int(inner))], 1)] if inner > 0:  # (x//a + c)//b
            return add(_extent(outside), floordiv(add(left, inner * constant), inner * divisor))
    return add(_extent(outside), Operation("floordiv", rest, divisor))


def _extreme(operator: ExtentOperator, extents: Iterable[Extent]) -> Extent:
    """Return the least or the greatest; operands that another one is never beyond are left out."""
    found = dict.fromkeys(part for extent in extents for part in flat(operator, extent))
    sign = 1 if operator == "min" else -1
    kept: list[Extent] = []
    for one in found:
        if not any(_beyond(other, one, sign) for other in kept):
            kept = [other for other in kept if not _beyond(one, other, sign)] + [one]
    kept.sort(key=lambda extent: (isinstance(extent, int), str(extent)))
    return reduce(lambda left, right: Operation(operator, left, right), kept)


def flat(operator: ExtentOperator, extent: Extent) -> Iterator[Extent]:
    """Yield the operands of a minimum or maximum of any number of extents."""
    if isinstance(extent, Operation) and extent.operator == operator:
        yield from flat(operator, extent.left)
        yield from flat(operator, extent.right)
    else:
        yield extent


def _beyond(one: Extent, other: Extent, sign: int) -> bool:
    """Whether ``one`` is never greater (sign 1) or never less (sign -1) than ``other``."""
    low, high = interval(subtract(other, one))
    return low >= 0 if sign == 1 else high <= 0


def _times(left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
    corners = [0 if one == 0 or other == 0 else one * other for one in left for other in right]
    return min(corners), max(corners)


def _atom_interval(atom: Symbol | Operation, ranges: Ranges) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        known = ranges.get(atom, ANY)
        return known.low, math.inf if known.high is None else known.high
    left, right = interval(atom.left, ranges), interval(atom.right, ranges)
    match atom.operator:
        case "min":
            return min(left[0], right[0]), min(left[1], right[1])
        case "max":
            return max(left[0], right[0]), max(left[1], right[1])
        case _:
            return _quotient(left, right)


def _quotient(left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
    """Bounds of a floor division; the divisor is never 0, for that is an error."""
    if right[0] < 0:
        return -math.inf, math.inf
    divisors = (max(right[0], 1), max(right[1], 1))
    corners = [_floored(one, other) for one in left for other in divisors]
    return min(corners), max(corners)


def _floored(left: float, right: float) -> float:
    if math.isinf(left):
        return left
    return (-1 if left < 0 else 0) if math.isinf(right) else left // right
