"""Powers of two alone: E8M0, the scale of OCP's microscaling formats ("MX Specification v1.0", 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format

_LAST_PLACE = 52
_BIAS = 1023


@dataclass(frozen=True)
class PowerOfTwo(Format):
    """Numbers ``2**(code - bias)``: no sign, no zero, no infinity; the last code is NaN.

    Rounding is to the nearest, the middle of two to the larger, as in ml_dtypes; what is not positive, and an infinity,
    becomes NaN, and so does what is too large unless numbers ``saturate``.
    """

    saturate: bool = False

    @property
    def carrier(self) -> str:
        """float64: a product of two is beyond float32."""
        return "float64"

    @property
    def significant(self) -> int:
        """One bit."""
        return 1

    @property
    def bias(self) -> int:
        """What is taken from the code."""
        return (1 << (self.bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The largest number, below the code of NaN."""
        return 2.0 ** ((1 << self.bits) - 2 - self.bias)

    @property
    def lowest(self) -> float:
        """The least number, which is positive."""
        return self.smallest

    @property
    def smallest(self) -> float:
        """The number of code 0."""
        return 2.0**-self.bias

    @property
    def is_symmetric(self) -> bool:
        """Nothing is negative."""
        return False

    @property
    def overflowing(self) -> PowerOfTwo:
        """The same with NaN for what is too large."""
        return replace(self, saturate=False)

    def decode(self, bits: Value) -> Value:
        """Put the code into the exponent's place."""
        code = bits.cast("int64")
        number = ((code + (_BIAS - self.bias)) << _LAST_PLACE).bits("float64")
        return select(code.equals((1 << self.bits) - 1), math.nan, number)

    def round(self, value: Value) -> Value:
        """Round the significand as an integer: half of its last place is the first bit behind the point."""
        upper = (value.bits("int64") + (1 << (_LAST_PLACE - 1))) >> _LAST_PLACE << _LAST_PLACE
        number = upper.bits("float64").at_least(self.smallest)
        limit = number.constant(self.largest) if self.saturate else number.constant(math.nan)
        number = select(number > self.largest, limit, number)
        return select((value > 0.0) & (value < math.inf), number, value.constant(math.nan))

    def encode(self, value: Value) -> Value:
        """Take the exponent."""
        code = (value.bits("int64") >> _LAST_PLACE) - (_BIAS - self.bias)
        return select(value.differs(value), (1 << self.bits) - 1, code).cast(self.storage)

    def beside(self, number: Value, side: Value, step: int) -> Value:
        """Return twice or half of a number; the least is next to itself."""
        return (number * 2.0**step).at_least(self.smallest)
