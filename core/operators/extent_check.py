"""The check that a result has the shape that was stated of it, where a computed operand decides that shape.

A model may state in numbers the shape of a Pad by amounts that come as data, and kernels are then made for these
numbers. Whether they are true is known only when the operands are: a function of its own compares them first. Shapes
with symbols need none, for they are derived from the operands and not stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block
from graft.core.operators.definition.facts import normal_axis
from graft.core.tensor_ir.ir import Buffer, CallExtern, Expression, Function, If
from graft.core.types import INTEGERS, ONNX_DOMAINS

MOST = 16
"""The most elements of an operand that are looked at; shapes have fewer."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What is stated of an extent along ``axis`` of a result, beside what the operands make of it."""

    axis: int
    computed: Expression
    stated: Expression


@dataclass(slots=True)
class Operands:
    """A node's inputs in an expression; those that it reads become the parameters of the check."""

    node: NodeView
    read: dict[int, Buffer] = field(default_factory=dict)
    """By number of the input."""

    def buffer(self, number: int) -> Buffer:
        """Return the parameter of an input."""
        value = self.node.inputs[number]
        assert value is not None and value.rank is not None, self.node.where
        if number not in self.read:
            shape = value.static_shape
            extents = b.variables(value.rank, f"extent{number}_") if shape is None else tuple(map(b.index, shape))
            self.read[number] = Buffer(f"input{number}", value.dtype, extents)
        return self.read[number]

    def extent(self, axis: int, number: int = 0) -> Expression:
        """Return an extent of an input."""
        value = self.node.inputs[number]
        known = None if value is None or value.shape is None else value.shape[axis]
        return b.index(known) if isinstance(known, int) else self.buffer(number).shape[axis]

    def count(self, number: int) -> int | None:
        """Return how many elements an input has, None if that is not known; 0 where it is absent."""
        value = self.node.input(number)
        shape = () if value is None else value.static_shape
        if shape is None or len(shape) > 1 or (shape and shape[0] > MOST):
            return None
        return 0 if value is None else shape[0] if shape else 1

    def element(self, number: int, place: int, default: int = 0) -> Expression:
        """Return an element of an input, integers as int64; ``default`` where the input is absent."""
        value = self.node.input(number)
        if value is None:
            return b.index(default)
        if (known := value.constant) is not None and value.dtype in INTEGERS:
            return b.index(int(known.reshape(-1)[place]))
        found = b.load(self.buffer(number), *([place] if value.rank else []))
        return b.cast(found, "int64") if value.dtype in INTEGERS else found


Shape: TypeAlias = Sequence["int | None"]
"""The extents that are stated of a result in numbers; None where it has a symbol."""
Rule: TypeAlias = Callable[[Operands, Shape], Iterable[Stated]]


def extent_check(name: str, node: NodeView) -> tuple[Function, tuple[int, ...]] | None:
    """Return the function ``name`` that fails where the shape that is stated of a node's results is not theirs.

    With it come the numbers of the inputs that it reads. None where nothing stated depends on computed operands.
    """
    rule, numbers = _RULES.get(node.op_type, (None, ())) if node.domain in ONNX_DOMAINS else (None, ())
    given = [value for number in numbers if (value := node.input(number)) is not None]
    shape = node.outputs[0].shape
    if rule is None or shape is None or all(value.is_constant for value in given):
        return None
    operands, target = Operands(node), [one if isinstance(one, int) else None for one in shape]
    checks = [one for one in rule(operands, target) if one.computed != one.stated]
    if not checks:
        return None
    body = (
        If(
            b.not_equal(one.computed, one.stated),
            CallExtern("fail_extent", (one.computed, b.index(one.axis), one.stated)),
        )
        for one in checks
    )
    return Function(name, tuple(operands.read.values()), 0, block(*body)), tuple(operands.read)


def checked_values(node: NodeView) -> list[ir.Value]:
    """Return the operands that say the shape of a node's results, which a check reads before the node is computed."""
    _, numbers = _RULES.get(node.op_type, (None, ())) if node.domain in ONNX_DOMAINS else (None, ())
    return [one.value for number in numbers if (one := node.input(number)) is not None and not one.is_constant]


def _each(shape: Shape, computed: Callable[[int], Expression | None]) -> Iterator[Stated]:
    """Compare every extent that is stated with what ``computed`` makes of its axis, None where it says nothing."""
    for axis, one in enumerate(shape):
        if one is not None and (found := computed(axis)) is not None:
            yield Stated(axis, found, b.index(one))


# ---- Shapes that are given ----


def _shape_of(number: int) -> Rule:
    """The result has the shape that an input holds."""

    def rule(operands: Operands, shape: Shape) -> Iterable[Stated]:
        return _each(shape, lambda axis: operands.element(number, axis))

    return rule


def _reshape(operands: Operands, shape: Shape) -> Iterable[Stated]:
    keeps = not operands.node.attribute("allowzero", 0)
    source = operands.node.inputs[0]
    rank = 0 if source is None else source.rank or 0

    def computed(axis: int) -> Expression:
        requested, stated = operands.element(1, axis), shape[axis]
        assert stated is not None
        if keeps and axis < rank:
            requested = b.select(b.equal(requested, 0), operands.extent(axis), requested)
        return b.select(b.equal(requested, -1), b.index(stated), requested)

    return _each(shape, computed)


def _expand(operands: Operands, shape: Shape) -> Iterable[Stated]:
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

    return _each(shape, computed)


def _tile(operands: Operands, shape: Shape) -> Iterable[Stated]:
    return _each(shape, lambda axis: b.multiply(operands.extent(axis), operands.element(1, axis)))


def _one_hot(operands: Operands, shape: Shape) -> Iterable[Stated]:
    place = normal_axis(operands.node.attribute("axis", -1), len(shape))
    return _each(shape, lambda axis: b.cast(operands.element(1, 0), "int64") if axis == place else None)


def _range(operands: Operands, shape: Shape) -> Iterable[Stated]:
    start, limit, step = (operands.element(number, 0) for number in range(3))
    if start.type.is_float:
        start, limit, step = (b.cast(one, "float64") for one in (start, limit, step))
        steps = b.unary("ceil", b.binary("div", b.subtract(limit, start), step))
        return _each(shape, lambda axis: b.maximum(b.cast(steps, "int64"), 0))
    by = b.select(b.equal(step, 0), 1, step)
    towards = b.select(b.less(by, 0), b.index(1), b.index(-1))
    steps = b.divide(b.add(b.add(b.subtract(limit, start), by), towards), by)
    return _each(shape, lambda axis: b.maximum(steps, 0))


def _top_k(operands: Operands, shape: Shape) -> Iterable[Stated]:
    place = normal_axis(operands.node.attribute("axis", -1), len(shape))
    return _each(shape, lambda axis: operands.element(1, 0) if axis == place else None)


def _split(operands: Operands, shape: Shape) -> Iterable[Stated]:
    place = normal_axis(operands.node.attribute("axis", 0), len(shape))
    for number, output in enumerate(operands.node.outputs):
        stated = (output.shape or ())[place] if output.shape else None
        if isinstance(stated, int):
            yield Stated(place, operands.element(1, number), b.index(stated))


# ---- Parts of a shape that change ----


def _pad(operands: Operands, shape: Shape) -> Iterable[Stated]:
    axes = _axes(operands, 3, len(shape))
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

    return _each(shape, computed)


def _slice(operands: Operands, shape: Shape) -> Iterable[Stated]:
    count, axes = operands.count(1), _axes(operands, 3, len(shape))
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

    return _each(shape, computed)


def _resize(operands: Operands, shape: Shape) -> Iterable[Stated]:
    axes = [normal_axis(axis, len(shape)) for axis in operands.node.attribute("axes", range(len(shape)))]
    if operands.node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return ()
    crops = operands.node.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"

    def computed(axis: int) -> Expression | None:
        if axis not in axes:
            return operands.extent(axis)
        if operands.node.input(3) is not None:
            return operands.element(3, axes.index(axis))
        size = b.cast(operands.extent(axis), "float32")
        scale = b.cast(operands.element(2, axes.index(axis)), "float32")
        return None if crops else b.cast(b.unary("floor", b.multiply(size, scale)), "int64")

    return _each(shape, computed)


def _crop_or_pad(operands: Operands, shape: Shape) -> Iterable[Stated]:
    axes = [normal_axis(axis, len(shape)) for axis in operands.node.attribute("axes", range(len(shape)))]
    return _each(shape, lambda axis: operands.element(1, axes.index(axis)) if axis in axes else None)


def _reduction(operands: Operands, shape: Shape) -> Iterable[Stated]:
    source = operands.node.inputs[0]
    axes = None if source is None or source.rank is None else _axes(operands, 1, source.rank)
    if not axes or source is None or source.rank is None:
        return ()
    if not operands.node.attribute("keepdims", 1):
        return _each(shape, _left_by(operands, axes, source.rank))

    def computed(axis: int) -> Expression:
        extent = operands.extent(axis)
        for place in axes:
            extent = b.select(b.equal(place, axis), 1, extent)
        return extent

    return _each(shape, computed)


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


def _unsqueeze(operands: Operands, shape: Shape) -> Iterable[Stated]:
    """Without the new axes, the extents of the result are those of the input; the new ones are 1."""
    axes, source = _axes(operands, 1, len(shape)), operands.node.inputs[0]
    if axes is None or source is None or source.rank is None:
        return ()
    rank = source.rank

    def computed(axis: int) -> Expression:
        place: Expression = b.index(axis)
        for other in axes:
            place = b.subtract(place, b.cast(b.less(other, axis), "int64"))
        extent = _chosen([operands.extent(one) for one in range(rank)], place)
        for other in axes:
            extent = b.select(b.equal(other, axis), 1, extent)
        return extent

    return _each(shape, computed)


def _squeeze(operands: Operands, shape: Shape) -> Iterable[Stated]:
    """An axis of the input that goes away has one element, any other is an axis of the result."""
    source = operands.node.inputs[0]
    axes = None if source is None or source.rank is None else _axes(operands, 1, source.rank)
    if axes is None or source is None or None in shape:
        return
    stated = [b.index(one) for one in shape if one is not None]
    for axis in range(source.rank or 0):
        place: Expression = b.index(axis)
        is_gone: Expression = b.constant(False, "bool")
        for other in axes:
            place = b.subtract(place, b.cast(b.less(other, axis), "int64"))
            is_gone = b.either(is_gone, b.equal(other, axis))
        yield Stated(axis, operands.extent(axis), b.select(is_gone, 1, _chosen(stated, place)))


def _axes(operands: Operands, number: int, rank: int) -> list[Expression] | None:
    """Return the axes that an input holds, counted from the front; None if it is absent or of unknown length."""
    count = operands.count(number)
    if operands.node.input(number) is None or count is None:
        return None
    given = (operands.element(number, place) for place in range(count))
    return [b.select(b.less(axis, 0), b.add(axis, rank), axis) for axis in given]


def _chosen(extents: Sequence[Expression], place: Expression) -> Expression:
    """Return the extent at a place, -1 where there is none."""
    found: Expression = b.index(-1)
    for axis, extent in enumerate(extents):
        found = b.select(b.equal(place, axis), extent, found)
    return found


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_RULES: dict[str, tuple[Rule, tuple[int, ...]]] = {
    "CenterCropPad": (_crop_or_pad, (1,)),
    "ConstantOfShape": (_shape_of(0), (0,)),
    "Expand": (_expand, (1,)),
    "OneHot": (_one_hot, (1,)),
    "Pad": (_pad, (1, 3)),
    "Range": (_range, (0, 1, 2)),
    "Reshape": (_reshape, (1,)),
    "Resize": (_resize, (2, 3)),
    "Slice": (_slice, (1, 2, 3, 4)),
    "Split": (_split, (1,)),
    "Squeeze": (_squeeze, (1,)),
    "Tile": (_tile, (1,)),
    "TopK": (_top_k, (1,)),
    "Unsqueeze": (_unsqueeze, (1,)),
    **dict.fromkeys(_REDUCTIONS, (_reduction, (1,))),
}
"""By operator, how its operands say the shape of its results, and the numbers of those that do."""
