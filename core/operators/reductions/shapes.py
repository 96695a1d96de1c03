"""Shapes and contents of reductions, and of rows with their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.facts import Contents, ContentsRule, Facts, Shape, normal_axis
from graft.core.operators.definition.stated_extents import Claim, Operands, StatedShape, axes_of, each
from graft.core.tensor_ir.ir import Expression
from graft.runtime.extents import Extent


def reduced(facts: Facts) -> list[Shape | None]:
    """1 along the axes, or the shape without them."""
    shape = facts.known(0)
    axes = facts.numbers(1, "axes")
    if axes is None and facts.has(1):
        counted = facts.shape(1)
        if not facts.attribute("keepdims", 1):
            fixed = isinstance(counted[0], int) if counted else False
            return [(None,) * (len(shape) - counted[0]) if fixed else None]  # type: ignore[operator, index]
        return [(None,) * len(shape)]
    if not axes and facts.attribute("noop_with_empty_axes", 0):
        return [shape]
    return [_without(shape, axes or range(len(shape)), bool(facts.attribute("keepdims", 1)))]


def chosen(facts: Facts) -> list[Shape | None]:
    """1 along the axis, or the shape without it."""
    shape = facts.shape(0)
    keep = bool(facts.attribute("keepdims", 1))
    return [] if shape is None else [_without(shape, [facts.attribute("axis", 0)], keep)]


def _without(shape: Shape, axes: object, keep: bool) -> Shape:
    gone = {normal_axis(axis, len(shape)) for axis in axes}  # type: ignore[attr-defined]
    if keep:
        return tuple(1 if axis in gone else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in gone)


def reduced_contents(function: Callable[..., Extent]) -> ContentsRule:
    """Return the rule of a reduction of all elements of a vector."""

    def rule(facts: Facts) -> Contents | None:
        source = facts.held(0)
        known = source.known
        axes = facts.numbers(1, "axes")
        if not known or len(source.shape) != 1 or (axes is None and facts.has(1)):
            return None
        if not axes and facts.attribute("noop_with_empty_axes", 0):
            return source
        return Contents((1,) if facts.attribute("keepdims", 1) else (), (function(*known),))

    return rule


def statistics(facts: Facts) -> list[Shape | None]:
    """Return the shape of the result, and twice that of the statistics: 1 along the axes of a row."""
    shape = facts.known(0)
    axis = facts.attribute("axis", -1) % max(1, len(shape))
    rows = (*shape[:axis], *(1 for _ in shape[axis:]))
    return [shape, rows, rows]


def reduced_extents(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """1 along axes that are computed, or what is left without them."""
    source = operands.node.inputs[0]
    axes = None if source is None or source.rank is None else axes_of(operands, 1, source.rank)
    if not axes or source is None or source.rank is None:
        return ()
    if not operands.node.attribute("keepdims", 1):
        return each(shape, _left_by(operands, axes, source.rank))

    def computed(axis: int) -> Expression:
        extent = operands.extent(axis)
        for place in axes:
            extent = b.select(b.equal(place, axis), 1, extent)
        return extent

    return each(shape, computed)


def _left_by(operands: Operands, axes: Sequence[Expression], rank: int) -> Callable[[int], Expression]:
    """Return the extents, by axis of the result, of the dimensions that are none of the axes."""

    def computed(axis: int) -> Expression:
        extent: Expression = b.index(-1)
        place: Expression = b.index(0)
        for dimension in range(rank):
            is_gone: Expression = b.constant(False, "bool")
            for other in axes:
                is_gone = b.either(is_gone, b.equal(other, dimension))
            is_this = b.both(b.unary("not", is_gone), b.equal(place, axis))
            extent = b.select(is_this, operands.extent(dimension), extent)
            place = b.select(is_gone, place, b.add(place, 1))
        return extent

    return computed
