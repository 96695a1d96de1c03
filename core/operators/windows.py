"""Sliding windows: what Conv, ConvTranspose and the pools have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.tensor_ir.ir import Expression


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over the spatial dimensions: extents of input, kernel and output, strides, dilations, leading pads.

    Everything counts elements; ``ends`` are the trailing pads as the node gives them.
    """

    source: tuple[int, ...]
    kernel: tuple[int, ...]
    target: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.source)

    def positions(
        self, axes: Sequence[Expression], k: Sequence[Expression]
    ) -> tuple[list[Expression], list[Expression]]:
        """Return the input position of window ``axes`` at kernel position ``k``, and the conditions for being inside.

        A dimension in which no window leaves the input has no condition.
        """
        places: list[Expression] = []
        conditions: list[Expression] = []
        for d, (axis, offset) in enumerate(zip(axes, k, strict=True)):
            start = b.multiply(axis, self.strides[d])
            moved = b.add(start, b.multiply(offset, self.dilations[d]))
            place = b.subtract(moved, self.begins[d])
            places.append(place)
            low, high = b.inside(place, self.source[d])
            if self.begins[d] > 0:
                conditions.append(low)
            if self.last(d) >= self.source[d]:
                conditions.append(high)
        return places, conditions

    def last(self, d: int) -> int:
        """Return the largest position that any window reads in dimension ``d``."""
        return (self.target[d] - 1) * self.strides[d] + (self.kernel[d] - 1) * self.dilations[d] - self.begins[d]

    @property
    def leaves(self) -> bool:
        """Whether some window leaves the input."""
        return any(self.begins[d] > 0 or self.last(d) >= self.source[d] for d in range(self.rank))

    def count(self, axes: Sequence[Expression], *, padded: bool) -> Expression | int:
        """Return how many positions of window ``axes`` lie in the input, or in the padded input where ``padded``."""
        total: Expression | int = 1
        for d, axis in enumerate(axes):
            low = -self.begins[d] if padded else 0
            high = self.source[d] + (self.ends[d] if padded else 0)
            total = _times(total, self._count(axis, d, low, high))
        return total

    def _count(self, axis: Expression, d: int, low: int, high: int) -> Expression | int:
        """The number of k in ``[0, kernel)`` with ``low <= axis * stride + k * dilation - begin < high``."""
        if -self.begins[d] >= low and self.last(d) < high:
            return self.kernel[d]
        start = b.subtract(b.multiply(axis, self.strides[d]), self.begins[d])
        dilation = self.dilations[d]
        first = b.divide(b.add(b.maximum(b.subtract(b.index(low), start), 0), dilation - 1), dilation)
        room = b.maximum(b.subtract(b.index(high), start), 0)
        past = b.minimum(b.divide(b.add(room, dilation - 1), dilation), self.kernel[d])
        return b.maximum(b.subtract(past, first), 0)


def _times(left: Expression | int, right: Expression | int) -> Expression | int:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return b.multiply(left, right)


def windows_of(node: NodeView, source: Sequence[int], kernel: Sequence[int], target: Sequence[int]) -> Windows:
    """Return the windows of a node from its attributes ``strides dilations pads auto_pad`` and its spatial extents."""
    rank = len(source)
    strides = tuple(node.attribute("strides") or [1] * rank)
    dilations = tuple(node.attribute("dilations") or [1] * rank)
    pads = node.attribute("pads") or [0] * (2 * rank)
    begins, ends = tuple(pads[:rank]), tuple(pads[rank:])
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "VALID":
        begins = ends = (0,) * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((t - 1) * s + (k - 1) * d + 1 - n, 0)
            for t, s, k, d, n in zip(target, strides, kernel, dilations, source, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Windows(tuple(source), tuple(kernel), tuple(target), strides, dilations, begins, ends)
