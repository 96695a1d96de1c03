"""Rules of shapes, and of the contents of small tensors of whole numbers, that rows of many families share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from graft.core.affine.expressions import Range, Ranges
from graft.core.operators.definition.facts import (
    MOST_CONTENTS,
    Contents,
    ContentsRule,
    Dimension,
    Facts,
    Shape,
    ShapeRule,
    broadcast,
)
from graft.core.operators.definition.implied_bounds import broadcast_bounds
from graft.runtime.extents import Extent


def like(*inputs: int) -> ShapeRule:
    """Return the rule that the outputs have the shapes of these inputs, one by one."""
    return lambda facts: [facts.shape(number) for number in inputs]


LIKE_FIRST = like(0)


def is_alone(facts: Facts) -> bool:
    """Whether a node that joins its inputs has one."""
    return len(facts.shapes) == 1


def is_filled_with(facts: Facts, number: int, value: int) -> bool:
    """Whether every element of a constant input is a number."""
    operand = facts.view.input(number)
    array = None if operand is None else operand.constant
    return array is not None and bool((array == value).all())


def broadcasted(facts: Facts) -> list[Shape | None]:
    """The shape that all inputs broadcast to."""
    return [broadcast(*facts.shapes, ranges=facts.ranges)]


def broadcasted_bounds(facts: Facts, ranges: Ranges) -> dict[Extent, Range]:
    """The ranges that are narrower because all inputs broadcast."""
    return broadcast_bounds(facts.shapes, ranges)


def same(facts: Facts) -> Contents | None:
    """The contents of the first input."""
    return facts.content(0)


def each(function: Callable[..., Dimension]) -> ContentsRule:
    """Return the rule of an operator that computes element by element."""

    def rule(facts: Facts) -> Contents | None:
        arrays = [one.array() for one in facts.contents if one is not None]
        if len(arrays) < len(facts.contents) or not arrays:
            return None
        joined = np.broadcast_arrays(*arrays)
        if joined[0].size > MOST_CONTENTS:
            return None
        found = np.empty(joined[0].size, object)
        found[:] = [
            None if any(one is None for one in column) else function(*column)
            for column in zip(*(array.reshape(-1) for array in joined), strict=True)
        ]
        return Contents(joined[0].shape, tuple(found.tolist()))

    return rule


def is_small(shape: Sequence[int]) -> bool:
    """Whether so many elements may be looked at: counted without overflow, for a model may say any numbers."""
    return all(extent >= 0 for extent in shape) and math.prod(map(int, shape)) <= MOST_CONTENTS
