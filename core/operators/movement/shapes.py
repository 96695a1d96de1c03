"""Shapes of operators that move, cut, join and repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.affine import expressions as affine
from graft.core.operators.definition.facts import (
    Dimension,
    Facts,
    Shape,
    broadcast,
    normal_axis,
    product,
    replaced,
    total,
)
from graft.core.operators.definition.implied_bounds import broadcast_bounds
from graft.runtime.extents import Extent

THE_END = (1 << 31) - 1
"""A bound of a Slice from here on is the end of the axis: exporters write the largest number of 32 or 64 bits."""


def reshape(facts: Facts) -> list[Shape | None]:
    """The shape that is asked for."""
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
    found[place] = None if whole is None or others in (None, 0) else affine.floordiv(whole, others)
    return tuple(found)


def flatten(facts: Facts) -> list[Shape | None]:
    """Two axes: those before one, and the rest."""
    shape = facts.shape(0)
    if shape is None:
        return [(None, None)]
    axis = normal_axis(facts.attribute("axis", 1), len(shape))
    return [(product(shape[:axis]), product(shape[axis:]))]


def squeeze(facts: Facts) -> list[Shape | None]:
    """The shape without axes of extent 1."""
    shape, axes = facts.known(0), facts.numbers(1, "axes")
    if axes is None and (facts.has(1) or not all(isinstance(one, int) for one in shape)):
        return []
    gone = {normal_axis(axis, len(shape)) for axis in axes} if axes is not None else None
    return [tuple(one for axis, one in enumerate(shape) if (one != 1 if gone is None else axis not in gone))]


def unsqueeze(facts: Facts) -> list[Shape | None]:
    """The shape with axes of extent 1 more."""
    shape, axes = facts.known(0), facts.numbers(1, "axes")
    if axes is None:
        return []
    rank = len(shape) + len(axes)
    new, rest = {normal_axis(axis, rank) for axis in axes}, iter(shape)
    return [tuple(1 if axis in new else next(rest) for axis in range(rank))]


def transpose(facts: Facts) -> list[Shape | None]:
    """The axes in another order."""
    shape = facts.known(0)
    order = facts.attribute("perm") or list(reversed(range(len(shape))))
    return [tuple(shape[axis] for axis in order)]


def expand(facts: Facts) -> list[Shape | None]:
    """The shape broadcast to the one that is asked for."""
    target = facts.elements(1)
    if target is None:
        counted, shape = facts.shape(1), facts.shape(0)
        if shape is None or not counted or not isinstance(counted[0], int):
            return []
        return [(None,) * max(counted[0], len(shape))]
    return [broadcast(facts.shape(0), target, ranges=facts.ranges)]


def expand_bounds(facts: Facts, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """The ranges that are narrower because the input broadcasts to the shape that is asked for, where that is known."""
    target = facts.content(1)
    return {} if target is None else broadcast_bounds([facts.shape(0), target.elements], ranges)


def tile(facts: Facts) -> list[Shape | None]:
    """Each extent as often as is asked for."""
    shape, repeats = facts.known(0), facts.elements(1)
    return [tuple(product(pair) for pair in zip(shape, repeats or (None,) * len(shape), strict=True))]


def concat(facts: Facts) -> list[Shape | None]:
    """The sum of extents along an axis."""
    shapes = [facts.known(number) for number in range(len(facts.shapes))]
    axis = normal_axis(facts.attribute("axis"), len(shapes[0]))
    joint = tuple(_same(column) for column in zip(*shapes, strict=True))
    return [replaced(joint, axis, total([shape[axis] for shape in shapes]))]


def _same(extents: Sequence[Dimension]) -> Dimension:
    """Return the extent that operands must share: a number if one has it, else that of the first."""
    return next(
        (one for one in extents if isinstance(one, int)), next((one for one in extents if one is not None), None)
    )


def split(facts: Facts) -> list[Shape | None]:
    """The parts along an axis: those that are given, or equal ones."""
    shape = facts.known(0)
    axis = normal_axis(facts.attribute("axis", 0), len(shape))
    sizes = facts.elements(1, "split")
    if sizes is None and not facts.has(1) and (whole := shape[axis]) is not None:
        part = affine.ceildiv(whole, facts.outputs)
        sizes = (
            *(part for _ in range(facts.outputs - 1)),
            affine.subtract(whole, affine.multiply(facts.outputs - 1, part)),
        )
    return [replaced(shape, axis, one) for one in sizes or (None,) * facts.outputs]


def slice_(facts: Facts) -> list[Shape | None]:
    """What is cut out along each axis."""
    shape, starts, ends = facts.known(0), facts.elements(1, "starts"), facts.elements(2, "ends")
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
    extent: Dimension, start: Dimension, end: Dimension, step: int | None, ranges: affine.Ranges | None = None
) -> Dimension:
    """Return how many of ``extent`` elements a Slice takes, its bounds clamped; None for a step back but of all."""
    if extent is None or start is None or end is None or not step:
        return None
    if step < 0:
        last = (isinstance(start, int) and start >= THE_END) or start == -1
        return affine.ceildiv(extent, -step) if last and isinstance(end, int) and end <= -THE_END else None
    first, behind = _bound(extent, start, ranges), _bound(extent, end, ranges)
    return affine.ceildiv(affine.maximum(0, affine.subtract(behind, first)), step)


def _bound(extent: Extent, bound: Extent, ranges: affine.Ranges | None) -> Extent:
    """Return a bound counted from the front and within the axis; it may count from either side."""
    if isinstance(bound, int) and bound >= THE_END:
        return extent
    if affine.is_at_least(bound, 0, ranges):
        return affine.minimum(bound, extent)
    if affine.is_at_least(affine.multiply(-1, bound), 1, ranges):
        return affine.maximum(0, affine.add(extent, bound))
    is_from_behind = affine.minimum(1, affine.maximum(0, affine.multiply(-1, bound)))
    return affine.maximum(0, affine.minimum(extent, affine.add(bound, affine.multiply(extent, is_from_behind))))


def gather(facts: Facts) -> list[Shape | None]:
    """The shape of the indices in the place of an axis."""
    shape, indices = facts.known(0), facts.known(1)
    axis = normal_axis(facts.attribute("axis", 0), len(shape))
    return [(*shape[:axis], *indices, *shape[axis + 1 :])]


def gather_nd(facts: Facts) -> list[Shape | None]:
    """The shape of the tuples of indices, and what each chooses."""
    shape, indices = facts.known(0), facts.shape(1)
    if not indices or not isinstance(indices[-1], int):
        return []
    return [(*indices[:-1], *shape[facts.attribute("batch_dims", 0) + indices[-1] :])]


def one_hot(facts: Facts) -> list[Shape | None]:
    """The shape of the indices with an axis more."""
    shape, depth = facts.known(0), facts.elements(1)
    axis = normal_axis(facts.attribute("axis", -1), len(shape) + 1)
    return [(*shape[:axis], depth[0] if depth else None, *shape[axis:])]


def constant_of_shape(facts: Facts) -> list[Shape | None]:
    """The shape that is asked for."""
    target, counted = facts.elements(0), facts.shape(0)
    if target is not None:
        return [target]
    return [(None,) * counted[0] if counted and isinstance(counted[0], int) else None]


def range_(facts: Facts) -> list[Shape | None]:
    """How many numbers there are from a start to a limit."""
    bounds = [facts.elements(index) for index in range(3)]
    start, limit, step = (found[0] if found else None for found in bounds)
    if start is None or limit is None or step is None or step == 0:
        return [(None,)]
    if isinstance(step, int) and step < 0:
        return [(affine.maximum(0, affine.ceildiv(affine.subtract(start, limit), -step)),)]
    if not affine.is_at_least(step, 0, facts.ranges):  # of 0 there is no Range
        return [(None,)]
    distance = affine.subtract(limit, start)
    return [(affine.maximum(0, affine.floordiv(affine.add(distance, step, -1), step)),)]


def shape_of(facts: Facts) -> list[Shape | None]:
    """The rank, or how many extents are asked for."""
    shape = facts.shape(0)
    if shape is None:
        return [(None,)]
    return [(len(shape[slice(facts.attribute("start", 0), facts.attribute("end"))]),)]


def size_of(facts: Facts) -> list[Shape | None]:
    """One number."""
    return [()]


def pad(facts: Facts) -> list[Shape | None]:
    """Each extent with what is added on both sides."""
    shape, pads, axes = facts.known(0), facts.elements(1, "pads"), facts.numbers(3)
    if pads is None or (facts.has(3) and axes is None):
        return [(None,) * len(shape)]
    result, count = shape, len(pads) // 2
    for place, axis in enumerate(axes if axes is not None else range(len(shape))):
        axis = normal_axis(axis, len(shape))
        result = replaced(result, axis, total((result[axis], pads[place], pads[place + count])))
    return [result]


def center_crop_pad(facts: Facts) -> list[Shape | None]:
    """The extents that are asked for."""
    shape, target = facts.known(0), facts.elements(1)
    result = shape
    axes = facts.attribute("axes") or range(len(shape))
    for place, axis in enumerate(axes):
        result = replaced(result, normal_axis(axis, len(shape)), None if target is None else target[place])
    return [result]


def space_to_depth(facts: Facts) -> list[Shape | None]:
    """A block of pixels becomes channels."""
    (n, c, h, w), block = facts.extents(0), facts.attribute("blocksize")
    return [(n, affine.multiply(c, block * block), affine.floordiv(h, block), affine.floordiv(w, block))]


def depth_to_space(facts: Facts) -> list[Shape | None]:
    """Channels become a block of pixels."""
    (n, c, h, w), block = facts.extents(0), facts.attribute("blocksize")
    return [(n, affine.floordiv(c, block * block), affine.multiply(h, block), affine.multiply(w, block))]


def top_k(facts: Facts) -> list[Shape | None]:
    """The number that is asked for, along an axis."""
    shape, count = facts.known(0), facts.elements(1, "k")
    axis = normal_axis(facts.attribute("axis", -1), len(shape))
    return [replaced(shape, axis, count[0] if count else None)] * 2
