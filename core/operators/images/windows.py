"""Sliding windows: what Conv, ConvTranspose and the pools have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graft.core.affine import expressions, text
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import OPERATORS, Trait
from graft.core.reject import Reject
from graft.core.tensor_ir.anchors import VARIES, Windows
from graft.core.tensor_ir.ir import Expression

Begins = Sequence[int | Expression]
"""The padding in front of each spatial axis."""


def positions(
    w: Windows, axes: Sequence[Expression], k: Sequence[Expression], source: Sequence[b.Extent], begins: Begins = ()
) -> tuple[list[Expression], list[Expression]]:
    """Return the input position of window ``axes`` at kernel position ``k``, and the conditions for being inside.

    ``source`` has the spatial extents of the input, which need not be numbers, nor need ``begins``, where they are
    given. A dimension in which no window leaves the input has no condition.
    """
    places: list[Expression] = []
    conditions: list[Expression] = []
    for d, (axis, offset) in enumerate(zip(axes, k, strict=True)):
        start = b.multiply(axis, w.strides[d])
        moved = b.add(start, b.multiply(offset, w.dilations[d]))
        place = b.subtract(moved, (begins or w.begins)[d])
        places.append(place)
        low, high = b.inside(place, source[d])
        if w.begins[d] > 0:
            conditions.append(low)
        if w.passes(d):
            conditions.append(high)
    return places, conditions


def patch_places(
    batch: int,
    source: Sequence[int],
    kernel: Sequence[int],
    target: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> np.ndarray:
    """Return where, among the elements of ``batch`` padded images ``source``, windows find their patches.

    It is ``[place of the kernel, image, element of the result]``, int64.
    """
    found = np.arange(batch).reshape(1, -1, 1) * math.prod(source)
    places, windows = (np.indices(shape).reshape(len(shape), -1) for shape in (kernel, target))
    for axis, (stride, dilation) in enumerate(zip(strides, dilations, strict=True)):
        at = places[axis].reshape(-1, 1, 1) * dilation + windows[axis].reshape(1, 1, -1) * stride
        found = found + at * math.prod(source[axis + 1 :])
    return found.astype(np.int64)


def count(
    w: Windows,
    axes: Sequence[Expression],
    source: Sequence[b.Extent],
    padding: Sequence[int] | None,
    begins: Begins = (),
) -> Expression | int:
    """Return how many positions of window ``axes`` lie in the input, or in it and ``padding`` in front and behind."""
    total: Expression | int = 1
    for d, axis in enumerate(axes):
        before, behind = (0, 0) if padding is None else (padding[d], padding[d + w.rank])
        if w.begins[d] <= before and not w.passes(d, behind):
            total = _times(total, w.kernel[d])
        else:
            total = _times(
                total, _count(w, axis, d, (begins or w.begins)[d], -before, b.add(b.extent(source[d]), behind))
            )
    return total


def _count(w: Windows, axis: Expression, d: int, begin: int | Expression, low: int, high: Expression) -> Expression:
    """The number of k in ``[0, kernel)`` with ``low <= axis * stride + k * dilation - begin < high``."""
    start = b.subtract(b.multiply(axis, w.strides[d]), begin)
    dilation = w.dilations[d]
    first = b.divide(b.add(b.maximum(b.subtract(b.index(low), start), 0), dilation - 1), dilation)
    room = b.maximum(b.subtract(high, start), 0)
    past = b.minimum(b.divide(b.add(room, dilation - 1), dilation), w.kernel[d])
    return b.maximum(b.subtract(past, first), 0)


def _times(left: Expression | int, right: Expression | int) -> Expression | int:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return b.multiply(left, right)


def windows_of(
    node: NodeView, source: Sequence[b.Extent], kernel: Sequence[int], target: Sequence[b.Extent]
) -> Windows:
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
            max((t - 1) * s + (k - 1) * d + 1 - n, 0) if isinstance(t, int) and isinstance(n, int) else (k - 1) * d
            for t, s, k, d, n in zip(target, strides, kernel, dilations, source, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    inner, outer = (tuple(n if isinstance(n, int) else VARIES for n in extents) for extents in (source, target))
    w = Windows(inner, tuple(kernel), outer, strides, dilations, begins, ends)
    ends = tuple(end + strides[d] - 1 if _may_hang_over(node, w, d) else end for d, end in enumerate(ends))
    return replace(w, ends=ends)


def _may_hang_over(node: NodeView, w: Windows, d: int) -> bool:
    """Whether a pool's last window may reach behind what is padded, by less than a stride.

    It does where the number of windows is rounded up, or is 1 of an image that is smaller than a window: all numbers
    but the quotient rounded down may say so.
    """
    if not OPERATORS.has(node, Trait.POOLING) or not w.varies(d) or w.strides[d] == 1:
        return False
    if node.attribute("ceil_mode", 0):
        return True
    image, result = (
        None if one is None or one.shape is None else one.shape for one in (node.input(0), node.outputs[0])
    )
    size, steps = (None if one is None else text.parsed(str(one[2 + d])) for one in (image, result))
    if size is None or steps is None:
        return True
    window = (w.kernel[d] - 1) * w.dilations[d] + 1
    room = expressions.add(size, w.begins[d] + w.ends[d] - window)
    return steps != expressions.add(expressions.floordiv(room, w.strides[d]), 1)


def open_begins(
    node: NodeView, w: Windows, source: Sequence[b.Extent], target: Sequence[b.Extent]
) -> tuple[int | Expression, ...]:
    """Return the padding in front of windows of which it follows from extents that vary; nothing if it is numbers.

    As much is padded as the last window reaches behind the image, the larger half behind, or before with SAME_LOWER.
    """
    if known_pads(node) is None:
        return ()
    found: list[int | Expression] = list(w.begins)
    for d in (d for d in range(w.rank) if w.varies(d) and w.strides[d] > 1):
        last = b.multiply(b.subtract(b.extent(target[d]), 1), w.strides[d])
        reach = b.add(last, (w.kernel[d] - 1) * w.dilations[d] + 1)
        whole = b.maximum(b.subtract(reach, b.extent(source[d])), 0)
        found[d] = b.divide(b.add(whole, int(node.attribute("auto_pad") == "SAME_LOWER")), 2)
    return tuple(found)


def padding_of(node: NodeView, w: Windows) -> Sequence[int]:
    """Return the padding in front and behind, without what a last window of ``ceil_mode`` sees beyond it."""
    is_stated = node.attribute("auto_pad", "NOTSET") == "NOTSET"
    return (node.attribute("pads") or [0] * (2 * w.rank)) if is_stated else (*w.begins, *w.ends)


def known_pads(node: NodeView) -> Reject | None:
    """Take images of any extents where the pads are numbers."""
    strides, mode = node.attribute("strides") or [1], node.attribute("auto_pad", "NOTSET")
    image, result = node.input(0), node.outputs[0]
    spatial = [*((image.shape or ())[2:] if image is not None else ()), *(result.shape or ())[2:]]
    if all(isinstance(extent, int) for extent in spatial):
        return None
    if mode.startswith("SAME") and max(strides) > 1:
        return Reject("dynamic-shape", f"auto_pad {mode} of strides {list(strides)} pads as the extents say")
    return None
