"""A logarithmic number system: a sign and the base-2 logarithm of the magnitude in fixed point.

Products and quotients are exact until they leave the range; sums go through float64. Rounding is to the nearest
logarithm, ties to even; what is too large or too small saturates. The least logarithm stands for zero, with the sign
for NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from graft.core.tensor_ir.arithmetic.exact_rounding import called
from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format, power


@dataclass(frozen=True)
class Logarithmic(Format):
    """Numbers ``+-2**(i / 2**fraction)`` for signed ``i`` of ``bits - 1`` bits, of at most 16 bits in all."""

    fraction: int
    has_quire: ClassVar[bool] = False

    @property
    def carrier(self) -> str:
        """Always float64: its error is far below the distance of two logarithms."""
        return "float64"

    @property
    def _top(self) -> int:
        return (1 << (self.bits - 2)) - 1

    @property
    def largest(self) -> float:
        """The largest number."""
        return math.exp2(math.ldexp(self._top, -self.fraction))

    @property
    def smallest(self) -> float:
        """The least positive number."""
        return math.exp2(-math.ldexp(self._top, -self.fraction))

    def _power(self, logarithm: Value) -> Value:
        return called("exp2", logarithm * math.ldexp(1.0, -self.fraction))

    def _logarithm(self, size: Value) -> Value:
        units = (called("log2", size) * 2.0**self.fraction).unary("round_even")
        return units.clamp(-float(self._top), float(self._top))

    def root(self, value: Value) -> Value:
        """Return the square root: half the logarithm, whose ties a float's root would not show."""
        return self._raised(value, value.constant(0.5))

    def function(self, operation: str, operands: tuple[Value, ...]) -> Value | None:
        """Powers of positive numbers are products of the logarithm."""
        if operation == "Rsqrt":
            return self._raised(operands[0], operands[0].constant(-0.5))
        if operation != "Pow":
            return None
        base, exponent = operands
        return select(base > 0.0, self._raised(base, exponent), self.convert(power(base, exponent)))

    def _raised(self, base: Value, exponent: Value) -> Value:
        """Return a number of the format to a power, rounded once; NaN for a negative number."""
        units = (self._logarithm(base) * exponent).unary("round_even")
        number = self._power(units.clamp(-float(self._top), float(self._top)))
        number = select(base.equals(0.0), select(exponent > 0.0, 0.0, number.constant(math.nan)), number)
        return select(base < 0.0, math.nan, select(base.differs(base), base, number))

    def decode(self, bits: Value) -> Value:
        """Raise two to the logarithm."""
        code = bits.cast("uint64").bits("int64")
        logarithm = code << (65 - self.bits) >> (65 - self.bits)
        size = self._power(logarithm.cast("float64"))
        number = select(((code >> (self.bits - 1)) & 1).equals(1), -size, size)
        least = 1 << (self.bits - 2)
        number = select(code.equals(least), 0.0, number)
        return select(code.equals(least | 1 << (self.bits - 1)), math.nan, number)

    def round(self, value: Value) -> Value:
        """Round the logarithm of the magnitude."""
        size = self._power(self._logarithm(abs(value)))
        number = select(value < 0.0, -size, size)
        number = select(value.equals(0.0), 0.0, number)
        return select(abs(value) < math.inf, number, value.constant(math.nan))

    def encode(self, value: Value) -> Value:
        """Take the logarithm of a number of the format."""
        whole = self._logarithm(abs(value)).cast("int64") & ((1 << (self.bits - 1)) - 1)
        least, sign = 1 << (self.bits - 2), 1 << (self.bits - 1)
        code = select(value < 0.0, whole | sign, whole)
        code = select(value.equals(0.0), least, code)
        return select(value.differs(value), least | sign, code).cast(self.storage)
