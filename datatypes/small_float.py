"""Small binary floats of any exponent and mantissa width: IEEE, OCP's floats of 4 to 8 bits, and their relatives.

Conventions after IEEE 754-2019, "OCP 8-bit Floating Point Specification (OFP8)" (2023) and "OCP Microscaling Formats
(MX) Specification v1.0" (2023): ``nan`` says where NaN lives. ``"ieee"`` reserves the top exponent; ``"top"`` only its
all-ones mantissa (E4M3FN); ``"zero"`` the code of negative zero, so that there is none (the FNUZ types, IEEE's P3109);
with ``"none"`` every code is a finite number (FP6, FP4), what is too large saturates, and NaN becomes -0, as in
ml_dtypes (the specification leaves it open).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format


@dataclass(frozen=True)
class SmallFloat(Format):
    """A float of ``bits`` bits, of which ``mantissa`` are stored; carried in float32.

    ``infinities`` stand at the top exponent with ``nan="ieee"`` and at the last code with ``"zero"``; the others have
    none. Without ``subnormals`` numbers below the least normal one become zero or it,
    whichever is nearer. ``saturate`` makes what is too large the largest number rather than infinity or NaN.
    """

    mantissa: int
    infinities: bool = True
    subnormals: bool = True
    nan: Literal["ieee", "top", "zero", "none"] = "ieee"
    saturate: bool = False
    extra_bias: int = 0

    @property
    def carrier(self) -> str:
        """Always float32: twice the mantissa's bits and more."""
        return "float32"

    @property
    def significant(self) -> int:
        """The hidden bit and the mantissa."""
        return self.mantissa + 1

    @property
    def is_symmetric(self) -> bool:
        """Whether there is a negative zero."""
        return self.nan != "zero"

    @property
    def has_infinity_value(self) -> bool:
        """Whether there are infinities."""
        return self.infinities

    @property
    def overflowing(self) -> SmallFloat | None:
        """The same with infinity, or else NaN, for what is too large; None where there is neither."""
        return None if self.nan == "none" else replace(self, saturate=False)

    @property
    def exponent_bits(self) -> int:
        """The number of exponent bits."""
        return self.bits - 1 - self.mantissa

    @property
    def bias(self) -> int:
        """The exponent's bias."""
        return (1 << (self.exponent_bits - 1)) - 1 + self.extra_bias

    @property
    def least_normal(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def smallest(self) -> float:
        """The least positive number."""
        return self.unit if self.subnormals else self.least_normal

    @property
    def unit(self) -> float:
        """The last place of the least normal number."""
        return math.ldexp(self.least_normal, -self.mantissa)

    @property
    def _largest_code(self) -> int:
        top = (1 << (self.bits - 1)) - 1
        if self.infinities or self.nan == "ieee":
            return self._infinity_code - 1
        return top - 1 if self.nan == "top" else top

    @property
    def _infinity_code(self) -> int:
        top = (1 << (self.bits - 1)) - 1
        return top - (1 << self.mantissa) + 1 if self.nan == "ieee" else top

    @property
    def largest(self) -> float:
        """The largest finite number."""
        exponent, fraction = divmod(self._largest_code, 1 << self.mantissa)
        return math.ldexp(1 + fraction / (1 << self.mantissa), exponent - self.bias)

    @property
    def _nan_code(self) -> int:
        half = 1 << (self.bits - 1)
        top = half - 1
        quiet = self._infinity_code | 1 << (self.mantissa - 1)
        return {"ieee": quiet, "top": top, "zero": half, "none": half}[self.nan]

    def decode(self, bits: Value) -> Value:
        """Shift exponent and mantissa into place and change the bias; subnormals are scaled integers."""
        code = bits.cast("int32")
        magnitude = code & ((1 << (self.bits - 1)) - 1)
        normal = ((magnitude << (23 - self.mantissa)) + ((127 - self.bias) << 23)).bits("float32")
        tiny = magnitude.cast("float32") * math.ldexp(self.least_normal, -self.mantissa)
        if not self.subnormals:
            tiny = tiny * 0.0
        number = select(magnitude < (1 << self.mantissa), tiny, normal)
        if self.nan == "ieee":
            number = select(magnitude >= self._infinity_code, float("nan"), number)
        elif self.nan == "top":
            number = select(magnitude.equals(self._nan_code), float("nan"), number)
        if self.infinities:
            number = select(magnitude.equals(self._infinity_code), math.inf, number)
        signed = number.bits("int32") | ((code >> (self.bits - 1)) << 31)
        if self.nan == "zero":
            return select(code.equals(self._nan_code), float("nan"), signed.bits("float32"))
        return signed.bits("float32")

    def round(self, value: Value) -> Value:
        """Round the mantissa as an integer; below the least normal number, add and subtract a power of two."""
        bits = value.bits("int32")
        magnitude = bits & 0x7FFFFFFF
        cut = 23 - self.mantissa
        odd = (magnitude >> cut) & 1
        normal = ((magnitude + ((1 << cut >> 1) - 1) + odd) & -(1 << cut)).bits("float32")
        size = magnitude.bits("float32")
        if self.subnormals:
            anchor = math.ldexp(1.5 * self.least_normal, cut)
            tiny = (size + anchor) - anchor
        else:
            tiny = select(size > self.least_normal / 2, size.constant(self.least_normal), size.constant(0.0))
        number = select(size < self.least_normal, tiny, normal)
        number = self._limited(number, value)
        signed = (number.bits("int32") | (bits ^ magnitude)).bits("float32")
        if self.nan == "zero":
            signed = select(number.equals(0.0), 0.0, signed)
        return select(value.differs(value), -0.0 if self.nan == "none" else math.nan, signed)

    def _limited(self, number: Value, value: Value) -> Value:
        over = math.inf if self.infinities else math.nan
        if not self.saturate and self.nan != "none":
            return select(number > self.largest, over, number)
        limited = number.at_most(self.largest)
        return select(abs(value).equals(math.inf), math.inf, limited) if self.infinities else limited

    def encode(self, value: Value) -> Value:
        """Undo `decode`; NaN gets the format's one code."""
        bits = value.bits("int32")
        magnitude = bits & 0x7FFFFFFF
        size = magnitude.bits("float32")
        normal = (magnitude >> (23 - self.mantissa)) - ((127 - self.bias) << self.mantissa)
        # Two factors: their product may be beyond float32.
        scaled = size.at_most(self.least_normal) * 2.0 ** (self.bias - 1) * 2.0**self.mantissa
        tiny = scaled.cast("int32")
        code = select(size < self.least_normal, tiny, normal)
        if self.infinities:
            code = select(size.equals(math.inf), self._infinity_code, code)
        code = code | ((bits >> 31) & (1 << (self.bits - 1)))
        return select(value.differs(value), self._nan_code, code).cast(self.storage)

    def beside(self, number: Value, side: Value, step: int) -> Value:
        """Return the number next to one; without subnormals the least normal one is next to zero."""
        found = super().beside(number, side, step)
        if self.subnormals or step < 0:
            return found
        least = found.constant(self.least_normal)
        return select(found.equals(0.0), select(side < 0.0, -least, least), found)
