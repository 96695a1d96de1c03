"""Resize with antialias: a dimension that gets smaller is a weighted sum of all that an element stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import permutations

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.operators.definition.table import Lowering
from graft.core.operators.images import resize_positions as positions
from graft.core.tensor_ir.ir import Buffer, Expression, Stage

INNERMOST = 8.0
"""What a neighbour along the innermost axis costs, where vectors hold neighbours along another at 1."""
MOST_ORDERED = 4
"""Dimensions of which all orders are compared."""


def _reach(node: NodeView, d: positions.Dimension, scale: positions.Number) -> Count:
    """How many elements at most the filter of one output element reaches; ``scale`` is at most 1.

    A scale that is computed is no less than the extents say, for these are rounded down; where an aspect ratio is
    kept they are rounded to the nearest.
    """
    radius = 2 if node.attribute("mode") == "cubic" else 1
    if isinstance(scale, float):
        return 2 * math.ceil(radius / scale)
    is_kept = node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    source, target = b.extent(d.source), b.maximum(b.extent(d.target), 1)
    least = b.subtract(b.multiply(target, 2), 1 if is_kept else 0)
    longest = b.maximum(b.multiply(source, 2), least)
    rounded = b.divide(b.add(b.multiply(longest, radius), b.subtract(least, 1)), least)
    return b.counted(b.multiply(rounded, 2))


def smoothed(
    lowering: Lowering, d: positions.Dimension, source: Buffer, target: Buffer, fill: float | None
) -> tuple[list[Stage], list[Stage]]:
    """Return tables and stages of a dimension that gets smaller: an element is the weighted sum of what it stands for.

    The filter of the interpolation is as much wider as the image gets smaller. Its weights are made once for all
    lines and divided by their sum. What reaches beyond an end counts for the element there, so each result is the
    product of as many weights and neighbours, none of which lies outside.
    """
    node, kind = lowering.node, positions.between(source.dtype)
    scale: positions.Number = min(d.scale, 1.0) if isinstance(d.scale, float) else b.minimum(d.scale, 1.0)
    is_cubic = node.attribute("mode") == "cubic"
    count, coefficient = _reach(node, d, scale), node.attribute("cubic_coeff_a", -0.75)
    width = b.counted(b.minimum(b.extent(count), d.source)) if d.source != 0 else 0
    back = b.subtract(b.divide(b.extent(count), 2), 1)

    def nearest(place: Expression) -> tuple[Expression, Expression]:
        """The last position before an output element's, and how far behind it that is."""
        x = positions.original_place(node, d, place)
        whole = b.subtract(b.unary("ceil", x), 1.0)
        return b.cast(whole, "int64"), b.subtract(x, whole)

    begins = b.compute(lowering.temporary("int32", (d.target,)), lambda i: b.subtract(nearest(i[0])[0], back))

    def begin(place: Expression) -> Expression:
        return b.cast(b.load(begins.buffer, place), "int64")

    def weight(i: positions.Indices) -> Expression:
        distance = b.subtract(b.cast(b.subtract(i[1], back), "float64"), nearest(i[0])[1])
        own = _filter(b.unary("abs", b.multiply(distance, scale)), coefficient if is_cubic else None)
        within = b.all_of(b.inside(b.add(begin(i[0]), i[1]), d.source))
        return b.select(within, own, 0.0) if within is not None and node.attribute("exclude_outside", 0) else own

    def inner(place: Expression) -> Expression:
        return b.maximum(b.minimum(begin(place), b.subtract(b.extent(d.source), b.extent(width))), 0)

    first = b.compute(lowering.temporary("int32", (d.target,)), lambda i: inner(i[0]))
    weights = b.compute(lowering.temporary("float64", (d.target, count)), weight)
    total = lowering.temporary("float64", (d.target,))
    sums = b.reduce(total, "add", [count], lambda i, k: b.load(weights.buffer, i[0], k[0]))

    def share(i: positions.Indices, k: positions.Indices) -> Expression:
        place = b.subtract(b.clamp(b.add(begin(i[0]), k[0]), d.source), b.cast(b.load(first.buffer, i[0]), "int64"))
        own = b.divide(b.load(weights.buffer, i[0], k[0]), b.load(total, i[0]))
        return b.select(b.equal(place, i[1]), own, 0.0)

    shares = b.reduce(lowering.temporary(kind, (d.target, width)), "add", [count], share)

    def term(i: positions.Indices, k: positions.Indices) -> Expression:
        place = b.add(b.cast(b.load(first.buffer, i[d.axis]), "int64"), k[0])
        element = b.load(source, *i[: d.axis], place, *i[d.axis + 1 :])
        return b.multiply(b.cast(element, kind), b.load(shares.buffer, i[d.axis], k[0]))

    tables = [begins, first, weights, sums, shares]
    if fill is None:
        return tables, [b.reduce(target, "add", [width], term)]
    plain = b.reduce(lowering.temporary(kind, b.counts(target)), "add", [width], term)
    return tables, [plain, b.compute(target, lambda i: positions.filled(node, d, i, b.load(plain.buffer, *i), fill))]


def _filter(distance: Expression, coefficient: float | None) -> Expression:
    """The weight at a distance: Keys' cubic convolution with a coefficient, a triangle without one."""
    if coefficient is None:
        return b.maximum(b.subtract(b.constant(1.0, "float64"), distance), 0.0)
    far, near = positions.cubic_pieces(coefficient)
    return b.select(b.less_equal(distance, 1.0), near(distance), b.select(b.less(distance, 2.0), far(distance), 0.0))


def in_order(
    dimensions: list[positions.Dimension], shape: Sequence[Count], *, is_smoothed: bool
) -> list[positions.Dimension]:
    """Return dimensions of known extents in the order of the least work.

    Without smoothing what shrinks goes first, and what grows from the innermost, which gathers its neighbours.
    """
    if not is_smoothed:
        return sorted(dimensions, key=lambda one: (min(positions.known(one.scale), 1.0), -one.axis))

    def work(order: Iterable[positions.Dimension]) -> float:
        extents, total = list(shape), 0.0
        for one in order:
            assert isinstance(one.target, int), f"axis {one.axis} has no number"
            extents[one.axis] = one.target
            apart = INNERMOST if one.axis == len(shape) - 1 else 1.0
            total += (
                math.prod(one for one in extents if isinstance(one, int)) * apart / min(positions.known(one.scale), 1.0)
            )
        return total

    return list(min(permutations(dimensions), key=work)) if len(dimensions) <= MOST_ORDERED else dimensions
