"""The algebra of extents at compile time: one canonical form, equality, intervals, and the text of a dimension.

An extent in canonical form is a sum of products of atoms with whole coefficients; atoms are symbols, floor divisions,
minima and maxima, whose operands are canonical too. So extents that are equal by the laws of rings look equal, and
`equal` says yes, no, or that it is not known. There is no general simplification, whose time nobody can bound: a sum
of more than `MOST_TERMS` products is given up. Symbols are whole numbers of at least 0.
"""

from __future__ import annotations

import math
import re
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
    """The numbers that a symbol stands for, both bounds included; ``high`` is None where it is open."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


ANY = Range()
Ranges: TypeAlias = Mapping[str, Range]


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
        raise ModelError(f"extent '{text(left)}' is divided by zero")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    exact = _divided(_terms(left), _terms(right))
    if exact is not None:
        return exact
    if isinstance(right, int) and right > 0:
        return _floordiv_number(_terms(left), right)
    common = math.gcd(*(factor for _, factor in (*_terms(left), *_terms(right))))
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
    low: float = 0
    high: float = 0
    for monomial, factor in _terms(extent):
        bounds: tuple[float, float] = (1, 1)
        for atom in monomial:
            bounds = _times(bounds, _atom_interval(atom, ranges or {}))
        bounds = _times(bounds, (factor, factor))
        low, high = low + bounds[0], high + bounds[1]
    return low, high


def is_at_least(extent: Extent, least: int, ranges: Ranges | None = None) -> bool:
    """Whether an extent is known to be ``least`` or more."""
    return interval(extent, ranges)[0] >= least


def names_in(extents: Iterable[Extent | None]) -> set[str]:
    """Return the names of all symbols in some extents."""
    return {symbol.name for extent in extents if extent is not None for symbol in symbols_of(extent)}


# ---- Text ----


def text(extent: Extent) -> str:
    """Return an extent as text that `parsed` reads back: ``2*seq + past - 1``, ``(w - 1)//2 + 1``."""
    if not isinstance(extent, Operation):
        return str(extent)
    shown = ""
    for monomial, factor in _terms(extent):
        size = abs(factor)
        parts = [str(size)] if size != 1 or not monomial else []
        inner = len(monomial) > 1 or size != 1 or (factor < 0 and not shown)
        parts += [_atom_text(atom, inner=inner) for atom in monomial]
        sign = "-" if factor < 0 else "+"
        shown += f" {sign} {'*'.join(parts)}" if shown else ("-" if factor < 0 else "") + "*".join(parts)
    return shown


@lru_cache(CACHED)
def parsed(dimension: str) -> Extent | None:
    """Return the canonical extent that a dimension's text says, None if it is no expression."""
    if dimension.isidentifier() and dimension not in ("min", "max"):
        return Symbol(dimension)
    try:
        return _Parser(dimension).whole()
    except (ModelError, SyntaxError, IndexError, RecursionError):
        return None


_TOKEN = re.compile(r"\s*(\d+|[^\W\d][\w.]*|//|[-+*%(),])")


class _Parser:
    """Reads sums, products, ``//``, ``%``, ``min``, ``max`` and brackets."""

    def __init__(self, source: str) -> None:
        self._tokens: list[str] = []
        place = 0
        source = source.rstrip()
        while place < len(source):
            found = _TOKEN.match(source, place)
            if found is None:
                raise SyntaxError(source)
            self._tokens.append(found[1])
            place = found.end()
        self._tokens.append("")
        self._next = 0

    def whole(self) -> Extent:
        """Return the extent that all of the text is."""
        result = self._sum()
        self._expect("")
        return result

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise SyntaxError(token)

    def _at(self, *tokens: str) -> bool:
        return self._tokens[self._next] in tokens

    def _sum(self) -> Extent:
        result = self._product()
        while self._at("+", "-"):
            operation = add if self._take() == "+" else subtract
            result = operation(result, self._product())
        return result

    def _product(self) -> Extent:
        result = self._atom()
        while self._at("*", "//", "%"):
            operator, operand = self._take(), self._atom()
            result = (
                multiply(result, operand)
                if operator == "*"
                else floordiv(result, operand)
                if operator == "//"
                else modulo(result, operand)
            )
        return result

    def _atom(self) -> Extent:
        token = self._take()
        if token == "-":
            return multiply(-1, self._atom())
        if token.isdecimal():
            return int(token)
        if token in ("min", "max"):
            self._expect("(")
            operands = [self._sum()]
            while self._at(","):
                self._take()
                operands.append(self._sum())
            self._expect(")")
            return _extreme(token, operands)  # type: ignore[arg-type]
        if token == "(":
            result = self._sum()
            self._expect(")")
            return result
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise SyntaxError(token)
        return Symbol(token)


def _atom_text(atom: Symbol | Operation, *, inner: bool) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    if atom.operator in ("min", "max"):
        return f"{atom.operator}({', '.join(map(text, _flat(atom.operator, atom)))})"
    parts = [f"({text(side)})" if _is_compound(side) else text(side) for side in (atom.left, atom.right)]
    shown = f"{parts[0]}//{parts[1]}"
    return f"({shown})" if inner else shown


def _is_compound(extent: Extent) -> bool:
    terms = _terms(extent)
    plain = len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1
    compound = isinstance(extent, Operation) and not (plain and extent.operator in ("min", "max"))
    return compound or (isinstance(extent, int) and extent < 0)


# ---- The canonical form ----


@lru_cache(CACHED)
def _terms(extent: Extent) -> Polynomial:
    """Return a canonical extent as a sum of products."""
    match extent:
        case int():
            return (((), extent),) if extent else ()
        case Operation("add", left, right):
            return _sorted(_summed(_terms(left), _terms(right)))
        case Operation("mul", left, right):
            return _sorted(_product(_terms(left), _terms(right)))
        case Operation("sub", left, right):
            return _sorted(_summed(_terms(left), _product(_terms(right), (((), -1),)).items()))
        case _:
            return (((extent,), 1),)


def _extent(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    """Return the canonical extent of a sum of products: subtractions stand where coefficients are negative."""
    ordered = _sorted(dict(terms))
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


def _sorted(terms: Mapping[Monomial, int]) -> Polynomial:
    present = [(monomial, factor) for monomial, factor in terms.items() if factor]
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
    return _extent(_summed(_terms(left), _terms(right)).items())


@lru_cache(CACHED)
def _multiply(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return _extent(_product(_terms(left), _terms(right)).items())


def _scaled(extent: Extent, divisor: int) -> Extent:
    return _extent((monomial, factor // divisor) for monomial, factor in _terms(extent))


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


def _floordiv_number(terms: Polynomial, divisor: int) -> Extent:
    """Divide by a positive number: multiples of it are taken out, what is left has coefficients below it."""
    outside = [(monomial, factor // divisor) for monomial, factor in terms]
    inside = [(monomial, factor % divisor) for monomial, factor in terms if factor % divisor]
    constant = sum(factor for monomial, factor in inside if not monomial)
    varying = [(monomial, factor) for monomial, factor in inside if monomial]
    if not varying:
        return _extent(outside)
    common = math.gcd(divisor, *(factor for _, factor in varying))
    reduced = [(monomial, factor // common) for monomial, factor in varying]
    dividend, divisor = _extent([*reduced, ((), constant // common)]), divisor // common
    if divisor == 1:
        return add(_extent(outside), dividend)
    if isinstance(dividend, Operation) and dividend.operator == "floordiv" and isinstance(dividend.right, int):
        return add(_extent(outside), floordiv(dividend.left, dividend.right * divisor))
    return add(_extent(outside), Operation("floordiv", dividend, divisor))


def _extreme(operator: ExtentOperator, extents: Iterable[Extent]) -> Extent:
    """Return the least or the greatest; operands that another one is never beyond are left out."""
    found = dict.fromkeys(part for extent in extents for part in _flat(operator, extent))
    sign = 1 if operator == "min" else -1
    kept: list[Extent] = []
    for one in found:
        if not any(_beyond(other, one, sign) for other in kept):
            kept = [other for other in kept if not _beyond(one, other, sign)] + [one]
    kept.sort(key=lambda extent: (isinstance(extent, int), str(extent)))
    return reduce(lambda left, right: Operation(operator, left, right), kept)


def _flat(operator: ExtentOperator, extent: Extent) -> Iterator[Extent]:
    if isinstance(extent, Operation) and extent.operator == operator:
        yield from _flat(operator, extent.left)
        yield from _flat(operator, extent.right)
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
        known = ranges.get(atom.name, ANY)
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
