"""The contents of small tensors of whole numbers that are computed element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from graft.core.affine import expressions as affine
from graft.core.operators.definition.facts import MOST_CONTENTS, Contents, ContentsRule, Dimension, Facts
from graft.core.operators.definition.implied_bounds import divisor_bounds
from graft.core.operators.definition.shape_rules import broadcasted_bounds, each
from graft.runtime.extents import Extent


def cast(facts: Facts) -> Contents | None:
    """Casts between whole numbers and floats keep them; a truth is whether it is not 0."""
    contents = facts.content(0)
    if contents is None or facts.view.outputs[0].dtype != "bool" or facts.view.dtype == "bool":
        return contents
    return Contents(
        contents.shape,
        tuple(None if one is None else truth(affine.equal(one, 0), negated=True) for one in contents.elements),
    )


def truth(answer: bool | None, *, negated: bool = False) -> int | None:
    """A truth as 0 or 1."""
    return None if answer is None else int(answer != negated)


def divide(facts: Facts) -> Contents | None:
    """The quotient: of integers rounded towards 0, of floats where it is exact."""
    whole = not facts.view.dtype.startswith("float")
    return each(partial(_quotient, facts.ranges) if whole else _exact_quotient)(facts)


def _quotient(ranges: affine.Ranges, left: Extent, right: Extent) -> Dimension:
    """Integers are divided towards 0, which is rounding down where neither is negative."""
    if right == 0 or not (isinstance(right, int) or affine.is_at_least(right, 0, ranges)):
        return None
    if isinstance(right, int) and right < 0:
        left, right = affine.multiply(-1, left), -right
    if affine.is_at_least(left, 0, ranges):
        return affine.floordiv(left, right)
    below = affine.floordiv(affine.maximum(affine.multiply(-1, left), 0), right)
    is_nothing = affine.interval(below, ranges)[1] == 0
    return affine.subtract(affine.floordiv(affine.maximum(left, 0), right), 0 if is_nothing else below)


def _exact_quotient(left: Extent, right: Extent) -> Dimension:
    if right == 0:
        return None
    result = affine.floordiv(left, right)
    return result if affine.multiply(result, right) == left else None


def modulo(facts: Facts) -> Contents | None:
    """The remainder."""
    fmod = facts.attribute("fmod", 0)

    def rest(left: Extent, right: Extent) -> Dimension:
        signed = fmod and not (affine.is_at_least(left, 0, facts.ranges) and affine.is_at_least(right, 0, facts.ranges))
        if right == 0 or signed:
            return None
        for near in (left, affine.add(left, right)):  # the quotient is 0 or -1
            if affine.is_at_least(near, 0, facts.ranges) and affine.is_at_least(
                affine.subtract(right, near), 1, facts.ranges
            ):
                return near
        return affine.modulo(left, right)

    return each(rest)(facts)


def where(facts: Facts) -> Contents | None:
    """Take elements by the condition; where that is unknown, one that both sides agree on."""
    condition, left, right = (facts.content(index) for index in range(3))
    if condition is None or left is None or right is None:
        return None
    columns = np.broadcast_arrays(condition.array(), left.array(), right.array())
    if columns[0].size > MOST_CONTENTS:
        return None
    found = tuple(
        (one if one == other else None) if which is None else one if which == 1 else other if which == 0 else None
        for which, one, other in zip(*(column.reshape(-1) for column in columns), strict=True)
    )
    return Contents(columns[0].shape, found)


def compared(answer: Callable[[float, float], bool | None]) -> ContentsRule:
    """Return the rule of a comparison, which sees the bounds of ``left - right``."""
    return each(lambda left, right: truth(answer(*affine.interval(affine.subtract(left, right)))))


def less(low: float, high: float) -> bool | None:
    """Whether a difference within these bounds is less than 0."""
    return True if high < 0 else False if low >= 0 else None


def greater(low: float, high: float) -> bool | None:
    """Whether a difference within these bounds is more than 0."""
    return True if low > 0 else False if high <= 0 else None


def opposite(answer: Callable[[float, float], bool | None]) -> Callable[[float, float], bool | None]:
    """The opposite of what an answer says."""

    def opposite(low: float, high: float) -> bool | None:
        found = answer(low, high)
        return None if found is None else not found

    return opposite


def clip(facts: Facts) -> Contents | None:
    """The elements within bounds."""
    bounds = [facts.elements(index) for index in (1, 2)]
    if any(facts.has(index) and bound is None for index, bound in zip((1, 2), bounds, strict=True)):
        return None
    low, high = (None if bound is None else bound[0] for bound in bounds)
    return each(lambda one: _limited(one, low, high))(facts.only(0))


def _limited(one: Extent, low: Dimension, high: Dimension) -> Extent:
    one = one if low is None else affine.maximum(one, low)
    return one if high is None else affine.minimum(one, high)


def divisor(facts: Facts, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """The ranges that are narrower because both inputs broadcast, and no whole number is divided by 0."""
    divisors = None if facts.view.dtype.startswith("float") else facts.content(1)
    found = {} if divisors is None else divisor_bounds(divisors.elements, ranges)
    return found | broadcasted_bounds(facts, {**ranges, **found})


absolute = each(lambda one: one if affine.is_at_least(one, 0) else affine.maximum(one, affine.multiply(-1, one)))
negated = each(lambda one: affine.multiply(-1, one))
opposite_truth = each(lambda one: truth(affine.equal(one, 0)))
is_equal = each(lambda left, right: truth(affine.equal(left, right)))
rectified = each(lambda one: affine.maximum(one, 0))
