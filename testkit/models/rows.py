"""A row of the table that random models are drawn from, and how it finds operands.

A row takes what it needs from the values there are (`Draw.pick`), makes up the rest, and adds one node or a few. It
raises `Unfit` where nothing suits. ``exact`` results are those that moving, comparing and choosing make of exact
operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graft.testkit.models.draw import Draw, Unfit, Value


@dataclass(frozen=True, slots=True)
class Row:
    """A way to go on with a model, and how often it is taken."""

    name: str
    make: Callable[[Draw], object]
    weight: float = 1.0


def a_float(
    draw: Draw,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    rank: tuple[int, int] = (0, 8),
    exact: bool = False,
    nonempty: bool = True,
) -> Value:
    """Return a floating-point value whose numbers are in ``[low, high]``; others only where infinities are asked."""

    def fits(array: np.ndarray) -> bool:
        return (
            array.dtype == draw.real
            and rank[0] <= array.ndim <= rank[1]
            and (array.size > 0 or not nonempty)
            and (low == -np.inf or not (array < low).any())
            and (high == np.inf or not (array > high).any())
        )

    found = draw.pick(fits, exact=exact)
    if found is None:
        raise Unfit
    return found


def of_kind(draw: Draw, kinds: str, rank: tuple[int, int] = (0, 8)) -> Value:
    """Return a value of one of NumPy's kinds of types."""
    found = draw.pick(lambda one: one.dtype.kind in kinds and rank[0] <= one.ndim <= rank[1] and one.size > 0)
    if found is None:
        raise Unfit
    return found


def an_axis(draw: Draw, array: np.ndarray) -> int:
    """Return an axis, counted from either end."""
    if array.ndim == 0:
        raise Unfit
    return draw.integer(-array.ndim, array.ndim - 1)


def narrowed(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to ``shape``: some extents are 1, some leading axes gone."""
    kept = tuple(1 if draw.chance(0.4) else extent for extent in shape)
    return kept[draw.integer(0, len(kept)) :] if draw.chance(0.4) else kept


def broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast to one of at most 4,096 elements."""
    try:
        return int(np.prod(np.broadcast_shapes(left, right))) <= 4096
    except ValueError:
        return False
