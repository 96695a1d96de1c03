"""What computed operands make of the extents of what is moved, cut, joined and repeated."""

from __future__ import annotations

from collections.abc import Iterable

from graft.core.operators.definition import build as b
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.stated_extents import (
    Claim,
    Operands,
    StatedRule,
    StatedShape,
    axes_of,
    chosen,
    each,
)
from graft.core.tensor_ir.ir import Expression


def given_by(number: int) -> StatedRule:
    """The result has the shape that an input holds."""

    def rule(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
        return each(shape, lambda axis: operands.element(number, axis))

    return rule


def reshape(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The extents that are asked for: 0 copies one, and -1 is what is left."""
    keeps = not operands.node.attribute("allowzero", 0)
    source = operands.node.inputs[0]
    rank = 0 if source is None else source.rank or 0

    def computed(axis: int) -> Expression:
        requested, stated = operands.element(1, axis), shape[axis]
        assert stated is not None
        if keeps and axis < rank:
            requested = b.select(b.equal(requested, 0), operands.extent(axis), requested)
        return b.select(b.equal(requested, -1), b.index(stated), requested)

    return each(shape, computed)


def expand(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The extents of the input, or those that are asked for where that is 1."""
    source, count = operands.node.inputs[0], operands.count(1)
    if source is None or source.rank is None or count is None:
        return ()
    inner, outer = len(shape) - source.rank, len(shape) - count

    def computed(axis: int) -> Expression:
        requested = operands.element(1, axis - outer) if axis >= outer else b.index(1)
        if axis < inner:
            return requested
        extent = operands.extent(axis - inner)
        fits = b.either(b.equal(requested, 1), b.equal(requested, extent))
        return b.select(b.equal(extent, 1), requested, b.select(fits, extent, -1))

    return each(shape, computed)


def tile(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """Each extent as often as is asked for."""
    return each(shape, lambda axis: b.multiply(operands.extent(axis), operands.element(1, axis)))


def one_hot(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The depth, along the new axis."""
    place = normal_axis(operands.node.attribute("axis", -1), len(shape))
    return each(shape, lambda axis: b.cast(operands.element(1, 0), "int64") if axis == place else None)


def range_(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """How many numbers there are from a start to a limit: by steps of 0 there is no number that is stated."""
    start, limit, step = (operands.element(number, 0) for number in range(3))
    if start.type.is_float:
        start, limit, step = (b.cast(one, "float64") for one in (start, limit, step))
        steps = b.unary("ceil", b.binary("div", b.subtract(limit, start), step))
        return each(shape, lambda axis: b.maximum(b.cast(steps, "int64"), 0))
    by = b.select(b.equal(step, 0), 1, step)
    towards = b.select(b.less(by, 0), b.index(1), b.index(-1))
    steps = b.divide(b.add(b.add(b.subtract(limit, start), by), towards), by)
    return each(shape, lambda axis: b.select(b.equal(step, 0), -1, b.maximum(steps, 0)))


def top_k(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """How many are asked for, along the axis."""
    place = normal_axis(operands.node.attribute("axis", -1), len(shape))
    return each(shape, lambda axis: operands.element(1, 0) if axis == place else None)


def split(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The parts that are given."""
    place = normal_axis(operands.node.attribute("axis", 0), len(shape))
    for number, output in enumerate(operands.node.outputs):
        stated = (output.shape or ())[place] if output.shape else None
        if isinstance(stated, int):
            yield Claim(place, operands.element(1, number), b.index(stated))


def pad(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """Each extent with what is added on both sides."""
    axes = axes_of(operands, 3, len(shape))
    amounts = operands.count(1)
    count = len(shape) if axes is None else len(axes)
    if amounts != 2 * count:
        return ()

    def computed(axis: int) -> Expression:
        total = operands.extent(axis)
        for number in range(count):
            both = b.add(operands.element(1, number), operands.element(1, number + count))
            is_this = b.equal(axes[number], axis) if axes is not None else b.equal(b.index(number), axis)
            total = b.add(total, b.select(is_this, both, 0))
        return total

    return each(shape, computed)


def slice_(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """What is cut out between bounds that are clamped."""
    count, axes = operands.count(1), axes_of(operands, 3, len(shape))
    if count is None or (axes is None and operands.node.input(3) is not None):
        return ()

    def taken(number: int, extent: Expression) -> Expression:
        start, end = (operands.element(which, number) for which in (1, 2))
        step = operands.element(4, number, 1)
        back = b.less(step, 0)
        first, last = (b.select(b.less(one, 0), b.add(one, extent), one) for one in (start, end))
        low = b.select(back, b.index(-1), b.index(0))
        high = b.select(back, b.subtract(extent, 1), extent)
        first = b.minimum(b.maximum(first, 0), high)
        length = b.subtract(b.minimum(b.maximum(last, low), high), first)
        by = b.select(b.equal(step, 0), 1, step)
        steps = b.divide(b.add(b.add(length, by), b.select(back, b.index(1), b.index(-1))), by)
        is_some = b.select(back, b.less(length, 0), b.greater(length, 0))
        return b.select(is_some, steps, 0)

    def computed(axis: int) -> Expression:
        extent = operands.extent(axis)
        total = extent
        for number in range(count):
            place = b.index(number) if axes is None else axes[number]
            total = b.select(b.equal(place, axis), taken(number, extent), total)
        return total

    return each(shape, computed)


def crop_or_pad(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The extents that are asked for."""
    axes = [normal_axis(axis, len(shape)) for axis in operands.node.attribute("axes", range(len(shape)))]
    return each(shape, lambda axis: operands.element(1, axes.index(axis)) if axis in axes else None)


def unsqueeze(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """Without the new axes, the extents of the result are those of the input; the new ones are 1."""
    axes, source = axes_of(operands, 1, len(shape)), operands.node.inputs[0]
    if axes is None or source is None or source.rank is None:
        return ()
    rank = source.rank

    def computed(axis: int) -> Expression:
        place: Expression = b.index(axis)
        for other in axes:
            place = b.subtract(place, b.cast(b.less(other, axis), "int64"))
        extent = chosen([operands.extent(one) for one in range(rank)], place)
        for other in axes:
            extent = b.select(b.equal(other, axis), 1, extent)
        return extent

    return each(shape, computed)


def squeeze(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """An axis of the input that goes away has one element, any other is an axis of the result."""
    source = operands.node.inputs[0]
    axes = None if source is None or source.rank is None else axes_of(operands, 1, source.rank)
    if axes is None or source is None or None in shape:
        return
    stated = [b.index(one) for one in shape if one is not None]
    for axis in range(source.rank or 0):
        place: Expression = b.index(axis)
        is_gone: Expression = b.constant(False, "bool")
        for other in axes:
            place = b.subtract(place, b.cast(b.less(other, axis), "int64"))
            is_gone = b.either(is_gone, b.equal(other, axis))
        yield Claim(axis, operands.extent(axis), b.select(is_gone, 1, chosen(stated, place)))
