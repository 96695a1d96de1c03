"""Circular functions and their inverses as expressions; accuracy in `vector_math`."""

from __future__ import annotations

import math
from functools import cache

from graft.core.tensor_ir.arithmetic.exponential import Format, copy_sign
from graft.core.tensor_ir.arithmetic.quarter_turns import half_pi, pi, quarter_turns
from graft.core.tensor_ir.scalar_math import Value, select

SIN = (-0.1666666716337204, 0.008333378471434116, -0.00019852565310429782, 2.826414629453211e-06)
COS = (0.0416666679084301, -0.0013888977700844407, 2.4820974431349896e-05, -2.876805638152291e-07)
ATAN = (-0.33333316445350647, 0.19998528063297272, -0.14244388043880463, 0.10599120706319809, -0.06089867651462555)
ASIN = (
    0.16666659712791443, 0.07500521838665009, 0.04451337456703186, 0.03183908388018608, 0.014314965344965458,
    0.03769645094871521,
)  # fmt: skip

SIN_TAYLOR = tuple((-1) ** power / math.factorial(2 * power + 1) for power in range(1, 10))
COS_TAYLOR = tuple((-1) ** power / math.factorial(2 * power) for power in range(2, 11))
ATAN_SERIES = tuple((-1) ** power / (2 * power + 1) for power in range(1, 23))
ASIN_SERIES = tuple(math.comb(2 * power, power) / 4**power / (2 * power + 1) for power in range(1, 27))

_CHUNK = 24
"""float32 arguments beyond 2^47 are scaled down by multiples of this many bits, 2/pi up by as many.

From 2^47 on they are multiples of 2^24, so the scaled ones are whole and whole multiples of 4 in 2/pi do not matter.
"""


@cache
def _turns(shift: int) -> tuple[float, float]:
    """Return ``2^shift * 2 / pi`` modulo 4 as the sum of two float64."""
    bits = 320
    scaled = ((1 << (2 * bits + 1)) // pi(bits) << shift) % (4 << bits)
    high = scaled / (1 << bits)
    numerator, denominator = high.as_integer_ratio()
    low = (scaled - (numerator << bits) // denominator) / (1 << bits)
    return high, low


def _quadrant(x: Value, kind: Format) -> tuple[Value, Value, Value]:
    """Return the reduced argument, what its rounding lost, and the quadrant (0 to 3, in float64) of an angle."""
    if kind.dtype == "float32":
        angle, count = _float32_turns(x)
        lost = angle.constant(0.0)
    else:
        turns, rest, count = quarter_turns(x)
        high, low = half_pi()
        angle = turns * high
        lost = rest.times_plus(high, turns.times_plus(low, turns.times_plus(high, -angle)))
    return angle, lost, count - (count * 0.25).unary("floor") * 4.0


def _float32_turns(x: Value) -> tuple[Value, Value]:
    """Return the reduced argument of a float32 angle, and the number of quarter turns in float64."""
    wide = x.cast("float64")
    high, low = (wide.constant(part) for part in _turns(0))
    size = abs(wide)
    for chunk in range(1, 5):
        beyond = size > 2.0 ** (47 + _CHUNK * (chunk - 1))
        parts = _turns(_CHUNK * chunk)
        high, low = select(beyond, parts[0], high), select(beyond, parts[1], low)
    for chunk in range(1, 5):
        beyond = size > 2.0 ** (47 + _CHUNK * (chunk - 1))
        wide = select(beyond, wide * 2.0**-_CHUNK, wide)
    product = wide * high
    error = wide.times_plus(high, -product)
    count = product.unary("round_even")
    angle = ((product - count) + wide.times_plus(low, error)) * (math.pi / 2)
    return angle.cast("float32"), count


def _sine_and_cosine(angle: Value, lost: Value, kind: Format) -> tuple[Value, Value]:
    """Return sine and cosine of a reduced angle."""
    square = angle * angle
    if kind.dtype == "float32":
        sine = (angle * square).times_plus(square.polynomial(SIN), angle)
        return sine, (square * square).times_plus(square.polynomial(COS), square.times_plus(-0.5, 1.0))
    sine = angle + (angle * square).times_plus(square.polynomial(SIN_TAYLOR), lost)
    half = square * 0.5
    near = 1.0 - half
    # What the two roundings lost: of 1 - half, and of the angle.
    rest = ((1.0 - near) - half) - angle * lost
    return sine, near + (square * square).times_plus(square.polynomial(COS_TAYLOR), rest)


def _tiny(kind: Format) -> float:
    return 2.0**-12 if kind.dtype == "float32" else 2.0**-27


def sin(x: Value, kind: Format) -> Value:
    """Return the sine."""
    angle, lost, quadrant = _quadrant(x, kind)
    sine, cosine = _sine_and_cosine(angle, lost, kind)
    swapped = quadrant.equals(1.0) | quadrant.equals(3.0)
    value = select(swapped, cosine, sine)
    return select(abs(x) < _tiny(kind), x, select(quadrant >= 2.0, -value, value))


def cos(x: Value, kind: Format) -> Value:
    """Return the cosine."""
    angle, lost, quadrant = _quadrant(x, kind)
    sine, cosine = _sine_and_cosine(angle, lost, kind)
    swapped = quadrant.equals(1.0) | quadrant.equals(3.0)
    value = select(swapped, sine, cosine)
    return select(quadrant.equals(1.0) | quadrant.equals(2.0), -value, value)


def tan(x: Value, kind: Format) -> Value:
    """Return the tangent."""
    angle, lost, quadrant = _quadrant(x, kind)
    sine, cosine = _sine_and_cosine(angle, lost, kind)
    swapped = quadrant.equals(1.0) | quadrant.equals(3.0)
    value = select(swapped, -cosine, sine) / select(swapped, sine, cosine)
    return select(abs(x) < _tiny(kind), x, value)


def atan(x: Value, kind: Format) -> Value:
    """Return the inverse tangent."""
    size = abs(x)
    steep, middle = size > math.tan(3 * math.pi / 8), size > math.tan(math.pi / 8)
    reduced = select(steep, -1.0 / size, select(middle, (size - 1.0) / (size + 1.0), size))
    base = select(steep, math.pi / 2, select(middle, math.pi / 4, size.constant(0.0)))
    square = reduced * reduced
    series = square.polynomial(ATAN if kind.dtype == "float32" else ATAN_SERIES)
    return copy_sign(base + (reduced * square).times_plus(series, reduced), x, kind)


def _asin_series(x: Value, square: Value, kind: Format) -> Value:
    return (x * square).times_plus(square.polynomial(ASIN if kind.dtype == "float32" else ASIN_SERIES), x)


def asin(x: Value, kind: Format) -> Value:
    """Return the inverse sine; NaN outside [-1, 1]."""
    size = abs(x)
    near_one = size > 0.5
    square = select(near_one, (1.0 - size) * 0.5, size * size)
    series = _asin_series(select(near_one, square.unary("sqrt"), size), square, kind)
    return copy_sign(select(near_one, math.pi / 2 - series * 2.0, series), x, kind)


def acos(x: Value, kind: Format) -> Value:
    """Return the inverse cosine; NaN outside [-1, 1]."""
    size = abs(x)
    near_one = size > 0.5
    square = select(near_one, (1.0 - size) * 0.5, size * size)
    series = _asin_series(select(near_one, square.unary("sqrt"), size), square, kind)
    outer = select(x < 0.0, math.pi - series * 2.0, series * 2.0)
    inner = select(x < 0.0, math.pi / 2 + series, math.pi / 2 - series)
    return select(near_one, outer, inner)
