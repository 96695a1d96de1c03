"""Rounding to odd: what makes a second rounding harmless.

A result rounded to odd (truncated, with the last bit set if anything was cut off) in a format at least two bits wider
than the target rounds to the target as the exact result would (Boldo and Melquiond, "Emulation of FMA and correctly
rounded sums: proved algorithms using rounding to odd", 2008). So float64 carries formats of up to 51 bits.
"""

from __future__ import annotations

from graft.core.tensor_ir.ir import Intrinsic
from graft.core.tensor_ir.scalar_math import Value, select


def called(name: str, *arguments: Value) -> Value:
    """Return an intrinsic of values of one type."""
    operands = tuple(argument.expression for argument in arguments)
    return Value(Intrinsic(name, operands, operands[0].type))


def fused(left: Value, right: Value, addend: Value) -> Value:
    """Return ``left * right + addend``, rounded once."""
    return called("fma", left, right, addend)


def flag(condition: Value, dtype: str) -> Value:
    """Return 1 where a condition holds, else 0, as an integer."""
    return condition.cast(dtype)


def narrow_to_odd(value: Value) -> Value:
    """Return a float64 as float32, rounded to odd; beyond float32's range it is the largest finite number."""
    near = value.cast("float32")
    back = near.cast("float64")
    above = flag(abs(value) < abs(back), "int32")
    inexact = flag(back.differs(value), "int32")
    return ((near.bits("int32") - above) | inexact).bits("float32")


def integer_to_odd(value: Value) -> Value:
    """Return an int64 or uint64 as float64, rounded to odd."""
    high = value >> 11
    sticky = flag((value & 0x7FF).differs(0), value.expression.type.dtype)
    rounded = (high | sticky).cast("float64") * 2.0**11
    top = value >> 53
    fits = top.equals(0)
    if value.expression.type.dtype == "int64":
        fits = fits | top.equals(-1)
    return select(fits, value.cast("float64"), rounded)


def to_odd(rounded: Value, error: Value) -> Value:
    """Return ``rounded + error`` (float64; ``error`` is below one unit in the last place) rounded to odd."""
    bits = rounded.bits("int64")
    inexact = flag(abs(error) > 0.0, "int64")
    towards_zero = ((error.bits("int64") ^ bits) >> 63) & (-inexact)
    return ((bits + towards_zero) | inexact).bits("float64")


def sum_error(left: Value, right: Value, total: Value) -> Value:
    """Return the exact error of ``total = left + right`` (Knuth)."""
    virtual = total - left
    return (left - (total - virtual)) + (right - virtual)


def add_to_odd(left: Value, right: Value) -> Value:
    """Return the sum of two float64, rounded to odd."""
    total = left + right
    return to_odd(total, sum_error(left, right, total))


def multiply_to_odd(left: Value, right: Value) -> Value:
    """Return the product of two float64, rounded to odd; the error must not underflow."""
    product = left * right
    return to_odd(product, fused(left, right, -product))


def divide_to_odd(left: Value, right: Value) -> Value:
    """Return the quotient of two float64, rounded to odd: the remainder's sign says on which side it lies."""
    quotient = left / right
    rest = fused(-quotient, right, left)
    signed = select(right < 0.0, -rest, rest)
    return to_odd(quotient, signed)


def root_to_odd(value: Value) -> Value:
    """Return the square root of a float64, rounded to odd."""
    root = value.unary("sqrt")
    return to_odd(root, fused(-root, root, value))
