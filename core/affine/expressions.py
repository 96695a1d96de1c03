"""The algebra of extents at compile time: operations that keep one canonical form, equality and intervals.

`equal` says yes, no, or that it is not known: that a difference is 0, or never is, by the laws of rings
(`graft.core.affine.polynomials`), by what divisions leave (`intervals`) and by cases of minima and maxima (`cases`).
There is no general simplification, whose time nobody can bound: terms, cases and what is tried are limited by numbers.
Symbols are whole numbers of at least 0. All of it is sound wherever an expression has a value: no divisor is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from graft.core.affine import atoms, polynomials
from graft.core.affine.atoms import Extreme, extreme, flat, operands
from graft.core.affine.cases import interval, simplified, within
from graft.core.affine.counterexamples import sampled
from graft.core.affine.intervals import ANY, Range, Ranges
from graft.core.affine.polynomials import CACHED, MOST_TERMS, TooLargeError, terms
from graft.errors import ModelError
from graft.runtime.extents import Extent, ExtentOperator, Operation, Symbol, symbols_of

__all__ = [
    "ANY", "CACHED", "MOST_TERMS", "OPERATIONS", "Range", "Ranges", "TooLargeError", "add", "canonical", "ceildiv",
    "equal", "flat", "floordiv", "interval", "is_at_least", "maximum", "minimum", "modulo", "multiply", "names_in",
    "narrowed", "substituted", "subtract", "terms",
]  # fmt: skip


# ---- Operations: canonical extents in, a canonical extent out ----


def add(*extents: Extent) -> Extent:
    """Return the sum."""
    result: Extent = 0
    for extent in extents:
        result = _add(result, extent)
    return result


def subtract(left: Extent, right: Extent) -> Extent:
    """Return ``left - right``."""
    return _add(left, polynomials.multiply(-1, right))


def multiply(*extents: Extent) -> Extent:
    """Return the product; raise TooLargeError beyond `MOST_TERMS`."""
    result: Extent = 1
    for extent in extents:
        result = polynomials.multiply(result, extent)
    return result


@lru_cache(CACHED)
def floordiv(left: Extent, right: Extent) -> Extent:
    """Return ``left // right``, rounded towards minus infinity; raise ModelError if ``right`` is 0."""
    return simplified(atoms.floordiv(left, right))


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


def _extreme(operator: Extreme, extents: Iterable[Extent]) -> Extent:
    found = extreme(operator, extents, {}, interval)
    is_of_symbols = all(isinstance(one, Symbol | int) for one in flat(operator, found))
    return found if is_of_symbols else simplified(found)


@lru_cache(CACHED)
def _add(left: Extent, right: Extent) -> Extent:
    return simplified(polynomials.add(left, right))


OPERATIONS: Mapping[ExtentOperator, Callable[..., Extent]] = {
    "add": add, "sub": subtract, "mul": multiply, "floordiv": floordiv, "mod": modulo, "min": minimum, "max": maximum,
}  # fmt: skip


@lru_cache(CACHED)
def canonical(extent: Extent) -> Extent:
    """Return the canonical form of any extent."""
    if isinstance(extent, Operation):
        return OPERATIONS[extent.operator](*map(canonical, operands(extent)))
    return extent


def substituted(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    """Return an extent, canonical, with symbols replaced."""
    match extent:
        case Symbol(name):
            return values.get(name, extent)
        case Operation(operator):
            return OPERATIONS[operator](*(substituted(one, values) for one in operands(extent)))
        case _:
            return extent


def narrowed(extent: Extent, ranges: Ranges) -> Extent:
    """Return an extent without minima and maxima that the ranges decide: ``min(seq, 1024)`` is ``seq`` up to 512."""
    try:
        return simplified(within(extent, ranges, interval), ranges) if isinstance(extent, Operation) else extent
    except ModelError:  # too large, or a division by what is 0 there
        return extent


# ---- Questions ----


def equal(left: Extent, right: Extent, ranges: Ranges | None = None) -> bool | None:
    """Whether two extents are equal for all values of their symbols; None if that is not known, or depends."""
    if len({one == other for one, other in sampled((left, right), ranges)}) > 1:
        return None
    low, high = interval(polynomials.subtract(left, right), ranges)
    return True if low == high == 0 else False if low > 0 or high < 0 else None


def is_at_least(extent: Extent, least: int, ranges: Ranges | None = None) -> bool:
    """Whether an extent is known to be ``least`` or more."""
    return all(number >= least for (number,) in sampled((extent,), ranges)) and interval(extent, ranges)[0] >= least


def names_in(extents: Iterable[Extent | None]) -> set[str]:
    """Return the names of all symbols in some extents."""
    return {symbol.name for extent in extents if extent is not None for symbol in symbols_of(extent)}
