"""Shapes of operators that move, cut, join and repeat elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.core.affine.expressions import (
    Ranges,
    add,
    ceildiv,
    floordiv,
    is_at_least,
    maximum,
    minimum,
    multiply,
    subtract,
)
from graft.core.operators.definition.facts import (
    Dimension,
    Facts,
    Shape,
    ShapeRule,
    broadcast,
    normal_axis,
    product,
    replaced,
    total,
)
from graft.runtime.extents import Extent

THE_END = (1 << 31) - 1
"""A bound of a Slice from here on is the end of the axis: exporters write the largest number of 32 or 64 bits."""


def _reshape(facts: Facts) -> list[Shape | None]:
    target, shape = facts.elements(1, "shape"), facts.shape(0)
    if target is None:
        counted = facts.shape(1)
        rank = counted[0] if counted else None
        return [(None,) * rank if isinstance(rank, int) else None]
    return [reshaped(shape, target, copies_zero=not facts.attribute("allowzero", 0))]


def reshaped(shape: Shape | None, target: Sequence[Dimension], *, copies_zero: bool) -> Shape:
    """Return the shape that a Reshape to ``target`` gives: 0 copies an extent, -1 is what is left."""
    found: list[Dimension] = []
    for axis, extent in enumerate(target):
        if extent == 0 and copies_zero:
            found.append(None if shape is None else shape[axis] if axis < len(shape) else None)
        else:
            found.append(extent)
    if -1 not in target:
        return tuple(found)
    place = list(target).index(-1)
    # axes that are copied stand on both sides of the division, also where their extents are not known
    copied = {axis for axis, extent in enumerate(target) if extent == 0 and copies_zero}
    whole = None if shape is None else product([one for axis, one in enumerate(shape) if axis not in copied])
    others = product([one for axis, one in enumerate(found) if axis != place and axis not in copied])
    found[place] = None if whole is None or others in (None, 0) else floordiv(whole, others)
    return tuple(found)


def _flatten(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None:
        return [(None, None)]
    axis = normal_axis(facts.attribute("axis", 1), len(shape))
    return [(product(shape[:axis]), product(shape[axis:]))]


def _squeeze(facts: Facts) -> list[Shape | None]:
    shape, axes = facts.shape(0), facts.numbers(1, "axes")
    if shape is None or (axes is None and (facts.has(1) or not all(isinstance(one, int) for one in shape))):
        return []
    gone = {normal_axis(axis, len(shape)) for axis in axes} if axes is not None else None
    return [tuple(one for axis, one in enumerate(shape) if (one != 1 if gone is None else axis not in gone))]


def _unsqueeze(facts: Facts) -> list[Shape | None]:
    shape, axes = facts.shape(0), facts.numbers(1, "axes")
    if shape is None or axes is None:
        return []
    rank = len(shape) + len(axes)
    new, rest = {normal_axis(axis, rank) for axis in axes}, iter(shape)
    return [tuple(1 if axis in new else next(rest) for axis in range(rank))]


def _transpose(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None:
        return []
    order = facts.attribute("perm") or list(reversed(range(len(shape))))
    return [tuple(shape[axis] for axis in order)]


def _expand(facts: Facts) -> list[Shape | None]:
    target = facts.elements(1)
    if target is None:
        counted, shape = facts.shape(1), facts.shape(0)
        if shape is None or not counted or not isinstance(counted[0], int):
            return []
        return [(None,) * max(counted[0], len(shape))]
    return [broadcast(facts.shape(0), target, ranges=facts.ranges)]


def _tile(facts: Facts) -> list[Shape | None]:
    shape, repeats = facts.shape(0), facts.elements(1)
    if shape is None:
        return []
    return [tuple(product(pair) for pair in zip(shape, repeats or (None,) * len(shape), strict=True))]


def _concat(facts: Facts) -> list[Shape | None]:
    if any(shape is None for shape in facts.shapes):
        return []
    shapes = [shape for shape in facts.shapes if shape is not None]
    axis = normal_axis(facts.attribute("axis"), len(shapes[0]))
    joint = tuple(_same(column) for column in zip(*shapes, strict=True))
    return [replaced(joint, axis, total([shape[axis] for shape in shapes]))]


def _same(extents: Sequence[Dimension]) -> Dimension:
    """Return the extent that operands must share: a number if one has it, else that of the first."""
    return next(
        (one for one in extents if isinstance(one, int)), next((one for one in extents if one is not None), None)
    )


def _split(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None:
        return []
    axis = normal_axis(facts.attribute("axis", 0), len(shape))
    sizes = facts.elements(1, "split")
    if sizes is None and not facts.has(1) and (whole := shape[axis]) is not None:
        part = ceildiv(whole, facts.outputs)
        sizes = (*(part for _ in range(facts.outputs - 1)), subtract(whole, multiply(facts.outputs - 1, part)))
    return [replaced(shape, axis, one) for one in sizes or (None,) * facts.outputs]


def _slice(facts: Facts) -> list[Shape | None]:
    shape, starts, ends = facts.shape(0), facts.elements(1, "starts"), facts.elements(2, "ends")
    if shape is None:
        return []
    axes, steps = facts.numbers(3, "axes"), facts.numbers(4)
    count = facts.shape(1)
    if axes is None and (facts.has(3) or not count or not isinstance(count[0], int)):
        return [(None,) * len(shape)]
    axes = axes if axes is not None else tuple(range(count[0]))  # type: ignore[index, arg-type]
    result = shape
    for place, axis in enumerate(normal_axis(axis, len(shape)) for axis in axes):
        step = steps[place] if steps is not None else None if facts.has(4) else 1
        start, end = (None if bounds is None else bounds[place] for bounds in (starts, ends))
        result = replaced(result, axis, sliced(shape[axis], start, end, step, facts.ranges))
    return [result]


def sliced(
    extent: Dimension, start: Dimension, end: Dimension, step: int | None, ranges: Ranges | None = None
) -> Dimension:
    """Return how many of ``extent`` elements a Slice takes, its bounds clamped; None for a step back but of all."""
    if extent is None or start is None or end is None or not step:
        return None
    if step < 0:
        last = (isinstance(start, int) and start >= THE_END) or start == -1
        return ceildiv(extent, -step) if last and isinstance(end, int) and end <= -THE_END else None
    first, behind = _bound(extent, start, ranges), _bound(extent, end, ranges)
    return ceildiv(maximum(0, subtract(behind, first)), step)


def _bound(extent: Extent, bound: Extent, ranges: Ranges | None) -> Extent:
    """Return a bound counted from the front and within the axis; it may count from either side."""
    if isinstance(bound, int) and bound >= THE_END:
        return extent
    if is_at_least(bound, 0, ranges):
        return minimum(bound, extent)
    if is_at_least(multiply(-1, bound), 1, ranges):
        return maximum(0, add(extent, bound))
    is_from_behind = minimum(1, maximum(0, multiply(-1, bound)))
    return maximum(0, minimum(extent, add(bound, multiply(extent, is_from_behind))))


def _gather(facts: Facts) -> list[Shape | None]:
    shape, indices = facts.shape(0), facts.shape(1)
    if shape is None or indices is None:
        return []
    axis = normal_axis(facts.attribute("axis", 0), len(shape))
    return [(*shape[:axis], *indices, *shape[axis + 1 :])]


def _gather_elements(facts: Facts) -> list[Shape | None]:
    return [facts.shape(1)]


def _gather_nd(facts: Facts) -> list[Shape | None]:
    shape, indices = facts.shape(0), facts.shape(1)
    if shape is None or not indices or not isinstance(indices[-1], int):
        return []
    return [(*indices[:-1], *shape[facts.attribute("batch_dims", 0) + indices[-1] :])]


def _one_hot(facts: Facts) -> list[Shape | None]:
    shape, depth = facts.shape(0), facts.elements(1)
    if shape is None:
        return []
    axis = normal_axis(facts.attribute("axis", -1), len(shape) + 1)
    return [(*shape[:axis], depth[0] if depth else None, *shape[axis:])]


def _constant_of_shape(facts: Facts) -> list[Shape | None]:
    target, counted = facts.elements(0), facts.shape(0)
    if target is not None:
        return [target]
    return [(None,) * counted[0] if counted and isinstance(counted[0], int) else None]


def _range(facts: Facts) -> list[Shape | None]:
    bounds = [facts.elements(index) for index in range(3)]
    start, limit, step = (found[0] if found else None for found in bounds)
    if start is None or limit is None or step is None or step == 0:
        return [(None,)]
    if isinstance(step, int) and step < 0:
        return [(maximum(0, ceildiv(subtract(start, limit), -step)),)]
    if not is_at_least(step, 0, facts.ranges):  # of 0 there is no Range
        return [(None,)]
    distance = subtract(limit, start)
    return [(maximum(0, floordiv(add(distance, step, -1), step)),)]


def _shape(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None:
        return [(None,)]
    return [(len(shape[slice(facts.attribute("start", 0), facts.attribute("end"))]),)]


def _size(facts: Facts) -> list[Shape | None]:
    return [()]


def _pad(facts: Facts) -> list[Shape | None]:
    shape, pads, axes = facts.shape(0), facts.elements(1, "pads"), facts.numbers(3)
    if shape is None:
        return []
    if pads is None or (facts.has(3) and axes is None):
        return [(None,) * len(shape)]
    result, count = shape, len(pads) // 2
    for place, axis in enumerate(axes if axes is not None else range(len(shape))):
        axis = normal_axis(axis, len(shape))
        result = replaced(result, axis, total((result[axis], pads[place], pads[place + count])))
    return [result]


def _center_crop_pad(facts: Facts) -> list[Shape | None]:
    shape, target = facts.shape(0), facts.elements(1)
    if shape is None:
        return []
    result = shape
    axes = facts.attribute("axes") or range(len(shape))
    for place, axis in enumerate(axes):
        result = replaced(result, normal_axis(axis, len(shape)), None if target is None else target[place])
    return [result]


def _space(facts: Facts) -> list[Shape | None]:
    """SpaceToDepth and DepthToSpace: channels become a block of pixels, or the other way round."""
    shape, block = facts.shape(0), facts.attribute("blocksize")
    if shape is None or any(extent is None for extent in shape):
        return []
    n, c, h, w = (extent for extent in shape if extent is not None)
    if facts.view.op_type == "SpaceToDepth":
        return [(n, multiply(c, block * block), floordiv(h, block), floordiv(w, block))]
    return [(n, floordiv(c, block * block), multiply(h, block), multiply(w, block))]


def _top_k(facts: Facts) -> list[Shape | None]:
    shape, count = facts.shape(0), facts.elements(1, "k")
    if shape is None:
        return []
    axis = normal_axis(facts.attribute("axis", -1), len(shape))
    return [replaced(shape, axis, count[0] if count else None)] * 2


def _compress(facts: Facts) -> list[Shape | None]:
    shape, axis = facts.shape(0), facts.attribute("axis")
    if axis is None or shape is None:
        return [(None,) if axis is None else None]
    return [replaced(shape, normal_axis(axis, len(shape)), None)]


def _unique(facts: Facts) -> list[Shape | None]:
    shape, axis = facts.shape(0), facts.attribute("axis")
    first: Shape | None = (None,)
    if axis is not None:
        first = None if shape is None else replaced(shape, normal_axis(axis, len(shape)), None)
    return [first, (None,), (None,), (None,)]


def _non_zero(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    return [(None if shape is None else len(shape), None)]


def _non_max_suppression(facts: Facts) -> list[Shape | None]:
    return [(None, 3)]


RULES: Mapping[str, ShapeRule] = {
    "CenterCropPad": _center_crop_pad,
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unique": _unique,
    "Unsqueeze": _unsqueeze,
}
