"""The machine's own floats as number formats: each product and each sum is rounded to them, in the stated order.

``accumulate="float32"`` sums in ``custom[float]32``: a plain float32 sum would be fused and regrouped as suits a
machine. Where products of the format that is summed are exact in it (posit16 has 12 significant bits), it is
``custom[fused_float]32``, of which each machine may fuse products and sums: the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import fused
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.compute_type import encoded
from graft.datatypes.formats import Format

ORDERED = {
    "float16": "custom[float]16",
    "bfloat16": "custom[bfloat]16",
    "float32": "custom[float]32",
    "float64": "custom[float]64",
}
"""The custom type that a plain float is accumulated in."""
FUSED = {"custom[float]32": "custom[fused_float]32", "custom[float]64": "custom[fused_float]64"}
"""The same for products that are exact: a fused multiply-add gives the bits of a product and a sum."""


@dataclass(frozen=True)
class NativeFloat(Format):
    """float32 or float64: its own carrier, rounded by the machine."""

    has_quire: ClassVar[bool] = False
    is_fused: bool = False
    """Whether products that are added are exact, so that a machine may fuse them or not."""

    @property
    def carrier(self) -> str:
        """The type itself."""
        return f"float{self.bits}"

    @property
    def overflowing(self) -> NativeFloat:
        """The type itself."""
        return self

    @property
    def significant(self) -> int:
        """The hidden bit and the fraction."""
        return int(np.finfo(self.carrier).nmant) + 1

    @property
    def has_infinity_value(self) -> bool:
        """There are infinities."""
        return True

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(np.finfo(self.carrier).max)

    @property
    def smallest(self) -> float:
        """The least positive number."""
        return float(np.finfo(self.carrier).smallest_subnormal)

    def decode(self, bits: Value) -> Value:
        """The bits are the carrier's."""
        return bits.bits(self.carrier)

    def round(self, value: Value) -> Value:
        """The machine has rounded."""
        return value

    def encode(self, value: Value) -> Value:
        """The carrier's bits."""
        return value.bits(self.storage)

    def convert(self, value: Value) -> Value:
        """Return a float32 or float64 as the nearest number of the format."""
        return value if value.expression.type.dtype == self.carrier else value.cast(self.carrier)

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        """Return ``left * right + addend``, rounded once."""
        return fused(left, right, addend)

    def root(self, value: Value) -> Value:
        """Return the square root."""
        return value.unary("sqrt")


def is_fused(format: Format | None) -> bool:
    """Whether a format is one whose products may be fused with the sums that they are terms of."""
    return isinstance(format, NativeFloat) and format.is_fused


def as_carrier(dtype: str) -> str:
    """Return ``float32`` for the decoded type of ``custom[float]32``, which is the same numbers; others as they are."""
    custom = encoded(dtype)
    return next((plain for plain in ("float32", "float64") if custom in (ORDERED[plain], FUSED[ORDERED[plain]])), dtype)
