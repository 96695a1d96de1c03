"""What operators imply of the extents of their inputs: upper bounds, which narrow the ranges of symbols."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, zip_longest

from graft.core.model.shape_rules.facts import Shape
from graft.core.model.symbols import (
    ANY,
    Range,
    Ranges,
    add,
    flat,
    interval,
    multiply,
    subtract,
    terms,
)
from graft.runtime.extents import Extent, Operation, Symbol


def broadcast_bounds(shapes: Sequence[Shape | None], ranges: Ranges) -> dict[Extent, Range]:
    """Return the ranges that broadcasting narrows: ``n`` and ``min(n, 512)`` fit where n is at most 512, only there.

    With a least of 2 in the place of 512, that is also so where one of them is 1. What is cut out of a table, from
    ``past`` to ``past + n``, has ``n`` rows only where the table has ``past + n``. Where it has not, one row may meet
    none by the rules of broadcasting, which nobody means.
    """
    found: dict[Extent, Range] = {}
    columns = zip_longest(*(reversed(shape) for shape in shapes if shape is not None))
    for one, other in (pair for column in columns for pair in permutations(column, 2)):
        if one is not None and isinstance(other, Operation):
            whole, bounds = _uncut(other)
            for extent, bound in bounds if whole == one else ():
                found |= at_most(extent, bound, {**ranges, **found})
    return found


def at_most(extent: Extent, bound: int, ranges: Ranges) -> dict[Extent, Range]:
    """Return the ranges that are narrower where an extent is at most ``bound``: its own, and those of its symbols.

    There are none where the ranges say so already, or have nothing that fits.
    """
    low, high = interval(extent, ranges)
    if high <= bound or low < 0 or bound < max(2, low):
        return {}
    found: dict[Extent, Range] = {}
    summands = [(monomial, factor) for monomial, factor in terms(extent) if monomial]
    if len(summands) > 1:
        found[extent] = Range(int(low), bound)
    for monomial, factor in summands:
        (atom, *others) = monomial
        if isinstance(atom, Symbol) and not others and factor > 0:
            before = ranges.get(atom, ANY)
            most = (bound - int(low)) // factor + before.low
            if before.high is None or before.high > most:
                found[atom] = Range(before.low, most)
    return found


def _uncut(extent: Extent) -> tuple[Extent, list[tuple[Extent, int]]]:
    """Return an extent with e for each ``min(e, c)`` in it, and (e, c) of those that are added.

    These minima are summands; ``max(..., 0)`` around the sum, as Slice has it, is left out.
    """
    if isinstance(extent, Operation) and extent.operator == "max" and 0 in (extent.left, extent.right):
        extent = extent.left if extent.right == 0 else extent.right
    whole = extent
    bounds: list[tuple[Extent, int]] = []
    for monomial, factor in terms(extent):
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Operation) and atom.operator == "min" and abs(factor) == 1:
            numbers = [side for side in flat("min", atom) if isinstance(side, int)]
            rest = [side for side in flat("min", atom) if not isinstance(side, int)]
            if numbers and len(rest) == 1:
                whole = add(whole, multiply(factor, subtract(rest[0], atom)))
                bounds += [(rest[0], numbers[0])] if factor > 0 else []
    return whole, bounds
