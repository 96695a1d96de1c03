"""Resize: one stage per resized dimension, each a weighted sum of a few neighbours.

Positions are computed in float64, as onnx.reference does, because a position that falls exactly between two
elements decides which one is taken. They and the weights are computed once per call, for one line of each dimension.
Where extents are known the dimensions go in the order of the least work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import TypeAlias

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import minimum, multiply
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.stated_extents import Claim, Operands, Stated, StatedShape, each
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import varying_axis
from graft.core.operators.images import derivatives as derivative
from graft.core.operators.images import resize_positions as positions
from graft.core.operators.images import shapes
from graft.core.operators.images.resize_smoothing import in_order, smoothed
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS, INTEGERS, is_custom


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


def _taps(node: NodeView, d: positions.Dimension, place: Expression) -> list[tuple[Expression, Expression]]:
    """Positions (not yet inside the input) and weights (float64) of the neighbours of output element ``place``."""
    x = positions.original_place(node, d, place)
    if node.attribute("mode", "nearest") == "nearest":
        return [(_nearest(node, x), b.constant(1.0, "float64"))]
    whole = b.unary("floor", x)
    first, fraction = b.cast(whole, "int64"), b.subtract(x, whole)
    if node.attribute("mode") == "linear":
        return [(first, b.subtract(b.constant(1.0, "float64"), fraction)), (b.add(first, 1), fraction)]
    weights = positions.cubic_weights(fraction, node.attribute("cubic_coeff_a", -0.75))
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


def _weight(node: NodeView, d: positions.Dimension, number: int, i: positions.Indices) -> Expression:
    """The weight of a neighbour of output element ``i``."""
    return _taps(node, d, i[0])[number][1]


def _place(node: NodeView, d: positions.Dimension, number: int, i: positions.Indices) -> Expression:
    """The position of a neighbour of output element ``i`` inside the input."""
    return b.clamp(_taps(node, d, i[0])[number][0], d.source)


def _repeated(node: NodeView, times: float) -> int | None:
    """Return how often nearest neighbours repeat each element, if all are taken equally often, in order; else None."""
    if node.attribute("mode", "nearest") != "nearest" or times < 1 or not times.is_integer():
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


def _tabulated(lowering: Lowering, d: positions.Dimension, kind: str) -> tuple[list[Stage], Taps]:
    """Return stages that compute positions and weights for one line, and the taps that read them.

    The positions are those inside the input that are read.
    """
    node = lowering.node
    count = len(_taps(node, d, b.index(0)))
    places = [lowering.temporary("int32", (d.target,)) for _ in range(count)]
    stages = [b.compute(table, partial(_place, node, d, number)) for number, table in enumerate(places)]
    if node.attribute("mode", "nearest") == "nearest":
        one = b.constant(1.0, "float64")
        return stages, lambda place: [(b.cast(b.load(table, place), "int64"), one) for table in places]
    weights = [lowering.temporary(kind, (d.target,)) for _ in range(count)]
    stages += [b.compute(table, partial(_weight, node, d, number)) for number, table in enumerate(weights)]

    def taps(place: Expression) -> list[tuple[Expression, Expression]]:
        tables = zip(places, weights, strict=True)
        return [(b.cast(b.load(own, place), "int64"), b.load(weight, place)) for own, weight in tables]

    return stages, taps


def _whole_taps(times: int, place: Expression) -> list[tuple[Expression, Expression]]:
    """The only neighbour where each is repeated."""
    return [(b.divide(place, times), b.constant(1.0, "float64"))]


def _resized(
    node: NodeView,
    d: positions.Dimension,
    source: Buffer,
    target: Buffer,
    fill: float | None,
    taps: Taps,
    *,
    stays_inside: bool,
) -> Stage:
    kind = positions.between(source.dtype)
    # an image of no elements may be cropped to one that has some: nothing is read then
    conditions = [] if isinstance(d.source, int) or fill is None else [b.greater(d.source, 0)]

    def value(i: positions.Indices) -> Expression:
        total: Expression | None = None
        for place, weight in taps(i[d.axis]):
            at = [*i[: d.axis], place if stays_inside else b.clamp(place, d.source), *i[d.axis + 1 :]]
            element = b.masked_load(source, at, conditions)
            if node.attribute("mode", "nearest") == "nearest":
                return positions.filled(node, d, i, element, fill)
            term = b.multiply(b.cast(element, kind), b.cast(weight, kind))
            total = term if total is None else b.add(total, term)
        assert total is not None
        return positions.filled(node, d, i, total, fill)

    return b.compute(target, value)


def _dimensions(lowering: Lowering) -> list[positions.Dimension]:
    node, source, target = lowering.node, b.extents(lowering.input(0)), b.extents(lowering.output())
    axes = [normal_axis(axis, len(source)) for axis in node.attribute("axes") or range(len(source))]
    found = []
    for number, axis in enumerate(axes):
        start, end = _region(lowering, number, len(axes))
        scale = _scale(lowering, axes, number)
        if scale != 1 or source[axis] != target[axis] or (start, end) != (0.0, 1.0):
            found.append(positions.Dimension(axis, source[axis], target[axis], scale, start, end))
    return found


def _scale(lowering: Lowering, axes: Sequence[int], number: int) -> positions.Number:
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
    return 1.0 if inner == outer else b.divide(positions.real(outer), positions.real(inner))


def _common_scale(lowering: Lowering, axes: Sequence[int], sizes: Sequence[int] | None) -> positions.Number:
    """The scale of all axes alike: the least or the largest of those that the sizes ask for."""
    shape, given = b.extents(lowering.input(0)), lowering.input(3)
    takes_least = lowering.node.attribute("keep_aspect_ratio_policy") == "not_larger"
    extents = [extent for axis in axes if isinstance(extent := shape[axis], int)]
    if sizes is not None and len(extents) == len(axes):
        ratios = [size / extent for size, extent in zip(sizes, extents, strict=True)]
        return min(ratios) if takes_least else max(ratios)
    wanted = (
        [positions.real(size) for size in sizes]
        if sizes
        else [positions.real(b.load(given, place)) for place in range(len(axes))]
    )
    computed = [b.divide(size, positions.real(shape[axis])) for size, axis in zip(wanted, axes, strict=True)]
    return reduce(b.minimum if takes_least else b.maximum, computed)


def _region(lowering: Lowering, number: int, count: int) -> tuple[positions.Number, positions.Number]:
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
    kind = source.dtype if node.attribute("mode", "nearest") == "nearest" else positions.between(source.dtype)
    is_rounded = kind != source.dtype and source.dtype in INTEGERS
    is_tabulated = not is_custom(kind) and 0 not in b.extents(target)
    if is_tabulated and all(one.is_static for one in todo):
        todo = in_order(todo, b.counts(source), is_smoothed=bool(node.attribute("antialias", 0)))
    tables, stages = list[Stage](), list[Stage]()
    shape = list(b.extents(source))
    for number, dimension in enumerate(todo):
        shape[dimension.axis] = dimension.target
        is_last = number == len(todo) - 1 and not is_rounded
        into = target if is_last else lowering.temporary(kind, tuple(shape))
        is_smoothed = bool(node.attribute("antialias", 0)) and dimension.source != dimension.target
        if is_smoothed:
            made, summed = smoothed(lowering, dimension, source, into, fill)
            stages += summed
        else:
            times = _times(node, dimension)
            made, taps = _taps_of(lowering, dimension, kind, times, is_tabulated=is_tabulated)
            stays_inside = times is not None or is_tabulated
            stages.append(_resized(node, dimension, source, into, fill, taps, stays_inside=stays_inside))
        tables += made
        source = into
    if is_rounded:
        stages.append(b.compute(target, lambda i: b.unary("round_even", b.load(source, *i))))
    return (*tables, *stages)


def _times(node: NodeView, d: positions.Dimension) -> int | None:
    """Return how often the elements of a dimension are repeated; None where they are taken in another way.

    Where extents vary, the node demands that the result's is at most what follows from the scale.
    """
    times = _repeated(node, d.scale) if isinstance(d.scale, float) else None
    is_other = isinstance(d.source, int) and times is not None and d.target != d.source * times
    return None if is_other else times


def _taps_of(
    lowering: Lowering, d: positions.Dimension, kind: str, times: int | None, *, is_tabulated: bool
) -> tuple[list[Stage], Taps]:
    """Return the taps of a dimension, and stages in front that they read: none where positions are divisions."""
    if times is not None:
        return [], partial(_whole_taps, times)
    return _tabulated(lowering, d, kind) if is_tabulated else ([], partial(_taps, lowering.node, d))


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


def _scales_demand(number: int, each: int = 1) -> demand.Demand:
    """A scale, or so many numbers, for each axis that is resized; an operand without elements is absent."""

    def demands(node: NodeView) -> Iterator[Equation]:
        value, rank = node.input(number), demand.rank_of(node.input(0))
        axes = node.attribute("axes")
        if value is not None and value.shape != (0,) and rank is not None:
            yield from demand.counted(number, 0, each * (len(axes) if axes else rank))(node)

    return demands


def _resize_demands(node: NodeView) -> Iterator[Equation]:
    crops = node.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    yield from demand.all_of(*([_scales_demand(1, 2)] if crops else []), _scales_demand(2), _scales_demand(3))(node)
    if not crops:
        yield from _no_more_than_there_is(node)


def _no_more_than_there_is(node: NodeView) -> Iterator[Equation]:
    """An axis without elements is resized to none; one whose elements are repeated has no more than all of them."""
    rank = demand.rank_of(node.input(0)) or 0
    axes = [normal_axis(axis, rank) for axis in node.attribute("axes") or range(rank)]
    given = node.input(2)
    scales = None if given is None else given.constant
    for axis in range(rank):
        result, operand, times = demand.result(node, 0, axis), demand.operand(node, 0, axis), None
        if axis in axes and scales is not None and scales.size == len(axes):
            times = _repeated(node, float(scales.reshape(-1)[axes.index(axis)]))
        if result is not None and operand is not None:
            left, right = (minimum(result, 1), operand) if times is None else (result, multiply(operand, times))
            yield from demand.equation(left, right, "at most")


RESIZE = frozenset({Trait.INJECTIVE})


def _resized_extents(operands: Operands, shape: StatedShape) -> Iterable[Claim]:
    """The sizes that are asked for, or extents times scales."""
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

    return each(shape, computed)


_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip
_CHECKS = (
    check.one_of("mode", "nearest", "linear", "cubic"),
    check.one_of("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
    check.one_of("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
    check.one_of("coordinate_transformation_mode", *_COORDINATES),
    check.axes("axes"),
)


define(
    "Resize", RESIZE, _lower_resize, per_output(8), _accept_resize, varies=_resize_varies, demands=_resize_demands,
    shapes=shapes.resize, attributes=_CHECKS, stated=Stated(_resized_extents, (2, 3)),
    vjp=derivative.resized,
)  # fmt: skip


def _lower_upsample(lowering: Lowering) -> tuple[Stage, ...]:
    """Nearest neighbours at ``floor(position / scale)``."""
    source, target = lowering.input(0), lowering.output()
    pairs = list(zip(b.dims(source), b.dims(target), strict=True))

    def value(i: positions.Indices) -> Expression:
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


define(
    "Upsample", RESIZE, _lower_upsample, per_output(1), _accept_upsample, demands=_scales_demand(1),
    shapes=shapes.upsample, attributes=(check.one_of("mode", "nearest", "linear"),),
)  # fmt: skip
