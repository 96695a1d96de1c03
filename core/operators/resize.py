"""Resize: one stage per resized dimension, each a weighted sum of a few neighbours.

Positions are computed in float64, as onnx.reference does, because a position that falls exactly between two
elements decides which one is taken. Where extents are known they and the weights are computed once per call, for one
line of each dimension, and the dimensions go in the order of the least work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import permutations
from typing import TypeAlias

from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.operators.build import Count
from graft.core.operators.cost import per_output
from graft.core.operators.manipulation import normal_axis
from graft.core.operators.table import OPERATORS, Lowering, Operator, Trait
from graft.core.operators.varying import varying_axis
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS, INTEGERS, is_custom

INNERMOST = 8.0
"""What a neighbour along the innermost axis costs, where vectors hold neighbours along another at 1."""
MOST_ORDERED = 4
"""Dimensions of which all orders are compared."""
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


def _keys(a: float) -> tuple[Callable[[Expression], Expression], Callable[[Expression], Expression]]:
    """Return Keys' cubic convolution with parameter ``a`` between distances 1 and 2, and below 1 (Keys 1981)."""

    def near(t: Expression) -> Expression:
        return b.add(b.multiply(b.multiply(b.subtract(b.multiply(t, a + 2), a + 3), t), t), 1)

    def far(t: Expression) -> Expression:
        inner = b.subtract(b.multiply(t, a), 5 * a)
        return b.subtract(b.multiply(b.add(b.multiply(inner, t), 8 * a), t), 4 * a)

    return far, near


def cubic_weights(fraction: Expression, a: float) -> list[Expression]:
    """Return the weights of cubic convolution at distances 1 + f, f, 1 - f, 2 - f."""
    far, near = _keys(a)
    rest = b.subtract(b.constant(1.0, fraction.type.dtype), fraction)
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
    weights = cubic_weights(fraction, node.attribute("cubic_coeff_a", -0.75))
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


Taps: TypeAlias = Callable[[Expression], list[tuple[Expression, Expression]]]
"""Positions and weights of the neighbours of an output element."""


def _weight(node: NodeView, d: Dimension, number: int, i: Indices) -> Expression:
    """The weight of a neighbour of output element ``i``."""
    return _taps(node, d, i[0])[number][1]


def _repeated(node: NodeView, d: Dimension) -> int | None:
    """Return how often nearest neighbours repeat each element, if all are taken equally often, in order; else None."""
    times = d.scale if isinstance(d.scale, float) else 0.0
    if node.attribute("mode", "nearest") != "nearest" or not d.is_static or not times.is_integer():
        return None
    if not isinstance(d.source, int) or times < 1 or d.target != d.source * int(times):
        return None
    match node.attribute("coordinate_transformation_mode", "half_pixel"), node.attribute("nearest_mode"):
        case ("asymmetric", "floor"):
            return int(times)
        case (("half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric"), ("floor" | "ceil")):
            return None
        case (("half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric"), _):
            return int(times)  # (i + 1/2) / times is no whole number, hence rounded alike by both
        case _:
            return None


def _tabulated(lowering: Lowering, d: Dimension, kind: str) -> tuple[list[Stage], Taps]:
    """Return stages that compute the first position and the weights for one line, and the taps that read them."""
    node = lowering.node
    first = lowering.temporary("int32", (d.target,))
    stages = [b.compute(first, lambda i: _taps(node, d, i[0])[0][0])]
    if node.attribute("mode", "nearest") == "nearest":
        one = b.constant(1.0, "float64")
        return stages, lambda place: [(b.cast(b.load(first, place), "int64"), one)]
    weights = [lowering.temporary(kind, (d.target,)) for _ in _taps(node, d, b.index(0))]
    for number, table in enumerate(weights):
        stages.append(b.compute(table, partial(_weight, node, d, number)))

    def taps(place: Expression) -> list[tuple[Expression, Expression]]:
        start = b.cast(b.load(first, place), "int64")
        return [(b.add(start, number), b.load(table, place)) for number, table in enumerate(weights)]

    return stages, taps


def _whole_taps(times: int, place: Expression) -> list[tuple[Expression, Expression]]:
    """The only neighbour where each is repeated."""
    return [(b.divide(place, times), b.constant(1.0, "float64"))]


def _resized(node: NodeView, d: Dimension, source: Buffer, target: Buffer, fill: float | None, taps: Taps) -> Stage:
    kind = _between(source.dtype)
    # an image of no elements may be resized to one that has some: nothing is read then
    conditions = [] if isinstance(d.source, int) else [b.greater(d.source, 0)]

    def value(i: Indices) -> Expression:
        total: Expression | None = None
        for place, weight in taps(i[d.axis]):
            at = [*i[: d.axis], b.clamp(place, d.source), *i[d.axis + 1 :]]
            element = b.masked_load(source, at, conditions)
            if node.attribute("mode", "nearest") == "nearest":
                return _filled(node, d, i, element, fill)
            term = b.multiply(b.cast(element, kind), b.cast(weight, kind))
            total = term if total is None else b.add(total, term)
        assert total is not None
        return _filled(node, d, i, total, fill)

    return b.compute(target, value)


def _reach(node: NodeView, d: Dimension, scale: Number) -> Count:
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


def _smoothed(
    lowering: Lowering, d: Dimension, source: Buffer, target: Buffer, fill: float | None
) -> tuple[list[Stage], list[Stage]]:
    """Return tables and stages of a dimension that gets smaller: an element is the weighted sum of what it stands for.

    The filter of the interpolation is as much wider as the image gets smaller. Its weights are made once for all
    lines and divided by their sum. What reaches beyond an end counts for the element there, so each result is the
    product of as many weights and neighbours, none of which lies outside.
    """
    node, kind = lowering.node, _between(source.dtype)
    scale: Number = min(d.scale, 1.0) if isinstance(d.scale, float) else b.minimum(d.scale, 1.0)
    is_cubic = node.attribute("mode") == "cubic"
    count, coefficient = _reach(node, d, scale), node.attribute("cubic_coeff_a", -0.75)
    width = b.counted(b.minimum(b.extent(count), d.source)) if d.source != 0 else 0
    back = b.subtract(b.divide(b.extent(count), 2), 1)

    def nearest(place: Expression) -> tuple[Expression, Expression]:
        """The last position before an output element's, and how far behind it that is."""
        x = _original(node, d, place)
        whole = b.subtract(b.unary("ceil", x), 1.0)
        return b.cast(whole, "int64"), b.subtract(x, whole)

    begins = b.compute(lowering.temporary("int32", (d.target,)), lambda i: b.subtract(nearest(i[0])[0], back))

    def begin(place: Expression) -> Expression:
        return b.cast(b.load(begins.buffer, place), "int64")

    def weight(i: Indices) -> Expression:
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

    def share(i: Indices, k: Indices) -> Expression:
        place = b.subtract(b.clamp(b.add(begin(i[0]), k[0]), d.source), b.cast(b.load(first.buffer, i[0]), "int64"))
        own = b.divide(b.load(weights.buffer, i[0], k[0]), b.load(total, i[0]))
        return b.select(b.equal(place, i[1]), own, 0.0)

    shares = b.reduce(lowering.temporary(kind, (d.target, width)), "add", [count], share)

    def term(i: Indices, k: Indices) -> Expression:
        place = b.add(b.cast(b.load(first.buffer, i[d.axis]), "int64"), k[0])
        element = b.load(source, *i[: d.axis], place, *i[d.axis + 1 :])
        return b.multiply(b.cast(element, kind), b.load(shares.buffer, i[d.axis], k[0]))

    tables = [begins, first, weights, sums, shares]
    if fill is None:
        return tables, [b.reduce(target, "add", [width], term)]
    plain = b.reduce(lowering.temporary(kind, b.counts(target)), "add", [width], term)
    return tables, [plain, b.compute(target, lambda i: _filled(node, d, i, b.load(plain.buffer, *i), fill))]


def _filter(distance: Expression, coefficient: float | None) -> Expression:
    """The weight at a distance: Keys' cubic convolution with a coefficient, a triangle without one."""
    if coefficient is None:
        return b.maximum(b.subtract(b.constant(1.0, "float64"), distance), 0.0)
    far, near = _keys(coefficient)
    return b.select(b.less_equal(distance, 1.0), near(distance), b.select(b.less(distance, 2.0), far(distance), 0.0))


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
    if policy != "stretch":
        return _common_scale(lowering, axes, None if sizes is None else [int(size) for size in sizes.reshape(-1)])
    if isinstance(inner, int) and isinstance(outer, int):
        return outer / inner
    return 1.0 if inner == outer else b.divide(_real(outer), _real(inner))


def _common_scale(lowering: Lowering, axes: Sequence[int], sizes: Sequence[int] | None) -> Number:
    """The scale of all axes alike: the least or the largest of those that the sizes ask for."""
    shape, given = b.extents(lowering.input(0)), lowering.input(3)
    takes_least = lowering.node.attribute("keep_aspect_ratio_policy") == "not_larger"
    extents = [extent for axis in axes if isinstance(extent := shape[axis], int)]
    if sizes is not None and len(extents) == len(axes):
        ratios = [size / extent for size, extent in zip(sizes, extents, strict=True)]
        return min(ratios) if takes_least else max(ratios)
    wanted = [_real(size) for size in sizes] if sizes else [_real(b.load(given, place)) for place in range(len(axes))]
    computed = [b.divide(size, _real(shape[axis])) for size, axis in zip(wanted, axes, strict=True)]
    return reduce(b.minimum if takes_least else b.maximum, computed)


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
    kind = source.dtype if node.attribute("mode", "nearest") == "nearest" else _between(source.dtype)
    is_rounded = kind != source.dtype and source.dtype in INTEGERS
    known = not is_custom(kind) and all(one.is_static for one in todo) and 0 not in b.counts(target)
    if known:
        todo = _in_order(todo, b.counts(source), is_smoothed=bool(node.attribute("antialias", 0)))
    tables, stages = list[Stage](), list[Stage]()
    shape = list(b.extents(source))
    for number, dimension in enumerate(todo):
        shape[dimension.axis] = dimension.target
        is_last = number == len(todo) - 1 and not is_rounded
        into = target if is_last else lowering.temporary(kind, tuple(shape))
        is_smoothed = bool(node.attribute("antialias", 0)) and dimension.source != dimension.target
        if is_smoothed:
            made, summed = _smoothed(lowering, dimension, source, into, fill)
            stages += summed
        else:
            made, taps = _taps_of(lowering, dimension, kind, is_known=known)
            stages.append(_resized(node, dimension, source, into, fill, taps))
        tables += made
        source = into
    if is_rounded:
        stages.append(b.compute(target, lambda i: b.unary("round_even", b.load(source, *i))))
    return (*tables, *stages)


def _in_order(dimensions: list[Dimension], shape: Sequence[Count], *, is_smoothed: bool) -> list[Dimension]:
    """Return dimensions of known extents in the order of the least work.

    Without smoothing what shrinks goes first, and what grows from the innermost, which gathers its neighbours.
    """
    if not is_smoothed:
        return sorted(dimensions, key=lambda one: (min(_known(one.scale), 1.0), -one.axis))

    def work(order: Iterable[Dimension]) -> float:
        extents, total = list(shape), 0.0
        for one in order:
            assert isinstance(one.target, int), f"axis {one.axis} has no number"
            extents[one.axis] = one.target
            apart = INNERMOST if one.axis == len(shape) - 1 else 1.0
            total += math.prod(one for one in extents if isinstance(one, int)) * apart / min(_known(one.scale), 1.0)
        return total

    return list(min(permutations(dimensions), key=work)) if len(dimensions) <= MOST_ORDERED else dimensions


def _taps_of(lowering: Lowering, d: Dimension, kind: str, *, is_known: bool) -> tuple[list[Stage], Taps]:
    """Return the taps of a dimension, and stages in front that they read: none where positions are divisions."""
    times = _repeated(lowering.node, d)
    if times is not None:
        return [], partial(_whole_taps, times)
    return _tabulated(lowering, d, kind) if is_known else ([], partial(_taps, lowering.node, d))


def _between(dtype: str) -> str:
    """The type in which elements of a type are interpolated; what comes out is rounded, if they are integers."""
    if dtype in ("int32", "int64", "uint32", "uint64"):
        return "float64"
    return "float32" if dtype in INTEGERS else b.wide(dtype)


def _accept_resize(node: NodeView) -> Reject | None:
    is_nearest = node.attribute("mode", "nearest") == "nearest"
    if node.attribute("antialias", 0) and is_nearest:
        return Reject("attribute", "Resize with antialias is lowered of linear and cubic modes")
    if node.dtype not in FLOATS | INTEGERS and not is_custom(node.dtype) and not is_nearest:
        return Reject("dtype", f"Resize of {node.dtype} with interpolation is not lowered")
    return None


def _resize_varies(node: NodeView) -> Reject | None:
    """Take any extents: the scale is given, or that of the extents."""
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
