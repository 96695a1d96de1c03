"""Other roundings of a conversion than to the nearest number: toward zero, and stochastic.

Both follow from what every format has, the nearest number and the one beside it. A stochastic rounding takes the number
away from zero with the probability that is its share of the distance, to 32 bits: the mean is what was rounded.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import integer_to_odd
from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.philox import draw

Rounding = Literal["nearest", "zero", "stochastic"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)


def rounded(
    format: Format, value: Value, rounding: Rounding, *, saturate: bool = False, random: Value | None = None
) -> Value:
    """Return a float32 or float64 as a number of the format, in its carrier.

    ``saturate`` makes what is too large, an infinity too, the extreme; without it the format says what becomes of that,
    but that rounding toward zero never leaves the finite numbers. NaN is as in the format's own conversion.
    ``random`` is 32 bits for a stochastic rounding, as uint64.
    """
    wide = value.cast("float64")
    if saturate:
        wide = _saturated(format, wide)
    nearest = format.convert(wide)
    if rounding == "nearest":
        return nearest
    held = wide.clamp(format.lowest, format.largest)
    near = format.convert(held)
    low = select(abs(near.cast("float64")) > abs(held), format.beside(near, held, -1), near)
    if rounding == "zero":
        finite = abs(wide) < math.inf
        return select(finite & (wide > 0.0) if format.lowest > 0 else finite, low, nearest)
    assert random is not None, "a stochastic rounding draws"
    high = format.beside(low, held, 1)
    whole, part = (abs(one - low.cast("float64")) for one in (high.cast("float64"), held))
    up = (random.cast("float64") + 0.5) * whole < part * 2.0**32
    return select(held.equals(wide), select(up, high, low), nearest)


def _saturated(format: Format, value: Value) -> Value:
    return value.at_most(format.largest) if format.lowest > 0 else value.clamp(format.lowest, format.largest)


def to_bits(
    format: Format, numbers: np.ndarray, rounding: Rounding, *, saturate: bool = False, seed: int = 0, first: int = 0
) -> np.ndarray:
    """Return numbers rounded to a format as storage bits; ``first`` is the place of the first of them in the draw."""
    source = numbers if numbers.dtype in (np.int64, np.uint64, np.float32) else numbers.astype(np.float64, copy=False)
    whole = source.dtype.kind in "iu"

    def code(value: Value, random: Value | None = None) -> Value:
        wide = integer_to_odd(value) if whole else value
        return format.encode(rounded(format, wide, rounding, saturate=saturate, random=random))

    if rounding != "stochastic":
        return evaluate(code, source)
    places = np.arange(first, first + source.size, dtype=np.uint64).reshape(source.shape)
    return evaluate(lambda value, place: code(value, draw(place, seed)), source, places)
