"""Number formats by their texts, in exact rationals: what the shipped formats are proved against.

Nothing of `graft` is used. `Numbers` is the vectorised form: a format's numbers in order, as float64 (all formats of up
to 16 bits are exact there), with what lies halfway between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np

# ---- Posits, "Standard for Posit Arithmetic (2022)", sections 3 and 4 ----


def posit_value(code: int, bits: int, es: int = 2) -> Fraction | None:
    """Return the number of a posit's code, None for NaR, by the bit string's fields."""
    if code == 0:
        return Fraction(0)
    if code == 1 << (bits - 1):
        return None
    if code >> (bits - 1):
        value = posit_value((1 << bits) - code, bits, es)
        assert value is not None, code
        return -value
    text = format(code, f"0{bits}b")[1:]
    run = len(text) - len(text.lstrip(text[0]))
    regime = run - 1 if text[0] == "1" else -run
    rest = text[run + 1 :]
    exponent = int((rest[:es] + "0" * es)[:es] or "0", 2)
    fraction = rest[es:]
    significand = 1 + Fraction(int(fraction or "0", 2), 1 << len(fraction))
    return significand * Fraction(2) ** (regime * (1 << es) + exponent)


def posit_code(value: Fraction | None, bits: int, es: int = 2) -> int:
    """Return the code nearest to a rational: the truncated bit string, or the next one if beyond the midpoint.

    The midpoint of two neighbours is the posit of one more bit between them; a tie goes to the even code.
    """
    if value is None:
        return 1 << (bits - 1)
    if value == 0:
        return 0
    if value < 0:
        return (1 << bits) - posit_code(-value, bits, es)
    top = (1 << (bits - 1)) - 1
    largest = Fraction(2) ** ((bits - 2) << es)
    if value >= largest:
        return top
    if value <= 1 / largest:
        return 1
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    regime, low = exponent >> es, exponent & ((1 << es) - 1)
    text = "1" * (regime + 1) + "0" if regime >= 0 else "0" * -regime + "1"
    fraction = (value / Fraction(2) ** exponent - 1) * (1 << bits)
    text += (format(low, f"0{es}b") if es else "") + format(math.floor(fraction), f"0{bits}b")
    code = int(text[: bits - 1], 2)
    middle = posit_value(2 * code + 1, bits + 1, es)
    assert middle is not None, code
    return code + 1 if value > middle or (value == middle and code & 1) else code


# ---- Floats of any exponent and mantissa ----


@dataclass(frozen=True)
class FloatText:
    """A small float's conventions, as OFP8 and IEEE 754 state them."""

    exponent: int
    mantissa: int
    infinities: bool = True
    subnormals: bool = True
    nan: str = "ieee"
    bias: int | None = None

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    def value(self, code: int) -> Fraction | float:
        """Return a rational, or NaN or an infinity as a float."""
        sign = -1 if code >> (self.bits - 1) else 1
        exponent = (code >> self.mantissa) & ((1 << self.exponent) - 1)
        fraction = code & ((1 << self.mantissa) - 1)
        full = (1 << self.exponent) - 1
        if self.nan == "ieee" and exponent == full:
            return sign * math.inf if fraction == 0 and self.infinities else math.nan
        if self.nan == "top" and exponent == full and fraction == (1 << self.mantissa) - 1:
            return math.nan
        if self.nan == "zero" and code == 1 << (self.bits - 1):
            return math.nan
        if self.nan == "zero" and self.infinities and code % (1 << (self.bits - 1)) == (1 << (self.bits - 1)) - 1:
            return sign * math.inf
        bias = (1 << (self.exponent - 1)) - 1 if self.bias is None else self.bias
        if exponent == 0:
            kept = fraction if self.subnormals else 0
            return sign * Fraction(kept, 1 << self.mantissa) * Fraction(2) ** (1 - bias)
        return sign * (1 + Fraction(fraction, 1 << self.mantissa)) * Fraction(2) ** (exponent - bias)


# ---- Vectorised ----


@dataclass(frozen=True)
class Numbers:
    """A format's finite numbers, ascending, the codes' parity that breaks ties, and the midpoints between them.

    ``beyond`` is what the result is beyond ``limit``, ``infinite`` for an infinity, ``invalid`` for NaN.
    ``never_zero``: nothing but zero rounds to zero.
    """

    values: np.ndarray
    even: np.ndarray
    middles: np.ndarray
    limit: float = math.inf
    beyond: float = math.nan
    infinite: float = math.nan
    invalid: float = math.nan
    never_zero: bool = False

    def round(self, near: np.ndarray, error: np.ndarray | float = 0.0) -> np.ndarray:
        """Return the number nearest to ``near + error`` where ``near`` is that sum rounded to float64.

        Rounding is monotone and midpoints are float64, so ``near`` is on the sum's side of each, or equal to it; then
        the error's sign decides, and where it is zero the even code (of zero and a neighbour: zero).
        """
        error = np.broadcast_to(error, near.shape)
        finite = np.where(np.isfinite(near), near, 0.0)
        place = np.searchsorted(self.middles, finite, side="left")
        at = np.minimum(place, len(self.middles) - 1)
        tie = (place < len(self.middles)) & (self.middles[at] == finite)
        even = self.even[place] & (self.values[np.minimum(place + 1, len(self.values) - 1)] != 0)
        up = tie & ((error > 0) | ((error == 0) & ~(even | (self.values[place] == 0))))
        result = self.values[place + up]
        if self.never_zero:
            least = np.min(self.values[self.values > 0])
            result = np.where((result == 0) & (finite != 0), np.copysign(least, finite), result)
        if self.limit < math.inf:
            size, sign = np.abs(finite), np.sign(finite)
            outward = error * sign
            outside = (size > self.limit) | ((size == self.limit) & ((outward > 0) | (outward == 0) & ~self.even[-1]))
            result = np.where(outside, np.copysign(self.beyond, finite), result)
        result = np.where(np.isinf(near), np.copysign(self.infinite, near), result)
        return np.where(np.isnan(near), self.invalid, result)


def numbers_of(
    values: dict[int, Fraction], *, limit: Fraction | None = None, beyond: float = math.nan,
    infinite: float = math.nan, invalid: float = math.nan,
) -> Numbers:  # fmt: skip
    """Return the numbers of a format by code; arithmetic midpoints, zero and even codes are even."""
    rows: dict[Fraction, int] = {}
    for code, value in values.items():
        rows.setdefault(value, code)
    ordered = sorted(rows)
    middles = [(below + above) / 2 for below, above in pairwise(ordered)]
    return Numbers(
        exact(ordered),
        np.array([rows[value] % 2 == 0 for value in ordered]),
        exact(middles),
        math.inf if limit is None else exact([limit])[0],
        beyond,
        infinite,
        invalid,
    )


@cache
def float_numbers(text: FloatText, saturate: bool) -> Numbers:
    """Return a small float's numbers; results beyond half a unit above the largest leave the range."""
    values = {code: text.value(code) for code in range(1 << text.bits)}
    finite = {code: value for code, value in values.items() if isinstance(value, Fraction)}
    ordered = sorted(set(finite.values()))
    largest = ordered[-1]
    limit = largest + Fraction(2) ** (math.frexp(largest)[1] - 1 - text.mantissa) / 2
    infinite = math.inf if text.infinities else (float(largest) if saturate else math.nan)
    beyond = float(largest) if saturate else infinite
    return numbers_of(
        finite, limit=limit, beyond=beyond, infinite=infinite, invalid=0.0 if text.nan == "none" else math.nan
    )


@cache
def posit_numbers(bits: int, es: int = 2) -> Numbers:
    """Return a posit's numbers, with the posits of one more bit as midpoints."""
    half = 1 << (bits - 1)
    codes = [code % (1 << bits) for code in range(half + 1 - (1 << bits), half)]
    values = [posit_value(code, bits, es) for code in codes]
    between = [posit_value((2 * code + 1) % (2 << bits), bits + 1, es) for code in codes[:-1]]
    even = np.array([code % 2 == 0 for code in codes])
    return Numbers(exact(values), even, exact(between), never_zero=True)


def exact(values: list[Fraction | None]) -> np.ndarray:
    """Return rationals as float64, checked to be equal; None is NaN."""
    result = [math.nan if value is None else float(value) for value in values]
    assert all(value is None or Fraction(number) == value for number, value in zip(result, values, strict=True))
    return np.array(result)


# ---- Operations on float64 arrays whose significands have at most 26 bits: near, and the sign of the error ----


def _sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = x + y
    virtual = total - x
    return total, (x - (total - virtual)) + (y - virtual)


def _product(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    product = x * y
    return product, np.zeros_like(product)


def _quotient(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = x / y
        # Only where the quotient is a midpoint, of few bits, does the sign count; there the product is exact.
        return quotient, np.sign(x - quotient * y) * np.sign(y)


def _root(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x)
        return root, np.sign(x - root * root)


def _remainder(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore"):
        rest = np.fmod(x, y)
        return rest, np.zeros_like(rest)


OPERATIONS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "Add": _sum,
    "Sub": lambda x, y: _sum(x, -y),
    "Mul": _product,
    "Div": _quotient,
    "Mod": _remainder,
    "Sqrt": _root,
}
"""Operations whose result is one rounding away from the exact one."""


def same(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return where two arrays hold one number, NaN included; zeros of both signs are one."""
    return (actual == expected) | (np.isnan(actual) & np.isnan(expected))
