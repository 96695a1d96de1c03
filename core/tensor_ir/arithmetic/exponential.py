"""Exponential functions, logarithms and powers as expressions; accuracy in `vector_math`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graft.core.tensor_ir.ir import Constant, Intrinsic
from graft.core.tensor_ir.scalar_math import Value, select

INFINITY, NAN = math.inf, math.nan

EXP = (0.4999999403953552, 0.1666652262210846, 0.04166829213500023, 0.008368532173335552, 0.0013818297302350402)
EXP2 = (
    0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142, 0.0013390806270763278,
    0.00015326461289077997,
)  # fmt: skip
LOG = (
    0.3333331346511841, -0.25000008940696716, 0.20002073049545288, -0.1666799634695053, 0.14220327138900757,
    -0.12406034022569656, 0.11883573234081268, -0.11671426892280579, 0.06750902533531189,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format and the constants that reductions need in it.

    ``ln2_high`` has enough trailing zeros that its products with exponents are exact, also without fused operations.
    """

    dtype: str
    integer: str
    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float
    exp_limits: tuple[float, float]
    root_half_bits: int
    has_ldexp: bool = False
    """Whether the machine multiplies by a power of two, rounding once, in one step."""

    @property
    def round_magic(self) -> float:
        """Adding this number rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def round_bits(self) -> int:
        """The bits of `round_magic`."""
        return (self.bias + self.mantissa) << self.mantissa | 1 << (self.mantissa - 1)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number."""
        return float(2.0 ** (1 - self.bias))

    @property
    def sign_bit(self) -> int:
        """The sign bit as a signed integer."""
        return -(1 << (63 if self.dtype == "float64" else 31))


FLOAT32 = Format("float32", "int32", 23, 127, 0.693359375, -2.1219444170128554e-04, (-104.0, 89.0), 0x3F3504F3)
FLOAT64 = Format(
    "float64", "int64", 52, 1023, 0.693147180369123816490, 1.90821492927058770002e-10, (-746.0, 710.0),
    0x3FE6A09E667F3BCD,
)  # fmt: skip

EXP_TAYLOR = tuple(1 / math.factorial(power + 2) for power in range(12))
EXP2_TAYLOR = tuple(math.log(2) ** power / math.factorial(power) for power in range(1, 15))
LOG_SERIES = tuple(2 / (2 * power + 3) for power in range(11))


def copy_sign(magnitude: Value, of: Value, kind: Format) -> Value:
    """Return a magnitude with the sign of another value."""
    sign = of.bits(kind.integer) & kind.sign_bit
    return (magnitude.bits(kind.integer) | sign).bits(kind.dtype)


# ---- exp and its family -------------------------------------------------------------------------------------------


def _scale(value: Value, exponent: Value, kind: Format) -> Value:
    """Return ``value * 2^exponent`` for exponents beyond the normal range, rounding once."""
    if kind.has_ldexp:
        return Value(Intrinsic("ldexp", (value.expression, exponent.expression), value.expression.type))
    first = exponent >> 1
    for part in (first, exponent - first):
        value = value * _power_of_two(part, kind)
    return value


def _power_of_two(exponent: Value, kind: Format) -> Value:
    """Return 2 to an exponent of normal numbers."""
    return ((exponent + kind.bias) << kind.mantissa).bits(kind.dtype)


def _reduce_by_ln2(x: Value, kind: Format) -> tuple[Value, Value]:
    """Return r and integer n with ``x = n ln 2 + r`` and abs(r) at most about ln(2) / 2."""
    shifted = x.times_plus(1 / math.log(2), kind.round_magic)
    count = shifted - kind.round_magic
    return _without_ln2(x, count, kind), shifted.bits(kind.integer) - kind.round_bits


def _without_ln2(x: Value, count: Value, kind: Format) -> Value:
    """Return ``x - count ln 2``, where ln 2 is a sum of two numbers."""
    return count.times_plus(-kind.ln2_low, count.times_plus(-kind.ln2_high, x))


def _exp_rest(rest: Value, kind: Format) -> Value:
    """Return ``exp(r) - 1`` for a reduced argument."""
    series = rest.polynomial(EXP if kind.dtype == "float32" else EXP_TAYLOR)
    return (rest * rest).times_plus(series, rest)


def exp(x: Value, kind: Format, halvings: int = 0) -> Value:
    """Return ``exp(x) / 2^halvings``, which overflows later."""
    low, high = kind.exp_limits
    rest, exponent = _reduce_by_ln2(x.clamp(low, high + halvings), kind)
    return _scale(_exp_rest(rest, kind) + 1.0, exponent - halvings if halvings else exponent, kind)


def exp_nonpositive(x: Value, kind: Format) -> Value:
    """Return ``exp(x)`` for ``x`` at most 0 or NaN, cheaper than `exp`; 0 for what is, or nearly is, a denormal number.

    Made for Softmax, whose sum is at least 1: what is lost is below the rounding of every other term. In float32
    ln 2 is one number: its error, 2e-9 for each halving, is below the rounding of results above 1e-8.
    """
    x = x.at_least(kind.exp_limits[0])
    shifted = x.times_plus(1 / math.log(2), kind.round_magic)
    count = shifted - kind.round_magic
    rest = count.times_plus(-math.log(2), x) if kind.dtype == "float32" else _without_ln2(x, count, kind)
    scale = ((shifted.bits(kind.integer) - (kind.round_bits - kind.bias)) << kind.mantissa).at_least(0)
    return (_exp_rest(rest, kind) + 1.0) * scale.bits(kind.dtype)


def exp2(x: Value, kind: Format) -> Value:
    """Return ``2^x``."""
    low, high = kind.exp_limits
    x = x.clamp(math.floor(low * 1.443), math.ceil(high * 1.443))
    shifted = x + kind.round_magic
    rest = x - (shifted - kind.round_magic)
    series = rest.polynomial(EXP2 if kind.dtype == "float32" else EXP2_TAYLOR)
    return _scale(rest.times_plus(series, 1.0), shifted.bits(kind.integer) - kind.round_bits, kind)


def expm1(x: Value, kind: Format) -> Value:
    """Return ``exp(x) - 1``."""
    low = -20.0 if kind.dtype == "float32" else -45.0
    rest, exponent = _reduce_by_ln2(x.clamp(low, kind.exp_limits[1]), kind)
    # Half of 2^n, so that n = 128 does not overflow early.
    half = _power_of_two(exponent - 1, kind)
    result = half.times_plus(_exp_rest(rest, kind), half - 0.5) * 2.0
    return select(abs(x) < 2.0 ** -(kind.mantissa + 2), x, result)


def tanh(x: Value, kind: Format) -> Value:
    """Return the hyperbolic tangent: ``e / (e + 2)`` where ``e = exp(2 |x|) - 1``, which cannot overflow here."""
    rest, exponent = _reduce_by_ln2(abs(x).at_most(10.0 if kind.dtype == "float32" else 22.0) * 2.0, kind)
    scale = _power_of_two(exponent, kind)
    power = scale.times_plus(_exp_rest(rest, kind), scale - 1.0)
    return copy_sign(power / (power + 2.0), x, kind)


def sigmoid(x: Value, kind: Format) -> Value:
    """Return ``1 / (1 + exp(-x))``.

    Both sides of the fraction are as large as makes ``exp(-|x|)`` a normal number: only the quotient may be none.
    """
    low, _ = kind.exp_limits
    rest, exponent = _reduce_by_ln2((-abs(x)).at_least(low), kind)
    raised = kind.mantissa + 4
    power = (_exp_rest(rest, kind) + 1.0) * _power_of_two(exponent + raised, kind)
    one = power.constant(2.0**raised)
    return select(x < 0.0, power, one) / (power + one)


def sinh(x: Value, kind: Format) -> Value:
    """Return the hyperbolic sine."""
    size = abs(x)
    small = expm1(size, kind)
    small = (small + small / (small + 1.0)) * 0.5
    return copy_sign(select(size < 10.0, small, _sinh_of_large(size, kind)), x, kind)


def _sinh_of_large(size: Value, kind: Format) -> Value:
    """Return ``(exp(size) - exp(-size)) / 2`` for a size of at least 10."""
    return exp(size, kind, 1) - exp(-size, kind, 1)


def cosh(x: Value, kind: Format) -> Value:
    """Return the hyperbolic cosine."""
    size = abs(x)
    return exp(size, kind, 1) + exp(-size, kind, 1)


# ---- log and its family -------------------------------------------------------------------------------------------


def _split(x: Value, kind: Format) -> tuple[Value, Value]:
    """Return exponent (a float) and mantissa in [sqrt 1/2, sqrt 2) of a positive number."""
    small = x < kind.smallest_normal
    x = select(small, x * 2.0 ** (kind.mantissa + 2), x)
    raised = x.bits(kind.integer) - kind.root_half_bits
    mantissa = (raised & ((1 << kind.mantissa) - 1)) + kind.root_half_bits
    exponent = (raised >> kind.mantissa).cast(kind.dtype)
    return select(small, exponent - float(kind.mantissa + 2), exponent), mantissa.bits(kind.dtype)


def _log_rest(f: Value, kind: Format) -> Value:
    """Return ``log(1 + f) - f`` for a mantissa ``1 + f``."""
    half_square = f * f * 0.5
    if kind.dtype == "float32":
        return (f * f * f).times_plus(f.polynomial(LOG), -half_square)
    ratio = f / (f + 2.0)
    square = ratio * ratio
    return ratio * (half_square + square * square.polynomial(LOG_SERIES)) - half_square


def _positive_only(x: Value, result: Value) -> Value:
    """Return the logarithm's value at zero, infinity, NaN and below zero, else ``result``."""
    outside = select(x.equals(0.0), -INFINITY, x.constant(NAN))
    return select(x > 0.0, select(x.equals(INFINITY), x, result), outside)


def log(x: Value, kind: Format) -> Value:
    """Return the natural logarithm."""
    exponent, mantissa = _split(x, kind)
    f = mantissa - 1.0
    low = exponent.times_plus(kind.ln2_low, _log_rest(f, kind))
    return _positive_only(x, exponent.times_plus(kind.ln2_high, f + low))


def log2(x: Value, kind: Format) -> Value:
    """Return the logarithm to base 2."""
    return _positive_only(x, _log2_finite(x, kind))


def _log2_finite(x: Value, kind: Format) -> Value:
    exponent, mantissa = _split(x, kind)
    f = mantissa - 1.0
    # log2(m) = (f + rest) / ln 2, where 1 / ln 2 = 1.4375 + 0.0051...; the product with 1.4375 is nearly exact.
    inverse, high = 1 / math.log(2), 1.4375
    rest = _log_rest(f, kind)
    low = f.times_plus(inverse - high, rest * inverse)
    return exponent + f.times_plus(high, low)


def log1p(x: Value, kind: Format) -> Value:
    """Return ``log(1 + x)``."""
    raised = x + 1.0
    lost = select(x < 1.0, x - (raised - 1.0), 1.0 - (raised - x)) / raised
    exponent, mantissa = _split(raised, kind)
    near = exponent.equals(0.0)
    f = select(near, x, mantissa - 1.0)
    correction = select(near, 0.0, lost)
    low = exponent.times_plus(kind.ln2_low, correction + _log_rest(f, kind))
    result = exponent.times_plus(kind.ln2_high, f + low)
    return select(abs(x) < 2.0 ** -(kind.mantissa + 2), x, _positive_only(raised, result))


def asinh(x: Value, kind: Format) -> Value:
    """Return the inverse hyperbolic sine."""
    size = abs(x)
    large = size > 2.0 ** (kind.mantissa // 2 + 4)
    square = size * size
    small = log1p(size + square / ((square + 1.0).unary("sqrt") + 1.0), kind)
    return copy_sign(select(large, log(size, kind) + math.log(2), small), x, kind)


def acosh(x: Value, kind: Format) -> Value:
    """Return the inverse hyperbolic cosine."""
    excess = x - 1.0
    small = log1p(excess + (excess * (excess + 2.0)).unary("sqrt"), kind)
    result = select(x > 2.0 ** (kind.mantissa // 2 + 4), log(x, kind) + math.log(2), small)
    return select(x < 1.0, NAN, result)


def atanh(x: Value, kind: Format) -> Value:
    """Return the inverse hyperbolic tangent."""
    size = abs(x)
    return copy_sign(log1p(size * 2.0 / (1.0 - size), kind) * 0.5, x, kind)


# ---- pow ----------------------------------------------------------------------------------------------------------


def power(x: Value, y: Value, kind: Format) -> Value:
    """Return ``x`` to the power ``y``."""
    known = _constant_power(x, y)
    if known is not None:
        return known
    size = abs(x)
    if kind.dtype == "float32":
        wide = log2(size.cast("float64"), FLOAT64) * y.cast("float64")
        power = exp2(wide, FLOAT64).cast("float32")
    else:
        power = exp2(log2(size, kind) * y, kind)
    half = y * 0.5
    whole = y.unary("trunc").equals(y)
    odd = whole & half.unary("trunc").differs(half)
    # A negative base: the sign of an odd power, NaN for a power that is not whole (but not for infinite bases).
    signed = select(odd, -power, power)
    finite_base = size < INFINITY
    signed = select((x < 0.0) & finite_base & whole.differs(True), NAN, signed)
    negative = x.bits(kind.integer) < 0
    result = select(negative, signed, power)
    unit = x.equals(1.0) | y.equals(0.0) | (x.equals(-1.0) & abs(y).equals(INFINITY))
    return select(unit, 1.0, result)


def _constant_power(x: Value, y: Value) -> Value | None:
    """Return the power for the exponents 1, 2, 3 and -1."""
    expression = y.expression
    exponent = getattr(expression, "value", None)
    if isinstance(exponent, Constant):
        exponent = exponent.value
    if not isinstance(exponent, int | float):
        return None
    return {1.0: x, 2.0: x * x, 3.0: x * x * x, -1.0: 1.0 / x}.get(float(exponent))


def rsqrt(x: Value, kind: Format) -> Value:
    """Return ``1 / sqrt(x)``."""
    return 1.0 / x.unary("sqrt")
