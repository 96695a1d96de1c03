"""GridSample, DeformConv and pools of regions as functions of plain operators: what they are differentiated through."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import numpy as np
from onnx import TensorProto

from graft.core.operators.definition.adjoint import Adjoint
from graft.core.operators.definition.function_body import Body
from graft.core.operators.definition.index_bounds import FROM_FRONT

Tap: TypeAlias = tuple[str, str]
"""Places of elements, and their weights, "" for 1."""
CUBIC = -0.75
"""The coefficient of the cubic kernel."""


def grid_sample(f: Body) -> None:
    """``[n, c, ...]`` at the points of a grid ``[n, ..., dimensions]``, each from -1 to 1, the last dimension first."""
    x, grid = f.input(0), f.input(1)
    places, weights = _elements(f, x, grid)
    flat = f.reshaped(f.transposed(f.reshaped(x, 0, 0, -1), 1, 0, 2), 0, -1)
    values = f("Gather", flat, places, axis=1)
    total = f("ReduceSum", f("Mul", values, weights) if weights else values, f.ints(2), keepdims=0)
    shape = f.concatenated(f("Shape", x, end=2), f("Shape", grid, start=1, end=-1), axis=0)
    f.give(0, f("Reshape", f.transposed(total, 1, 0, 2), shape))


def sampled(f: Adjoint) -> list[str]:
    """GridSample: points hand their gradients to the elements around them, and are moved by the slopes between these.

    What is added up at one place comes from points in turn, so no sum waits for the one before it.
    """
    x, grid = f.input(0), f.input(1)
    before = len(f.nodes)
    places, weights = _elements(f, x, grid)
    written = f.nodes[before:]
    channels, gradient = f.extent(x, 1), f.transposed(f.reshaped(f.gradient, 0, 0, -1), 1, 0, 2)
    images = f.transposed(f.reshaped(x, 0, 0, -1), 1, 0, 2)
    flat = f.reshaped(images, 0, -1)
    found = ["", ""]
    if f.wanted(0):
        shares = f("Mul", f.unsqueezed(gradient, 3), f.transposed(weights, 0, 2, 1)) if weights else gradient
        shares = f("Reshape", shares, f.concatenated(channels, f.ints(-1), axis=0))
        wide = f("Expand", f.reshaped(f.transposed(places, 0, 2, 1), 1, -1), f("Shape", shares))
        sums = f("ScatterElements", f.filled(0.0, flat), wide, shares, axis=1, reduction="add")
        f.nodes[-1].metadata_props.add(key=FROM_FRONT)
        found[0] = f.reshaped_like(f.transposed(f.reshaped_like(sums, images), 1, 0, 2), x)
    if f.wanted(1) and weights:
        values = f("Gather", flat, places, axis=1)
        f.nodes[-1].metadata_props.add(key=FROM_FRONT)
        slopes = f("ReduceSum", f("Mul", values, f.unsqueezed(gradient, 2)), f.ints(0), keepdims=0)
        found[1] = f.pull(written, {weights: slopes}, {grid}).get(grid, "")
    return found


def _elements(f: Body, x: str, grid: str) -> Tap:
    """Return where the elements around points lie among those of all images, and weights, ``[n, element, point]``."""
    dimensions = f.rank(x) - 2
    extents = f.concatenated(*(f.extent(x, axis) for axis in reversed(range(2, f.rank(x)))), axis=0)
    points = f.transposed(f.reshaped(grid, 0, -1, dimensions), 0, 2, 1)
    place, weight = _taps(f, points, extents, _index_type(f, x))
    taps = f.shape(place)[2]
    assert isinstance(taps, int)
    counted = [
        f.several(dimensions, "Split", one, axis=1, num_outputs=dimensions) if one else [] for one in (place, weight)
    ]
    flat, product = "", ""
    for axis in range(dimensions):
        shape = [*[1] * axis, taps, *[1] * (dimensions - 1 - axis)]
        own, share = (f.reshaped(parts[-1 - axis], 0, *shape, -1) if parts else "" for parts in counted)
        if axis:
            flat = f("Mul", flat, f.cast(f.scalar(f.extent(x, 2 + axis)), f.dtype(flat)))
        flat, product = f.added(flat, own), f("Mul", product, share) if product else share
    flat, product = (one and f.reshaped(one, 0, taps**dimensions, -1) for one in (flat, product))
    if f.shape(x)[0] != 1:
        size = f.scalar(f("ReduceProd", extents, keepdims=1))
        begins = f("Mul", f.counted(f.extent(x, 0)), size)
        flat = f("Add", flat, f.cast(f.unsqueezed(begins, 1, 2), f.dtype(flat)))
    return flat, product


def _index_type(f: Body, x: str) -> int:
    """Return the type of places in an image: int32 where all are known to fit it."""
    extents = [one for one in f.shape(x) if isinstance(one, int)]
    is_small = len(extents) == f.rank(x) and prod(extents) < 1 << 31
    return TensorProto.INT32 if is_small else TensorProto.INT64


def _taps(f: Body, points: str, extents: str, dtype: int) -> Tap:
    """Return what the points, ``[n, dimension, point]``, are made of, ``[n, dimension, element, point]``."""
    size, mode = f("CastLike", f.unsqueezed(extents, 1), points), f.attribute("mode", "linear")
    one = f.like(1.0, points)
    if f.attribute("align_corners", 0):
        half = f.scaled(f("Sub", size, one), 0.5)
        position = f("Mul", f("Add", points, one), half)
    else:
        position = f.scaled(f("Sub", f("Mul", f("Add", points, one), size), one), 0.5)
    if mode == "nearest":
        return _padded(f, f.unsqueezed(f.cast(f("Round", position), dtype), 2), "", extents, points)
    below = f("Floor", position)
    t = f("Sub", position, below)
    weights = _cubic(f, t) if mode in ("cubic", "bicubic") else [f("Sub", one, t), t]
    start = 0 if len(weights) == 2 else -1
    steps = f.cast(f.constant(np.arange(start, start + len(weights))[:, None]), dtype)
    places = f("Add", f.unsqueezed(f.cast(below, dtype), 2), steps)
    return _padded(f, places, f.concatenated(*(f.unsqueezed(part, 2) for part in weights), axis=2), extents, points)


def _cubic(f: Body, t: str) -> list[str]:
    """Return the weights of the elements before, at, behind and two behind a point that is ``t`` past an element."""
    one = f.like(1.0, t)

    def polynomial(x: str, *coefficients: float) -> str:
        value = f.like(coefficients[0], t)
        for coefficient in coefficients[1:]:
            value = f("Add", f("Mul", value, x), f.like(coefficient, t))
        return value

    def near(x: str) -> str:
        return polynomial(x, CUBIC + 2, -(CUBIC + 3), 0.0, 1.0)

    def far(x: str) -> str:
        return polynomial(x, CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)

    rest = f("Sub", one, t)
    return [far(f("Add", t, one)), near(t), near(rest), far(f("Add", rest, one))]


def _padded(f: Body, places: str, weights: str, extents: str, like: str) -> Tap:
    """Return places in the image for such as may lie outside, and their weights there."""
    dtype = f.dtype(places)
    one, zero = (f.cast(f.constant(number, "int64"), dtype) for number in (1, 0))
    size = f.cast(f.unsqueezed(extents, 1, 2), dtype)
    last = f("Sub", size, one)
    mode = f.attribute("padding_mode", "zeros")
    if mode == "reflection":
        two = f.cast(f.constant(2, "int64"), dtype)
        turn = f("Mul", last if f.attribute("align_corners", 0) else size, two)
        within = f("Mod", places, f("Max", turn, one))
        end = turn if f.attribute("align_corners", 0) else f("Sub", turn, one)
        return f("Where", f("Greater", within, last), f("Sub", end, within), within), weights
    if mode == "zeros":
        inside = f("And", f("GreaterOrEqual", places, zero), f("LessOrEqual", places, last))
        weights = f("Where", inside, weights or f.like(1.0, like), f.like(0.0, like))
    return f("Min", f("Max", places, zero), last), weights


# ---- DeformConv ---------------------------------------------------------------------------------------------------


def deformed_convolution(f: Body) -> None:
    """What every weight reads, by GridSample, and the products with the weights."""
    x, weights, offsets, bias, mask = (f.input(number) for number in range(5))
    groups, sets = f.attribute("group", 1), f.attribute("offset_group", 1)
    sizes = [one for one in f.shape(weights) if isinstance(one, int)]
    f.require(len(sizes) == 4 == f.rank(weights), "its derivative needs the four extents of its weights in numbers")
    outputs, width, *kernel = sizes
    taps, channels, count = int(np.prod(kernel)), width * groups, f.extent(x, 0)
    places = f.concatenated(f.ints(-1, channels // sets), f("Shape", x, start=2), axis=0)
    points = f.reshaped(_deformed_points(f, kernel, sets), 0, 0, -1, 2)
    read = f("GridSample", f("Reshape", x, places), points)  # [n sets, channels / sets, taps, places]
    if mask:
        factors = f.concatenated(f("Mul", count, f.ints(sets)), f.ints(1, taps, -1), axis=0)
        read = f("Mul", read, f("Reshape", mask, factors))
    patches = f("Reshape", read, f.concatenated(count, f.ints(groups, width * taps, -1), axis=0))
    sums = f("MatMul", f.reshaped(weights, groups, outputs // groups, width * taps), patches)
    result = f("Reshape", sums, f.concatenated(count, f.ints(outputs), f("Shape", offsets, start=2), axis=0))
    f.give(0, f("Add", result, f.reshaped(bias, -1, 1, 1)) if bias else result)


def _deformed_points(f: Body, kernel: Sequence[int], sets: int) -> str:
    """Return where each tap reads, ``[n sets, taps, rows, columns, 2]``, from -1 to 1, the column first."""
    x, offsets = f.input(0), f.input(2)
    strides, dilations = f.attribute("strides") or [1, 1], f.attribute("dilations") or [1, 1]
    pads, taps = f.attribute("pads") or [0] * 4, np.indices(kernel).reshape(2, -1, 1, 1)
    shape = f.concatenated(f.ints(-1, taps.shape[1], 2), f("Shape", offsets, start=2), axis=0)
    moved, found = f("Reshape", offsets, shape), []
    for axis in (1, 0):
        fixed = f.cast(f.constant(taps[axis] * dilations[axis] - pads[axis], np.float64), f.dtype(offsets))
        steps = f.scaled(f("CastLike", f.counted(f.extent(offsets, 2 + axis)), offsets), float(strides[axis]))
        steps = steps if axis else f.unsqueezed(steps, -1)
        part = f("Squeeze", f.sliced(moved, 2, axis, axis + 1), f.ints(2))
        position = f("Add", f("Add", part, fixed), steps)
        double = f("Add", f.scaled(position, 2.0), f.like(1.0, position))
        size = f("CastLike", f.scalar(f.extent(x, 2 + axis)), position)
        found.append(f.unsqueezed(f("Sub", f("Div", double, size), f.like(1.0, position)), -1))
    return f.concatenated(*found, axis=-1)


# ---- Pools of regions ---------------------------------------------------------------------------------------------


def aligned_regions(f: Body) -> None:
    """RoiAlign: means of bilinear samples, which are products with a matrix of weights along each axis."""
    x, regions = f.input(0), f.input(1)
    f.require(f.attribute("mode", "avg") == "avg", "of its largest samples no derivative is known")
    rows, columns = (_means(f, axis, f.attribute(f"output_{side}", 1)) for axis, side in enumerate(("height", "width")))
    images = _images_of(f, x, f.input(2), f.extent(regions, 0))
    f.give(0, f("MatMul", f("MatMul", f.unsqueezed(rows, 1), images), f.swapped(f.unsqueezed(columns, 1))))


def _images_of(f: Body, x: str, numbers: str, count: str) -> str:
    """Return the image of each region, as a product, whose gradient needs no scatter."""
    marks = f.cast(f.constant([0.0, 1.0], np.float64), f.dtype(x))
    flat = f("Reshape", x, f.concatenated(f.extent(x, 0), f.ints(-1), axis=0))
    taken = f("MatMul", f("OneHot", numbers, f.extent(x, 0), marks), flat)
    return f("Reshape", taken, f.concatenated(count, f("Shape", x, start=1), axis=0))


def _side(f: Body, axis: int, first: int) -> list[str]:
    """Return where regions begin and end along an axis, ``[region, 1, 1]``, in pixels."""
    places = [first + (1 - axis) + more for more in (0, 2)]
    sides = [f.unsqueezed(f.sliced(f.input(1), 1, place, place + 1), -1) for place in places]
    return [f.scaled(side, f.attribute("spatial_scale", 1.0)) for side in sides]


def _pixels(f: Body, axis: int) -> str:
    """Return 0, 1, ... up to an extent of the image, in its type."""
    return f("CastLike", f.counted(f.extent(f.input(0), 2 + axis)), f.input(0))


def _means(f: Body, axis: int, bins: int) -> str:
    """Return how much of each pixel is in each bin along an axis: ``[region, bin, pixel]``."""
    x, ratio = f.input(0), f.attribute("sampling_ratio", 0)
    one, zero, pixels = f.like(1.0, x), f.like(0.0, x), _pixels(f, axis)
    is_half = f.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    start, end = _side(f, axis, 0)
    length = f("Sub", end, start) if is_half else f("Max", f("Sub", end, start), one)
    start = f("Sub", start, f.like(0.5, x)) if is_half else start
    size = f.scaled(length, 1 / bins)
    count = f.like(float(ratio), x) if ratio else f("Ceil", size)
    most = f.ints(ratio) if ratio else f.reshaped(f("Cast", f("ReduceMax", count), to=7), 1)
    numbers = f("CastLike", f.counted(most), x)
    shares = f("Div", f("Add", numbers, f.like(0.5, x)), count)
    steps = f("Add", f.cast(f.constant(np.arange(float(bins))[:, None]), f.dtype(x)), shares)
    at = f("Add", start, f("Mul", size, steps))  # [region, bin, sample]
    extent = f("CastLike", f.scalar(f.extent(x, 2 + axis)), x)
    inside = f("And", f("GreaterOrEqual", at, f.like(-1.0, x)), f("LessOrEqual", at, extent))
    inside = f("And", inside, f("Less", numbers, count))
    at = f.unsqueezed(f("Min", f("Max", at, zero), f("Sub", extent, one)), -1)
    near = f("Max", f("Sub", one, f("Abs", f("Sub", at, pixels))), zero)
    return f("Div", f("ReduceSum", f("Where", f.unsqueezed(inside, -1), near, zero), f.ints(2), keepdims=0), count)


def pooled_regions(f: Body) -> None:
    """MaxRoiPool: the largest of each row of a bin, then the largest of these; 0 where a bin has none."""
    x, regions = f.input(0), f.input(1)
    numbers = f("Cast", f("Squeeze", f.sliced(regions, 1, 0, 1), f.ints(1)), to=7)
    taken, least, is_filled = _images_of(f, x, numbers, f.extent(regions, 0)), f.like(-np.inf, x), []
    for axis in (1, 0):
        bins = f.attribute("pooled_shape")[axis]
        inside = f.unsqueezed(_within(f, axis, bins), 1)  # [region, 1, bin, pixel]
        is_filled.append(f("Cast", f("ReduceMax", f("Cast", inside, to=6), f.ints(3), keepdims=0), to=9))
        parts = []
        for number in range(bins):
            here = f.sliced(inside, 2, number, number + 1)
            seen = f("Where", here if axis else f.swapped(here), taken, least)
            place = f("ArgMax", seen, axis=2 + axis, keepdims=1)
            parts.append(f("GatherElements", taken, place, axis=2 + axis))
        taken = f.concatenated(*parts, axis=2 + axis)
    columns, rows = is_filled
    is_there = f("And", f.unsqueezed(rows, 3), f.unsqueezed(columns, 2))
    f.give(0, f("Where", is_there, taken, f.like(0.0, x)))


def _within(f: Body, axis: int, bins: int) -> str:
    """Return which pixels are in which bins along an axis: ``[region, bin, pixel]``."""
    x, half, pixels = f.input(0), f.like(0.5, f.input(0)), _pixels(f, axis)
    start, end = (f("Mul", f("Sign", one), f("Floor", f("Add", f("Abs", one), half))) for one in _side(f, axis, 1))
    one = f.like(1.0, x)
    size = f("Div", f("Max", f("Add", f("Sub", end, start), one), one), f.like(float(bins), x))
    first, last = (f.cast(f.constant(np.arange(bins)[:, None] + more, np.float64), f.dtype(x)) for more in (0, 1))
    first, last = (f("Add", start, f(turn, f("Mul", size, one))) for turn, one in (("Floor", first), ("Ceil", last)))
    return f("And", f("GreaterOrEqual", pixels, first), f("Less", pixels, last))
