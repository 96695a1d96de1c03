"""Sums of products: the canonical form of extents, and the operations of their ring.

An extent in canonical form is a sum of products of atoms with whole coefficients; atoms are symbols, floor divisions,
minima and maxima, whose operands are canonical too. So extents that are equal by the laws of rings look equal. A sum
of more than `MOST_TERMS` products is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from typing import TypeAlias

from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol

MOST_TERMS = 64
CACHED = 1 << 18
"""Results that each function remembers: those of a model of 10,000 operators with three symbols of its own for each.

With fewer than a model has extents, every walk over it computes them all again.
"""

Monomial: TypeAlias = tuple["Symbol | Operation", ...]
"""Atoms multiplied with each other, sorted; the empty one is 1."""
Polynomial: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Monomials with their coefficients, none of them 0, those of the highest degree first."""


class TooLargeError(ModelError):
    """An extent has too many terms to go on with; whoever computes shapes takes a symbol of its own instead."""


def subtract(left: Extent, right: Extent) -> Extent:
    """Return ``left - right``."""
    return add(left, multiply(-1, right))


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


def of_terms(polynomial: Iterable[tuple[Monomial, int]]) -> Extent:
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
def add(left: Extent, right: Extent) -> Extent:
    """Return the sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return of_terms(_summed(terms(left), terms(right)).items())


@lru_cache(CACHED)
def multiply(left: Extent, right: Extent) -> Extent:
    """Return the product; raise TooLargeError beyond `MOST_TERMS`."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return of_terms(_product(terms(left), terms(right)).items())


def divided(left: Polynomial, right: Polynomial) -> Extent | None:
    """Return the quotient of two sums of products where one divides the other exactly: division by leading terms."""
    quotient: dict[Monomial, int] = {}
    rest = dict(left)
    (leading, lead), *_ = right
    while rest:
        monomial, factor = next(iter(_sorted(rest)), ((), 0))
        share = without(monomial, leading)
        if share is None or factor % lead or len(quotient) > MOST_TERMS:
            return None
        quotient[share] = quotient.get(share, 0) + factor // lead
        rest = _summed(tuple(rest.items()), _product(right, ((share, -factor // lead),)).items())
        rest = {monomial: factor for monomial, factor in rest.items() if factor}
    return of_terms(quotient.items())


def without(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Return what is left of a monomial without the factors of another, None if it has not got them."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def shared(left: Monomial, right: Monomial) -> Monomial:
    """Return the factors that two monomials have in common."""
    rest, found = list(right), []
    for atom in left:
        if atom in rest:
            rest.remove(atom)
            found.append(atom)
    return tuple(found)
