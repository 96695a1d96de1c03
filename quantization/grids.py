"""Grids: the numbers that an element type can hold, and rounding to them.

A scaled tensor is ``(codes - zero) * scale``; a grid says which codes there are. Integers saturate, and so do floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import ml_dtypes
import numpy as np
import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers of an element type: its least and largest, and the bits that one takes.

    ``floats`` is the type of numbers that ONNX has no type for: their multiples of ``unit`` are stored as ``dtype``.
    """

    dtype: ir.DataType
    low: float
    high: float
    bits: int
    floats: np.dtype[np.generic] | None = None
    unit: float = 1.0

    @property
    def is_float(self) -> bool:
        """Whether the numbers are floats: they have no zero point, and their distance grows."""
        return self.floats is not None or self.dtype.is_floating_point()

    @property
    def is_whole(self) -> bool:
        """Whether all numbers of the type in which it is stored are on the grid."""
        return self.floats is None and self.bits == self.dtype.itemsize * 8

    @property
    def mantissa(self) -> int:
        """The bits behind the point of a float."""
        return int(ml_dtypes.finfo(self._type).nmant)  # type: ignore[no-untyped-call]

    @property
    def smallest(self) -> float:
        """The smallest number above 0."""
        return float(self._numbers(np.ones(1, np.uint8))[0]) if self.is_float else 1.0

    @property
    def middle(self) -> int:
        """The zero point of a symmetric range: that of an unsigned integer is half its numbers."""
        return 0 if self.low < 0 else int(self.high + 1) // 2

    def numbers(self) -> np.ndarray:
        """Return the finite numbers of the type, as float32."""
        if not self.is_float:
            return np.arange(self.low, self.high + 1, dtype=np.float32)
        found = self._numbers(np.arange(1 << self.bits, dtype=np.uint8))
        finite: np.ndarray = found[np.isfinite(found)]
        return finite

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Return the nearest number of the grid, ties to even, as float32."""
        if not self.is_float:
            whole: np.ndarray = np.clip(np.rint(x), self.low, self.high)
            return whole
        found: np.ndarray = np.clip(x, self.low, self.high).astype(self._type).astype(np.float32)
        return found

    def codes(self, places: np.ndarray, zero: np.ndarray | np.float32) -> np.ndarray:
        """Return the codes of numbers by their scale: rounded to even, then moved by the zero point, as ONNX does."""
        return self.nearest(places if self.is_float else np.rint(places) + zero)

    def toward_zero(self, x: np.ndarray) -> np.ndarray:
        """Return the number of the grid that is next to ``x`` toward zero, as float32."""
        return self._neighbours(np.clip(x, self.low, self.high))[0]

    def stochastic(self, x: np.ndarray, seed: int, name: str) -> np.ndarray:
        """Return one of the two numbers around ``x``, with the mean ``x``; drawn by a seed and a tensor's name."""
        near, far = self._neighbours(np.clip(x, self.low, self.high))
        generator = np.random.Generator(np.random.Philox(key=[seed, crc32(name.encode())]))
        step = np.where(far == near, 1, far - near)
        return np.where(generator.random(x.shape) < (x - near) / step, far, near).astype(np.float32)

    def stored(self, codes: np.ndarray) -> np.ndarray:
        """Return codes as an array of the element type."""
        return (codes / np.float32(self.unit)).astype(self.dtype.numpy())

    @property
    def _type(self) -> np.dtype[np.generic]:
        return self.floats or self.dtype.numpy()

    def _neighbours(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers around ``x``, which is in range: the one toward zero, and the one away from it."""
        if not self.is_float:
            near = np.trunc(x)
            return near, np.clip(near + np.sign(x - near), self.low, self.high)
        codes = np.abs(x).astype(self._type).view(np.uint8)
        codes = codes - (self._numbers(codes) > np.abs(x)).astype(np.uint8)
        above = np.where(self._numbers(codes) < np.abs(x), codes + np.uint8(1), codes).astype(np.uint8)
        return np.copysign(self._numbers(codes), x), np.copysign(self._numbers(above), x)

    def _numbers(self, codes: np.ndarray) -> np.ndarray:
        return codes.view(self._type).astype(np.float32)


def _integers(dtype: ir.DataType, bits: int, *, signed: bool) -> Grid:
    low = -(2 ** (bits - 1)) if signed else 0
    return Grid(dtype, low, low + 2**bits - 1, bits)


GRIDS = {
    "int8": _integers(ir.DataType.INT8, 8, signed=True),
    "uint8": _integers(ir.DataType.UINT8, 8, signed=False),
    "int4": _integers(ir.DataType.INT4, 4, signed=True),
    "uint4": _integers(ir.DataType.UINT4, 4, signed=False),
    "int3": _integers(ir.DataType.INT4, 3, signed=True),
    "int2": _integers(ir.DataType.INT2, 2, signed=True),
    "int16": _integers(ir.DataType.INT16, 16, signed=True),
    "uint16": _integers(ir.DataType.UINT16, 16, signed=False),
    "float8e4m3fn": Grid(ir.DataType.FLOAT8E4M3FN, -448.0, 448.0, 8),
    "float8e5m2": Grid(ir.DataType.FLOAT8E5M2, -57344.0, 57344.0, 8),
    "float4e2m1": Grid(ir.DataType.FLOAT4E2M1, -6.0, 6.0, 4),
    "float6e2m3": Grid(ir.DataType.INT8, -7.5, 7.5, 6, np.dtype(ml_dtypes.float6_e2m3fn), 1 / 8),
    "float6e3m2": Grid(ir.DataType.INT16, -28.0, 28.0, 6, np.dtype(ml_dtypes.float6_e3m2fn), 1 / 16),
}
"""The element types that a tensor may be scaled to, by name."""
