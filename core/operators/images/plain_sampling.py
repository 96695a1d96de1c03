"""GridSample, DeformConv and pools of regions as functions of plain operators: what they are differentiated through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from graft.core.operators.definition.function_body import Body

Tap: TypeAlias = tuple[str, str]
"""A position along a dimension (int64), and its weight, "" for 1."""
CUBIC = -0.75
"""The coefficient of the cubic kernel."""


def grid_sample(f: Body) -> None:
    """``[n, c, ...]`` at the points of a grid ``[n, ..., dimensions]``, each from -1 to 1, the last dimension first."""
    x, grid = f.input(0), f.input(1)
    dimensions = f.rank(x) - 2
    taps, extents = [], []
    for axis in range(dimensions):
        place = dimensions - 1 - axis
        part = f.reshaped(f.sliced(grid, -1, place, place + 1), 0, -1)
        extents.append(f.scalar(f.extent(x, 2 + axis)))
        taps.append(_taps(f, part, extents[-1]))
    flat = f.reshaped(x, 0, 0, -1)
    channels = f("Shape", x, end=2)
    total = ""
    for corner in product(*taps):
        places = f.unsqueezed(_flat_place(f, [place for place, _ in corner], extents), 1)
        wide = f("Expand", places, f.concatenated(channels, f("Shape", places, start=2), axis=0))
        value = f("GatherElements", flat, wide, axis=2)
        for weight in (weight for _, weight in corner if weight):
            value = f("Mul", value, f.unsqueezed(weight, 1))
        total = f.added(total, value)
    shape = f.concatenated(channels, f("Shape", grid, start=1, end=-1), axis=0)
    f.give(0, f("Reshape", total, shape))


def _flat_place(f: Body, places: Sequence[str], extents: Sequence[str]) -> str:
    flat = places[0]
    for place, extent in zip(places[1:], extents[1:], strict=True):
        flat = f("Add", f("Mul", flat, extent), place)
    return flat


def _taps(f: Body, part: str, extent: str) -> list[Tap]:
    """Return what elements along a dimension points are made of."""
    size, mode = f("CastLike", extent, part), f.attribute("mode", "linear")
    if f.attribute("align_corners", 0):
        half = f.scaled(f("Sub", size, f.like(1.0, part)), 0.5)
        position = f("Mul", f("Add", part, f.like(1.0, part)), half)
    else:
        position = f.scaled(f("Sub", f("Mul", f("Add", part, f.like(1.0, part)), size), f.like(1.0, part)), 0.5)
    if mode == "nearest":
        return [_padded(f, f("Cast", f("Round", position), to=7), "", extent, part)]
    below = f("Floor", position)
    first, t = f("Cast", below, to=7), f("Sub", position, below)
    weights = _cubic(f, t) if mode in ("cubic", "bicubic") else [f("Sub", f.like(1.0, t), t), t]
    start = 0 if len(weights) == 2 else -1
    return [
        _padded(f, f("Add", first, f.constant(start + number, "int64")), weight, extent, part)
        for number, weight in enumerate(weights)
    ]


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


def _padded(f: Body, place: str, weight: str, extent: str, like: str) -> Tap:
    """Return a place in the image for one that may lie outside, and its weight there."""
    one, zero = f.constant(1, "int64"), f.constant(0, "int64")
    last = f("Sub", extent, one)
    mode = f.attribute("padding_mode", "zeros")
    if mode == "reflection":
        if f.attribute("align_corners", 0):
            turn = f("Mul", last, f.constant(2, "int64"))
            within = f("Mod", place, f("Max", turn, one))
            mirrored = f("Sub", turn, within)
        else:
            turn = f("Mul", extent, f.constant(2, "int64"))
            within = f("Mod", place, turn)
            mirrored = f("Sub", f("Sub", turn, one), within)
        return f("Where", f("Greater", within, last), mirrored, within), weight
    if mode == "zeros":
        inside = f("And", f("GreaterOrEqual", place, zero), f("LessOrEqual", place, last))
        weight = f("Where", inside, weight or f.like(1.0, like), f.like(0.0, like))
    return f("Min", f("Max", place, zero), last), weight


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
