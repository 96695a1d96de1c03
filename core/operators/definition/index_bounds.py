"""The range that the contents of an index input must lie in: known before a node runs, checked when it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graft.core.graph.view import NodeView
from graft.core.types import ONNX_DOMAINS


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


def index_bounds(node: NodeView, *, varying: bool = False) -> tuple[IndexBound, ...]:
    """Return what a node asks of its index inputs; nothing where shapes are unknown or the operator has none.

    With ``varying``, what it asks by extents that are no numbers is among them.
    """
    rule = None if node.domain not in ONNX_DOMAINS else _RULES.get(node.op_type)
    try:
        return () if rule is None else tuple(bound for bound in rule(node) if varying or not bound.varies)
    except _Unknown:
        return ()


class _Unknown(Exception):
    """A shape that a rule needs is not known: nothing can be asked."""


def _extents(node: NodeView, number: int) -> tuple[int | str | None, ...]:
    value = node.input(number)
    if value is None or value.shape is None:
        raise _Unknown
    return value.shape


def _extent(node: NodeView, number: int, axis: int) -> Size:
    """The extent of an axis of an input; it may be the only one that is known."""
    shape = _extents(node, number)
    extent = shape[axis]
    if extent is None:
        raise _Unknown
    return extent if isinstance(extent, int) else Varying(0, ((number, axis % len(shape), 1),))


def _sum(left: Size, right: Size, factor: int = 1) -> Size:
    """Return ``left + factor * right``."""
    if isinstance(left, int) and isinstance(right, int):
        return left + factor * right
    one, other = (size if isinstance(size, Varying) else Varying(size) for size in (left, right))
    scaled = tuple((number, axis, factor * times) for number, axis, times in other.extents)
    return Varying(one.number + factor * other.number, (*one.extents, *scaled))


def _from_either_end(input: int, axis: int, extent: Size, column: int | None = None) -> IndexBound:
    return IndexBound(input, axis, extent, _sum(0, extent, -1), _sum(extent, -1), column)


def _along_axis(node: NodeView) -> Iterable[IndexBound]:
    rank = len(_extents(node, 0))
    axis = node.attribute("axis", 0) % max(rank, 1)
    yield _from_either_end(1, axis, _extent(node, 0, axis))


def _tuples(node: NodeView) -> Iterable[IndexBound]:
    batch = node.attribute("batch_dims", 0)
    depth = _extent(node, 1, -1)
    for column in range(depth if isinstance(depth, int) else 0):
        yield _from_either_end(1, batch + column, _extent(node, 0, batch + column), column)


def _counts(number: int, axis_of: Callable[[NodeView], int]) -> Callable[[NodeView], Iterable[IndexBound]]:
    """An input that holds how many elements along an axis of the first input count."""

    def rule(node: NodeView) -> Iterable[IndexBound]:
        if node.input(number) is not None:
            axis = axis_of(node)
            extent = _extent(node, 0, axis)
            yield IndexBound(number, axis, extent, 0, extent)

    return rule


def _ranks(node: NodeView) -> Iterable[IndexBound]:
    """How many elements are chosen: no more than there are, where that is known only when the node runs."""
    axis = node.attribute("axis", -1) % max(len(_extents(node, 0)), 1)
    extent = _extent(node, 0, axis)
    if not isinstance(extent, int) and node.input(1) is not None:
        yield IndexBound(1, axis, extent, 0, extent)


def _rotary(node: NodeView) -> Iterable[IndexBound]:
    if node.input(3) is not None:
        extent = _extent(node, 1, 0)
        yield IndexBound(3, 0, extent, 0, _sum(extent, -1))


def _cache_lengths(node: NodeView) -> Iterable[IndexBound]:
    if node.input(6) is not None:
        past = 0 if node.input(4) is None else _extent(node, 4, 2)
        extent = _sum(past, _extent(node, 1, -2))
        yield IndexBound(6, -2 % len(_extents(node, 1)), extent, 0, extent)


def _cache_starts(node: NodeView) -> Iterable[IndexBound]:
    if node.input(2) is not None:
        axis = node.attribute("axis", -2) % len(_extents(node, 0))
        room, length = _extent(node, 0, axis), _extent(node, 1, axis)
        circular = node.attribute("mode", "linear") == "circular"
        yield IndexBound(2, axis, room, 0, _sum(room, -1) if circular else _sum(room, length, -1))


_STEPS = _counts(4, lambda node: node.attribute("layout", 0))
_RULES: dict[str, Callable[[NodeView], Iterable[IndexBound]]] = {
    "Gather": _along_axis,
    "GatherElements": _along_axis,
    "GatherND": _tuples,
    "Scatter": _along_axis,
    "ScatterElements": _along_axis,
    "ScatterND": _tuples,
    "TensorScatter": _cache_starts,
    "ReverseSequence": _counts(1, lambda node: node.attribute("time_axis", 0)),
    "RotaryEmbedding": _rotary,
    "TopK": _ranks,
    "Attention": _cache_lengths,
    "RNN": _STEPS,
    "GRU": _STEPS,
    "LSTM": _STEPS,
}
"""By operator, the bounds of its index inputs. OneHot and the bounds of Slice take any number."""
