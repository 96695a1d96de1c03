"""Resize: one stage per resized dimension, each a weighted sum of a few neighbours.

Positions are computed in float64, as onnx.reference does, because a position that falls exactly between two
elements decides which one is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.operators.cost import per_output
from graft.core.operators.manipulation import constants_required, normal_axis
from graft.core.operators.table import OPERATORS, Lowering, Operator, Trait
from graft.core.operators.varying import varying_axis
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS, is_custom

Indices = Sequence[Expression]
Number: TypeAlias = float | Expression


def _known(number: Number) -> float:
    assert isinstance(number, float), number
    return number


def _real(number: b.Extent | Number) -> Expression:
    """Return a number as an expression of type float64."""
    return b.constant(number, "float64") if isinstance(number, int | float) else b.cast(number, "float64")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One resized dimension: extents, the scale (output over input), the region of ``tf_crop_and_resize``.

    What is known only when a kernel runs is an expression, the scale and the region of type float64.
    """

    axis: int
    source: b.Extent
    target: b.Extent
    scale: Number
    start: Number = 0.0
    end: Number = 1.0

    @property
    def is_static(self) -> bool:
        """Whether all of it is known."""
        known = isinstance(self.source, int) and isinstance(self.target, int)
        return known and all(isinstance(one, float) for one in (self.scale, self.start, self.end))

    @property
    def last(self) -> int:
        """The last position of the input, whose extent is a number."""
        assert isinstance(self.source, int), f"axis {self.axis} has no number"
        return self.source - 1

    @property
    def length(self) -> float:
        """The output's extent before it is rounded down: what ``align_corners`` aligns."""
        return _known(self.scale) * (self.last + 1)


def _original(node: NodeView, d: Dimension, place: Expression) -> Expression:
    """The position in the input, float64, of output element ``place`` (ONNX: coordinate_transformation_mode)."""
    x = b.cast(place, "float64")
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return b.divide(x, d.scale)
    half = b.subtract(b.divide(b.add(x, 0.5), d.scale), 0.5)
    if mode == "pytorch_half_pixel":
        if not isinstance(d.target, int):
            return b.select(b.greater(d.target, 1), half, b.constant(0.0, "float64"))
        return half if d.target > 1 else b.constant(0.0, "float64")
    if mode not in ("align_corners", "half_pixel_symmetric", "tf_crop_and_resize"):
        return half
    return _by_extents(mode, d, x, half) if d.is_static else _by_varying_extents(mode, d, x, half)


def _by_extents(mode: str, d: Dimension, x: Expression, half: Expression) -> Expression:
    """The position by the modes that look at extents; ``half`` is that of ``half_pixel``."""
    if mode == "align_corners":
        return b.multiply(x, d.last / (d.length - 1)) if d.length > 1 else b.constant(0.0, "float64")
    if mode == "half_pixel_symmetric":
        assert isinstance(d.target, int), f"axis {d.axis} has no number"
        adjustment = d.target / d.length
        return b.add(half, (d.last + 1) / 2 * (1 - adjustment))
    start, end = _known(d.start), _known(d.end)
    if d.length <= 1:
        return b.constant((start + end) * d.last / 2, "float64")
    step = (end - start) * d.last / (d.length - 1)
    return b.add(b.multiply(x, step), start * d.last)


def _by_varying_extents(mode: str, d: Dimension, x: Expression, half: Expression) -> Expression:
    """The same where an extent, the scale or the region is known only when the kernel runs."""
    source = _real(d.source)
    last, length = b.subtract(source, 1.0), b.multiply(_real(d.scale), source)
    if mode == "half_pixel_symmetric":
        adjustment = b.divide(_real(d.target), length)
        return b.add(half, b.multiply(b.divide(source, 2.0), b.subtract(_real(1.0), adjustment)))
    several, steps = b.greater(length, 1.0), b.subtract(length, 1.0)
    if mode == "align_corners":
        return b.select(several, b.multiply(x, b.divide(last, steps)), 0.0)
    start, end = _real(d.start), _real(d.end)
    step = b.divide(b.multiply(b.subtract(end, start), last), steps)
    middle = b.divide(b.multiply(b.add(start, end), last), 2.0)
    return b.select(several, b.add(b.multiply(x, step), b.multiply(start, last)), middle)


def _nearest(node: NodeView, x: Expression) -> Expression:
    mode = node.attribute("nearest_mode", "round_prefer_floor")
    match mode:
        case "floor":
            rounded = b.unary("floor", x)
        case "ceil":
            rounded = b.unary("ceil", x)
        case "round_prefer_ceil":
            rounded = b.unary("floor", b.add(x, 0.5))
        case _:
            rounded = b.unary("ceil", b.subtract(x, 0.5))
    return b.cast(rounded, "int64")


def _cubic_weights(fraction: Expression, a: float) -> list[Expression]:
    """Keys' cubic convolution with parameter ``a`` at distances 1 + f, f, 1 - f, 2 - f (Keys 1981)."""

    def near(t: Expression) -> Expression:
        return b.add(b.multiply(b.multiply(b.subtract(b.multiply(t, a + 2), a + 3), t), t), 1)

    def far(t: Expression) -> Expression:
        inner = b.subtract(b.multiply(t, a), 5 * a)
        return b.subtract(b.multiply(b.add(b.multiply(inner, t), 8 * a), t), 4 * a)

    rest = b.subtract(b.constant(1.0, "float64"), fraction)
    return [far(b.add(fraction, 1)), near(fraction), near(rest), far(b.add(rest, 1))]


def _taps(node: NodeView, d: Dimension, place: Expression) -> list[tuple[Expression, Expression]]:
    """Positions (not yet inside the input) and weights (float64) of the neighbours of output element ``place``."""
    x = _original(node, d, place)
    if node.attribute("mode", "nearest") == "nearest":
        return [(_nearest(node, x), b.constant(1.0, "float64"))]
    whole = b.unary("floor", x)
    first, fraction = b.cast(whole, "int64"), b.subtract(x, whole)
    if node.attribute("mode") == "linear":
        return [(first, b.subtract(b.constant(1.0, "float64"), fraction)), (b.add(first, 1), fraction)]
    weights = _cubic_weights(fraction, node.attribute("cubic_coeff_a", -0.75))
    taps = [(b.add(first, offset), weight) for offset, weight in zip((-1, 0, 1, 2), weights, strict=True)]
    return _normalised(taps, d.source) if node.attribute("exclude_outside", 0) else taps


def _normalised(taps: list[tuple[Expression, Expression]], extent: b.Extent) -> list[tuple[Expression, Expression]]:
    """Weights outside the input set to 0, the others scaled so that they add up to 1."""
    kept = []
    for place, weight in taps:
        within = b.all_of(b.inside(place, extent))
        assert within is not None
        kept.append((place, b.select(within, weight, 0.0)))
    total = kept[0][1]
    for _, weight in kept[1:]:
        total = b.add(total, weight)
    return [(place, b.divide(weight, total)) for place, weight in kept]


def _resized(node: NodeView, d: Dimension, source: Buffer, target: Buffer, fill: float | None) -> Stage:
    kind = b.wide(source.dtype)
    # an image of no elements may be resized to one that has some: nothing is read then
    conditions = [] if isinstance(d.source, int) else [b.greater(d.source, 0)]

    def value(i: Indices) -> Expression:
        total: Expression | None = None
        for place, weight in _taps(node, d, i[d.axis]):
            at = [*i[: d.axis], b.clamp(place, d.source), *i[d.axis + 1 :]]
            element = b.masked_load(source, at, conditions)
            if node.attribute("mode", "nearest") == "nearest":
                return _filled(node, d, i, element, fill)
            term = b.multiply(b.cast(element, kind), b.cast(weight, kind))
            total = term if total is None else b.add(total, term)
        assert total is not None
        return _filled(node, d, i, total, fill)

    return b.compute(target, value)


def _filled(node: NodeView, d: Dimension, i: Indices, value: Expression, fill: float | None) -> Expression:
    if fill is None:
        return value
    x = _original(node, d, i[d.axis])
    last = float(d.last) if isinstance(d.source, int) else b.subtract(_real(d.source), 1.0)
    within = b.both(b.greater_equal(x, 0.0), b.less_equal(x, last))
    return b.select(within, value, fill)


def _dimensions(lowering: Lowering) -> list[Dimension]:
    node, source, target = lowering.node, b.extents(lowering.input(0)), b.extents(lowering.output())
    axes = [normal_axis(axis, len(source)) for axis in node.attribute("axes") or range(len(source))]
    found = []
    for number, axis in enumerate(axes):
        start, end = _region(lowering, number, len(axes))
        scale = _scale(lowering, axes, number)
        if scale != 1 or source[axis] != target[axis] or (start, end) != (0.0, 1.0):
            found.append(Dimension(axis, source[axis], target[axis], scale, start, end))
    return found


def _scale(lowering: Lowering, axes: Sequence[int], number: int) -> Number:
    """The scale of the ``number``-th axis: as it is given, else that of the extents."""
    node, source, target = lowering.node, b.extents(lowering.input(0)), b.extents(lowering.output())
    inner, outer = source[axes[number]], target[axes[number]]
    scales, given, sizes = lowering.constant(2), lowering.optional(2), lowering.constant(3)
    if scales is not None and scales.size:
        return float(scales.reshape(-1)[number])
    if scales is None and given is not None and b.dims(given) != (0,):
        return b.cast(b.load(given, number), "float64")
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and policy != "stretch":
        ratios = [int(size) / b.dims(lowering.input(0))[a] for size, a in zip(sizes, axes, strict=True)]
        return min(ratios) if policy == "not_larger" else max(ratios)
    if isinstance(inner, int) and isinstance(outer, int):
        return outer / inner
    return 1.0 if inner == outer else b.divide(_real(outer), _real(inner))


def _region(lowering: Lowering, number: int, count: int) -> tuple[Number, Number]:
    if lowering.node.attribute("coordinate_transformation_mode") != "tf_crop_and_resize":
        return 0.0, 1.0
    roi, given = lowering.constant(1), lowering.optional(1)
    if roi is None and given is not None and b.dims(given) == (2 * count,):
        start, end = (b.cast(b.load(given, place), "float64") for place in (number, count + number))
        return start, end
    if roi is None or roi.size != 2 * count:
        return 0.0, 1.0
    return float(roi[number]), float(roi[count + number])


def _lower_resize(lowering: Lowering) -> tuple[Stage, ...]:
    node, source, target = lowering.node, lowering.input(0), lowering.output()
    todo = _dimensions(lowering)
    crop = node.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    fill = node.attribute("extrapolation_value", 0.0) if crop else None
    if not todo:
        return (b.compute(target, lambda i: b.load(source, *i)),)
    kind = source.dtype if node.attribute("mode", "nearest") == "nearest" else b.wide(source.dtype)
    stages: list[Stage] = []
    shape = list(b.extents(source))
    for number, dimension in enumerate(todo):
        shape[dimension.axis] = dimension.target
        into = target if number == len(todo) - 1 else lowering.temporary(kind, tuple(shape))
        stages.append(_resized(node, dimension, source, into, fill))
        source = into
    return tuple(stages)


def _accept_resize(node: NodeView) -> Reject | None:
    if node.attribute("antialias", 0):
        return Reject("attribute", "Resize with antialias is not lowered")
    if node.dtype not in FLOATS and not is_custom(node.dtype) and node.attribute("mode", "nearest") != "nearest":
        return Reject("dtype", f"Resize of {node.dtype} with interpolation is not lowered")
    stretches = node.attribute("keep_aspect_ratio_policy", "stretch") == "stretch"
    return None if stretches else constants_required(2, 3)(node)


def _resize_varies(node: NodeView) -> Reject | None:
    """Take any extents: the scale is given, or that of the extents."""
    if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return Reject("dynamic-shape", "keep_aspect_ratio_policy of Resize scales as the extents say")
    for number in (1, 2):
        value = node.input(number)
        if value is not None and value.static_shape is None:
            return varying_axis(node, value, 0)
    return None


RESIZE = frozenset({Trait.INJECTIVE})
OPERATORS.add(Operator("Resize", RESIZE, _lower_resize, per_output(8), _accept_resize, varies=_resize_varies))


def _lower_upsample(lowering: Lowering) -> tuple[Stage, ...]:
    """Nearest neighbours at ``floor(position / scale)``."""
    source, target = lowering.input(0), lowering.output()
    pairs = list(zip(b.dims(source), b.dims(target), strict=True))

    def value(i: Indices) -> Expression:
        places = [b.divide(b.multiply(axis, inner), outer) for axis, (inner, outer) in zip(i, pairs, strict=True)]
        return b.load(source, *places)

    return (b.compute(target, value),)


def _accept_upsample(node: NodeView) -> Reject | None:
    mode = node.attribute("mode", "nearest")
    source, target = node.inputs[0], node.outputs[0]
    inner, outer = (value.static_shape or () for value in (source, target) if value is not None)
    whole = all(large % small == 0 for small, large in zip(inner, outer, strict=True) if small)
    if mode != "nearest" or not whole:
        return Reject("attribute", f"Upsample of mode '{mode}' by a fraction is not lowered")
    return None


OPERATORS.add(Operator("Upsample", RESIZE, _lower_upsample, per_output(1), _accept_upsample))
