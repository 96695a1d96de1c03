"""Floor divisions, minima and maxima in canonical form: they become sums where they can, atoms of sums elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, reduce
from typing import Literal, TypeAlias

from graft.core.affine import polynomials
from graft.core.affine.intervals import Interval, Ranges, bounds
from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol

Extreme: TypeAlias = Literal["min", "max"]
Bounded: TypeAlias = Callable[[Extent, Ranges], Interval]
"""What bounds an extent within ranges."""


@lru_cache(polynomials.CACHED)
def floordiv(left: Extent, right: Extent) -> Extent:
    """Return ``left // right``, rounded towards minus infinity; raise ModelError if ``right`` is 0.

    What divides exactly is divided, and what both sides are multiples of: ``(batch * seq * 64) // (batch * 8)`` is
    ``8 * seq``, also where batch is 0.
    """
    if right == 0:
        raise ModelError(f"extent '{left}' is divided by zero")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    exact = polynomials.divided(polynomials.terms(left), polynomials.terms(right))
    if exact is not None:
        return exact
    if isinstance(right, int):
        return _by_number(polynomials.terms(left if right > 0 else polynomials.multiply(-1, left)), abs(right))
    products = (*polynomials.terms(left), *polynomials.terms(right))
    common, factor = (
        reduce(polynomials.shared, (monomial for monomial, _ in products)),
        math.gcd(*(one for _, one in products)),
    )
    if common or factor > 1:
        both = (
            polynomials.of_terms(
                (polynomials.without(m, common) or (), f // factor) for m, f in polynomials.terms(side)
            )
            for side in (left, right)
        )
        return floordiv(*both)
    return _by_product(left, right)


def _by_product(left: Extent, right: Extent) -> Extent:
    """Divide by what varies: multiples of one product are taken out, ``(b*s + s - 1)//s`` is ``b + 1 + (-1)//s``.

    What is left may be one number wherever it has a value, as that last quotient is -1.
    """
    whole: list[tuple[polynomials.Monomial, int]] = []
    match polynomials.terms(right):
        case ((monomial, factor),):
            shares = ((polynomials.without(one, monomial), count // factor) for one, count in polynomials.terms(left))
            whole = [(share, count) for share, count in shares if share is not None and count]
    rest: Extent = Operation(
        "floordiv", polynomials.subtract(left, polynomials.multiply(polynomials.of_terms(whole), right)), right
    )
    low, high = bounds(rest, {})
    return polynomials.add(polynomials.of_terms(whole), int(low) if low == high else rest)


def _by_number(dividend: polynomials.Polynomial, divisor: int) -> Extent:
    """Divide by a positive number: multiples of it are taken out, what is left has coefficients below it.

    That of the first monomial is at most half of it: ``(3*h)//4`` is ``h - (h + 3)//4``.
    """
    outside = [(monomial, factor // divisor) for monomial, factor in dividend]
    inside = [(monomial, factor % divisor) for monomial, factor in dividend if factor % divisor]
    constant = sum(factor for monomial, factor in inside if not monomial)
    varying = [(monomial, factor) for monomial, factor in inside if monomial]
    if not varying:
        return polynomials.of_terms(outside)
    if 2 * varying[0][1] > divisor:
        rounded_up = polynomials.add(polynomials.multiply(-1, polynomials.of_terms(inside)), divisor - 1)
        return polynomials.subtract(polynomials.of_terms(outside), _by_number(polynomials.terms(rounded_up), divisor))
    common = math.gcd(divisor, *(factor for _, factor in varying))
    reduced = [(monomial, factor // common) for monomial, factor in varying]
    constant, divisor = constant // common, divisor // common
    rest = polynomials.of_terms([*reduced, ((), constant)])
    if divisor == 1:
        return polynomials.add(polynomials.of_terms(outside), rest)
    match reduced:
        case [([Operation("floordiv", left, int(inner))], 1)] if inner > 0:  # (x//a + c)//b
            return polynomials.add(
                polynomials.of_terms(outside), floordiv(polynomials.add(left, inner * constant), inner * divisor)
            )
    return polynomials.add(polynomials.of_terms(outside), Operation("floordiv", rest, divisor))


def extreme(operator: Extreme, extents: Iterable[Extent], ranges: Ranges, bounded: Bounded = bounds) -> Extent:
    """Return the least or the greatest; operands that another one is never beyond within ``ranges`` are left out.

    Raise TooLargeError where more than `MOST_TERMS` operands are left.
    """
    found = dict.fromkeys(part for extent in extents for part in flat(operator, extent))

    def beyond(one: Extent, other: Extent) -> bool:
        """Whether ``one`` is never greater, or never less, than ``other``; never so of symbols without ranges."""
        if not ranges and isinstance(one, Symbol) and isinstance(other, Symbol):
            return False
        low, high = bounded(polynomials.subtract(other, one), ranges)
        return low >= 0 if operator == "min" else high <= 0

    kept: list[Extent] = []
    for one in found:
        if not any(beyond(other, one) for other in kept):
            kept = [other for other in kept if not beyond(one, other)] + [one]
    if len(kept) > polynomials.MOST_TERMS:
        raise polynomials.TooLargeError(
            f"an extent is the {operator} of {len(kept)} others, more than {polynomials.MOST_TERMS}"
        )
    kept.sort(key=lambda extent: (isinstance(extent, int), str(extent)))
    return reduce(lambda left, right: Operation(operator, left, right), kept)


def flat(operator: str, extent: Extent) -> Iterator[Extent]:
    """Yield the operands of a minimum or maximum of any number of extents."""
    waiting = [extent]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Operation) and one.operator == operator:
            waiting += (one.right, one.left)
        else:
            yield one


def operands(extent: Operation) -> tuple[Extent, ...]:
    """Return what an operation is of: two extents, or all of a minimum or maximum, however they are nested."""
    if extent.operator in ("min", "max"):
        return tuple(flat(extent.operator, extent))
    return extent.left, extent.right
