"""GridSample as a function of plain operators: what it is differentiated through."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

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
