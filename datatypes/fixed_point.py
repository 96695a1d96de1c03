"""Fixed point: a signed integer times a power of two, saturating, rounded to nearest even."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format


@dataclass(frozen=True)
class FixedPoint(Format):
    """Numbers ``i / 2**fraction`` for signed integers ``i`` of ``bits`` bits; NaN becomes 0.

    A ``symmetric`` one is never rounded to the least integer (MXINT8), though that has its meaning when it is read.
    """

    fraction: int
    symmetric: bool = False

    @property
    def significant(self) -> int:
        """All bits but the sign; the least number has one."""
        return self.bits - 1

    @property
    def is_symmetric(self) -> bool:
        """The least number, which may be read, has no negative."""
        return False

    @property
    def in_complement(self) -> bool:
        """Negative numbers are two's complements."""
        return True

    @property
    def carrier(self) -> str:
        """float32 up to 12 bits (products have 23), else float64."""
        return "float32" if self.bits <= 12 else "float64"

    @property
    def needs_odd(self) -> bool:
        """Whether products are longer than float64's significand."""
        return self.bits > 26

    @property
    def largest(self) -> float:
        """The largest number."""
        return math.ldexp((1 << (self.bits - 1)) - 1, -self.fraction)

    @property
    def lowest(self) -> float:
        """The least number."""
        return -self.largest if self.symmetric else -math.ldexp(1 << (self.bits - 1), -self.fraction)

    @property
    def smallest(self) -> float:
        """One unit."""
        return math.ldexp(1.0, -self.fraction)

    @property
    def _word(self) -> str:
        return "int32" if self.carrier == "float32" else "int64"

    def decode(self, bits: Value) -> Value:
        """Extend the sign and scale."""
        width = 32 if self._word == "int32" else 64
        whole = bits.cast(f"uint{width}").bits(self._word) << (width - self.bits) >> (width - self.bits)
        return whole.cast(self.carrier) * self.smallest

    def round(self, value: Value) -> Value:
        """Round to whole units and clamp."""
        units = (value * 2.0**self.fraction).unary("round_even")
        limited = units.clamp(self.lowest * 2.0**self.fraction, self.largest * 2.0**self.fraction)
        return select(value.differs(value), 0.0, limited * self.smallest + 0.0)

    def encode(self, value: Value) -> Value:
        """Scale to whole units; the low bits of the integer are the code."""
        units = (value * 2.0**self.fraction).cast(self._word)
        return (units & ((1 << self.bits) - 1)).cast(self.storage)
