"""What operators imply of the extents of their inputs and results: bounds, which narrow the ranges of symbols."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from graft.core.affine import expressions as affine
from graft.core.operators.definition.facts import Dimension, Shape
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

MOST = 1 << 20
"""Beyond this, what an extent wants of a symbol is not searched for."""


def broadcast_bounds(shapes: Sequence[Shape | None], ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the ranges that broadcasting narrows: ``n`` and ``min(n, 512)`` fit where n is at most 512, only there.

    With a least of 2 in the place of 512, that is also so where one of them is 1. What is cut out of a table, from
    ``past`` to ``past + n``, has ``n`` rows only where the table has ``past + n``. Where it has not, one row may meet
    none by the rules of broadcasting, which nobody means; so ``(n + 3)//4`` and ``max(n - 1, 0)//4 + 1``, as exporters
    write it, say that n is at least 1, and so does the first row of n where it meets anything.
    """
    found: dict[Extent, affine.Range] = {}
    columns = zip_longest(*(reversed(shape) for shape in shapes if shape is not None))
    for one, other in (pair for column in columns for pair in _with_operations(column)):
        uncut, most = _uncut(other)
        whole, least = _unclamped(uncut)
        if whole == one:
            for extent, bound in most:
                found |= at_most(_unclamped(extent)[0], bound, {**ranges, **found})
            found |= natural_bounds(least, {**ranges, **found})
        elif other.operator == "min" and 1 in (other.left, other.right):
            found |= divisor_bounds([other.left, other.right], {**ranges, **found})
    return found


def _with_operations(column: Sequence[Dimension]) -> Iterator[tuple[Extent, Operation]]:
    """Yield the pairs of different places of a column whose second extent is an operation."""
    for place, other in enumerate(column):
        if isinstance(other, Operation):
            yield from ((one, other) for number, one in enumerate(column) if one is not None and number != place)


def at_most(extent: Extent, bound: int, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the ranges that are narrower where an extent is at most ``bound``: its own, and those of its symbols.

    There are none where the ranges say so already, or have nothing that fits.
    """
    low, high = affine.interval(extent, ranges)
    if high <= bound or low < 0 or bound < max(2, low):
        return {}
    found: dict[Extent, affine.Range] = {}
    summands = [(monomial, factor) for monomial, factor in affine.terms(extent) if monomial]
    if len(summands) > 1:
        found[extent] = affine.Range(int(low), bound)
    for monomial, factor in summands:
        (atom, *others) = monomial
        if isinstance(atom, Symbol) and not others and factor > 0:
            before = ranges.get(atom, affine.ANY)
            most = (bound - int(low)) // factor + before.low
            if before.high is None or before.high > most:
                found[atom] = affine.Range(before.low, most)
    return found or _below(extent, bound, ranges)


def _below(extent: Extent, bound: int, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the range of the one symbol of an extent that rises with it, where that is at most ``bound``."""
    names = affine.names_in([extent])
    if len(names) != 1 or not _rises(extent):
        return {}
    before = ranges.get(symbol := Symbol(min(names)), affine.ANY)
    beyond = _least(affine.subtract(extent, bound + 1), symbol.name, before)
    return {} if beyond is None or beyond <= before.low else {symbol: affine.Range(before.low, beyond - 1)}


def natural_bounds(shape: Sequence[Dimension] | None, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the ranges that are narrower because no extent is negative: ``(h + 1)//2 - 1`` says that h is at least 1.

    That is so of extents with one symbol that rise with it.
    """
    found: dict[Extent, affine.Range] = {}
    for extent in shape or ():
        known = {**ranges, **found} if found else ranges
        if extent is None or not _rises(extent) or affine.interval(extent, known)[0] >= 0:
            continue
        names = affine.names_in([extent])
        if not names:  # a negative number: a rule of shapes, or the node, says what is wrong with it
            continue
        before = known.get(symbol := Symbol(min(names)), affine.ANY)
        if len(names) == 1 and (least := _least(extent, symbol.name, before)) is not None:
            found[symbol] = affine.Range(least, before.high)
    return found


def divisor_bounds(extents: Sequence[Dimension], ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the ranges that are narrower because something is divided by extents: they are natural, and not 0."""
    return natural_bounds([None if one is None else affine.subtract(one, 1) for one in extents], ranges)


def _rises(extent: Extent) -> bool:
    """Whether an extent is known to become no less where a symbol in it becomes more."""
    match extent:
        case Operation("add" | "min" | "max", left, right):
            return _rises(left) and _rises(right)
        case Operation("sub", left, int()):
            return _rises(left)
        case Operation("mul", int(factor), other) | Operation("mul", other, int(factor)):
            return factor >= 0 and _rises(other)
        case Operation("floordiv", left, int(divisor)):
            return divisor > 0 and _rises(left)
        case _:
            return isinstance(extent, int | Symbol)


def _least(extent: Extent, name: str, bounds: affine.Range) -> int | None:
    """Return the least number of a symbol, within its bounds, for which a rising extent is not negative."""
    high = bounds.high if bounds.high is not None else max(2 * bounds.low, 1)
    while evaluate(extent, {name: high}) < 0:
        if bounds.high is not None or high > MOST:
            return None
        high *= 2
    within = range(bounds.low, high + 1)
    return bisect_left(within, 0, key=lambda number: evaluate(extent, {name: number})) + bounds.low


def _unclamped(extent: Extent) -> tuple[Extent, list[Extent]]:
    """Return an extent with e for each ``max(e, 0)`` in it, and all those e."""
    match extent:
        case Operation("max", e, 0) | Operation("max", 0, e):
            return e, [e]
        case Operation(operator, left, right):
            (one, ones), (other, others) = _unclamped(left), _unclamped(right)
            return (affine.OPERATIONS[operator](one, other), ones + others) if ones or others else (extent, [])
        case _:
            return extent, []


def _uncut(extent: Extent) -> tuple[Extent, list[tuple[Extent, int]]]:
    """Return an extent with e for each ``min(e, c)`` in it, and (e, c) of those that are added.

    These minima are summands; ``max(..., 0)`` around the sum, as Slice has it, is left out.
    """
    if isinstance(extent, Operation) and extent.operator == "max" and 0 in (extent.left, extent.right):
        extent = extent.left if extent.right == 0 else extent.right
    whole = extent
    bounds: list[tuple[Extent, int]] = []
    for monomial, factor in affine.terms(extent):
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Operation) and atom.operator == "min" and abs(factor) == 1:
            numbers = [side for side in affine.flat("min", atom) if isinstance(side, int)]
            rest = [side for side in affine.flat("min", atom) if not isinstance(side, int)]
            if numbers and len(rest) == 1:
                whole = affine.add(whole, affine.multiply(factor, affine.subtract(rest[0], atom)))
                bounds += [(rest[0], numbers[0])] if factor > 0 else []
    return whole, bounds
