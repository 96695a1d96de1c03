"""What a number format is: its bits, the float type that carries its numbers, and three formulas.

A format's numbers are a subset of a *carrier*, float32 or float64. Inside a kernel numbers stay in the carrier: an
operation is the carrier's operation followed by `round`, and only memory holds the format's bits. All formulas are
branch-free expressions of the tensor IR, so the same definition is vector code in a kernel and NumPy here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.arithmetic.exact_rounding import (
    add_to_odd,
    called,
    divide_to_odd,
    fused,
    integer_to_odd,
    multiply_to_odd,
    narrow_to_odd,
    root_to_odd,
)
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.scalar_math import Value, select

AT_ONCE = 1 << 16
"""Elements of arrays that an expression is evaluated for at once: what its operations leave behind fits a cache."""


@dataclass(frozen=True)
class Format(ABC):
    """A number format of ``bits`` bits.

    ``decode`` takes storage bits (an unsigned integer) to the carrier, ``round`` a carrier to the nearest number of the
    format, ``encode`` a number of the format to its bits.
    """

    bits: int
    has_quire: ClassVar[bool] = True
    """Whether every number is a multiple of `unit`, so that sums of products can be exact."""

    @property
    @abstractmethod
    def carrier(self) -> str:
        """``float32`` where every operation of two numbers, rounded there and then to the format, is exact."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest finite number."""

    @property
    def lowest(self) -> float:
        """The least finite number."""
        return -self.largest

    @property
    @abstractmethod
    def smallest(self) -> float:
        """The least positive number."""

    @property
    def unit(self) -> float:
        """The power of two that all numbers are multiples of."""
        return self.smallest

    @property
    def significant(self) -> int | None:
        """The most significant bits that a number has, None where no bound is known."""
        return None

    @property
    def top_exponent(self) -> int:
        """The exponent of the largest numbers that have all significant bits: OCP's emax."""
        return math.frexp(self.largest)[1] - 1

    def has_exact_products(self, accumulator: str) -> bool:
        """Whether every product of two finite numbers is a number of ``float32`` or ``float64``, exactly."""
        if self.significant is None:
            return False
        kind = np.finfo(accumulator)
        low, high = math.frexp(self.unit)[1] - 1, math.frexp(max(self.largest, -self.lowest))[1]
        lowest_bit = math.frexp(float(kind.smallest_subnormal))[1] - 1
        return 2 * self.significant <= kind.nmant + 1 and 2 * low >= lowest_bit and 2 * high <= kind.maxexp

    @property
    def is_symmetric(self) -> bool:
        """Whether the carrier's negative of every number, zero included, is a number."""
        return True

    @property
    def overflowing(self) -> Format | None:
        """The format with infinity or NaN for what is too large; None where neither is a number of it."""
        return None

    @property
    def in_complement(self) -> bool:
        """Whether the code of a negative number is a two's complement; else the first bit is the sign."""
        return False

    @property
    def needs_odd(self) -> bool:
        """Whether the carrier has too few bits, so that operations round to odd first."""
        return False

    @property
    def storage(self) -> str:
        """The unsigned integer that holds the bits."""
        return f"uint{next(width for width in (8, 16, 32, 64) if self.bits <= width)}"

    @property
    def has_infinity_value(self) -> bool:
        """Whether infinity is a number of the format."""
        return False

    @abstractmethod
    def decode(self, bits: Value) -> Value:
        """Return the number that storage bits stand for, in the carrier."""

    @abstractmethod
    def round(self, value: Value) -> Value:
        """Return the number of the format nearest to a carrier's value."""

    @abstractmethod
    def encode(self, value: Value) -> Value:
        """Return the bits of a number of the format."""

    def beside(self, number: Value, side: Value, step: int) -> Value:
        """Return the number next to one: ``step`` is 1 away from zero, -1 toward it; ``side`` has the sign.

        What is next to the extremes, away from zero, is no number that anybody may use.
        """
        code = self.encode(number).cast("int64")
        negative = side < 0.0
        half = (1 << (self.bits - 1)) - 1
        if self.in_complement:
            step_of = select(negative, code.constant(-step), code.constant(step))
            return self.decode(((code + step_of) & (2 * half + 1)).cast(self.storage))
        size = self.decode((((code & half) + step) & half).cast(self.storage))
        found = select(negative, -size, size)
        return found if self.is_symmetric else found + 0.0

    def number(self, bits: Value) -> Value:
        """Return the number that storage bits stand for, as float64."""
        number = self.decode(bits)
        return number.cast("float64") if self.carrier == "float32" else number

    # ---- Operations on numbers in the carrier ----

    def convert(self, value: Value) -> Value:
        """Return a float32 or float64 as the nearest number of the format."""
        source = value.expression.type.dtype
        if source == "float64" and self.carrier == "float32":
            return self.round(narrow_to_odd(value))
        return self.round(value if source == self.carrier else value.cast(self.carrier))

    def add(self, left: Value, right: Value) -> Value:
        """Return the sum, rounded once."""
        return self.round(add_to_odd(left, right) if self.needs_odd else left + right)

    def subtract(self, left: Value, right: Value) -> Value:
        """Return the difference, rounded once."""
        return self.round(add_to_odd(left, -right) if self.needs_odd else left - right)

    def multiply(self, left: Value, right: Value) -> Value:
        """Return the product, rounded once."""
        return self.round(multiply_to_odd(left, right) if self.needs_odd else left * right)

    def divide(self, left: Value, right: Value) -> Value:
        """Return the quotient, rounded once."""
        return self.round(divide_to_odd(left, right) if self.needs_odd else left / right)

    def root(self, value: Value) -> Value:
        """Return the square root, rounded once: a root needs two bits more than float32 has for 12."""
        if self.carrier == "float32":
            return self.convert(value.cast("float64").unary("sqrt"))
        return self.round(root_to_odd(value) if self.needs_odd else value.unary("sqrt"))

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        """Return ``left * right + addend``, rounded once."""
        if self.carrier == "float32":
            wide = [operand.cast("float64") for operand in (left, right, addend)]
            return self.convert(add_to_odd(wide[0] * wide[1], wide[2]))
        product = left * right
        if not self.needs_odd:
            return self.round(add_to_odd(product, addend))
        # Of the two-part product and the addend, the largest two are summed exactly; the rest only breaks ties.
        rest = fused(left, right, -product)
        total = product + addend
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        low = add_to_odd(error, rest)
        return self.round(add_to_odd(total, low))

    def function(self, operation: str, operands: tuple[Value, ...]) -> Value | None:
        """Return an operation that the format computes in its own way, rounded once; None for every other."""
        return None

    def less(self, left: Value, right: Value) -> Value:
        """Return whether left is less."""
        return left < right

    def equal(self, left: Value, right: Value) -> Value:
        """Return whether both are the same number."""
        return left.equals(right)

    # ---- NumPy ----

    def to_numbers(self, bits: np.ndarray) -> np.ndarray:
        """Return the numbers (float64) that storage bits stand for."""
        return evaluate(self.number, bits)

    def nearest(self, value: float) -> float:
        """Return the number of the format nearest to a constant; infinities are the extremes where there are none."""
        if not self.has_infinity_value and math.isinf(value):
            return self.largest if value > 0 else self.lowest
        return float(self.to_numbers(self.to_bits(np.array([value])))[0])

    def to_bits(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers (floats of up to 64 bits or integers) rounded to the format, once, as storage bits."""
        numbers = np.asarray(numbers)
        if numbers.dtype in (np.int64, np.uint64):
            return evaluate(lambda x: self.encode(self.convert(integer_to_odd(x))), numbers)
        kind = np.float32 if numbers.dtype == np.float32 else np.float64
        return evaluate(lambda x: self.encode(self.convert(x)), numbers.astype(kind, copy=False))


def is_nan(value: Value) -> Value:
    """Return whether a float is NaN."""
    return value.differs(value)


def power(base: Value, exponent: Value) -> Value:
    """Return a power of float64s to 48 significant bits: one that has no more, as a tie has, is exact."""
    return ((called("pow", base, exponent).bits("int64") + 16) & -32).bits("float64")


def either(left: Value, right: Value) -> Value:
    """Return the disjunction of two conditions."""
    return left | right


def evaluate(function: Callable[..., Value], *arrays: np.ndarray) -> np.ndarray:
    """Return what an expression of scalars gives for arrays of one shape, in NumPy."""
    shape = np.broadcast_shapes(*(np.shape(array) for array in arrays))
    flat = [np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1) for array in arrays]
    parts = [
        _evaluated(function, [one[start : start + AT_ONCE] for one in flat])
        for start in range(0, max(flat[0].size, 1), AT_ONCE)
    ]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).reshape(shape)


def _evaluated(function: Callable[..., Value], arrays: list[np.ndarray]) -> np.ndarray:
    extent = (b.index(arrays[0].size),)
    buffers = [Buffer(f"x{number}", array.dtype.name, extent) for number, array in enumerate(arrays)]
    dtype = function(*(Value(b.load(buffer, 0)) for buffer in buffers)).expression.type.dtype
    target = Buffer("y", dtype, extent)
    stage = b.compute(target, lambda i: function(*(Value(b.load(buffer, *i)) for buffer in buffers)).expression)
    if not arrays[0].size:
        return np.zeros(0, dtype)
    return run_stages([stage], dict(zip(buffers, arrays, strict=True)))[target]
