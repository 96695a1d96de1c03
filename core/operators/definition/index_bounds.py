"""The range that the contents of an index input must lie in: known before a node runs, checked when it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graft.core.graph.view import NodeView
from graft.core.operators.definition.facts import UnknownError


@dataclass(frozen=True, slots=True)
class Varying:
    """A number that is known when a program runs: ``number`` and multiples of extents, ``(input, axis, factor)``."""

    number: int = 0
    extents: tuple[tuple[int, int, int], ...] = ()


Size: TypeAlias = int | Varying


@dataclass(frozen=True, slots=True)
class IndexBound:
    """Elements of an input lie in ``[low, high]``: positions along ``axis`` of ``extent`` elements.

    ``column`` is the place along the last axis of the input that holds these positions, None if every element does.
    """

    input: int
    axis: int
    extent: Size
    low: Size
    high: Size
    column: int | None = None

    @property
    def varies(self) -> bool:
        """Whether the range is known only when a program runs."""
        return not (isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.extent, int))

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs whose extents say the range, where it varies."""
        sizes = (one for one in (self.extent, self.low, self.high) if isinstance(one, Varying))
        return tuple(sorted({number for size in sizes for number, _, _ in size.extents}))

    def elements(self, array: np.ndarray) -> np.ndarray:
        """Return the elements of the input's contents that are bound."""
        return array if self.column is None else array[..., self.column]

    def fault(self, array: np.ndarray) -> int | None:
        """Return the first element outside the range, which is known, None if all lie in it."""
        assert isinstance(self.low, int) and isinstance(self.high, int), self
        bound = self.elements(array).reshape(-1)
        wrong = bound[(bound < self.low) | (bound > self.high)]
        return int(wrong[0]) if wrong.size else None


IndexRule: TypeAlias = Callable[[NodeView], Iterable[IndexBound]]
"""What a node asks of its index inputs."""

FROM_FRONT = "graft.indices-from-front"
"""The key of `ir.Node.metadata_props` of a node whose negative indices are errors, and not positions from the end."""


def extents(node: NodeView, number: int) -> tuple[int | str | None, ...]:
    """Return the shape of an input; raise UnknownError where it has none that is known."""
    value = node.input(number)
    if value is None or value.shape is None:
        raise UnknownError
    return value.shape


def extent_of(node: NodeView, number: int, axis: int) -> Size:
    """The extent of an axis of an input; it may be the only one that is known; raise UnknownError where none is."""
    shape = extents(node, number)
    extent = shape[axis]
    if extent is None:
        raise UnknownError
    return extent if isinstance(extent, int) else Varying(0, ((number, axis % len(shape), 1),))


def plus(left: Size, right: Size, factor: int = 1) -> Size:
    """Return ``left + factor * right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left + factor * right
    one, other = (size if isinstance(size, Varying) else Varying(size) for size in (left, right))
    scaled = tuple((number, axis, factor * times) for number, axis, times in other.extents)
    return Varying(one.number + factor * other.number, (*one.extents, *scaled))


def positions(node: NodeView, axis: int, column: int | None = None) -> IndexBound:
    """Positions along an axis of the first input, negative ones from its end, that the second input holds."""
    extent = extent_of(node, 0, axis)
    low = 0 if FROM_FRONT in node.node.metadata_props else plus(0, extent, -1)
    return IndexBound(1, axis, extent, low, plus(extent, -1), column)


def along_axis(node: NodeView) -> Iterable[IndexBound]:
    """The second input holds positions along the axis of the attribute."""
    rank = len(extents(node, 0))
    axis = node.attribute("axis", 0) % max(rank, 1)
    yield positions(node, axis)


def tuples(node: NodeView) -> Iterable[IndexBound]:
    """The second input holds tuples of positions along the first axes."""
    batch = node.attribute("batch_dims", 0)
    depth = extent_of(node, 1, -1)
    for column in range(depth if isinstance(depth, int) else 0):
        yield positions(node, batch + column, column)


def counts(number: int, axis_of: Callable[[NodeView], int]) -> IndexRule:
    """An input that holds how many elements along an axis of the first input count."""

    def rule(node: NodeView) -> Iterable[IndexBound]:
        if node.input(number) is not None:
            axis = axis_of(node)
            extent = extent_of(node, 0, axis)
            yield IndexBound(number, axis, extent, 0, extent)

    return rule
