"""Arithmetic of 16-bit floats in float32 and on bits, for machines and languages without the former.

Every result is rounded once, to nearest even: a wider source is first rounded to odd (`exact_rounding`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import integer_to_odd, narrow_to_odd
from graft.core.tensor_ir.ir import COMPARISONS, Binary, Cast, Expression, Horizontal, Intrinsic, Unary
from graft.core.tensor_ir.scalar_math import Value, select
from graft.core.tensor_ir.visit import ExpressionMap
from graft.core.types import FLOAT32, element_bits
from graft.runtime.dtypes import numpy_dtype

SMALL_FLOATS = frozenset({"float16", "bfloat16"})
_INFINITY = 0x7F800000


def bits_of(number: float, dtype: str) -> int:
    """Return the bits of a number as a 16-bit float."""
    with np.errstate(over="ignore"):
        return int(np.asarray(number, numpy_dtype(dtype)).view(np.uint16))


def widening() -> ExpressionMap:
    """Return the map; what is left of float16 and bfloat16 are loads, stores, selections and bits."""
    return ExpressionMap(in_float32)


def in_float32(node: Expression, native: Collection[str] = ()) -> Expression:
    """Return an operation on 16-bit floats as ones on float32 and on bits, any other as it is.

    The roundings in ``native`` are instructions: they stay, and with ``round_f16`` the casts that it is. ``round_bf16``
    is no cast, for it takes subnormal numbers for zero.
    """
    match node:
        case Unary(operator, value) if value.type.dtype in SMALL_FLOATS:
            return _narrow(Unary(operator, _wide(value, native)), value.type.dtype, native)
        case Horizontal(operator, value) if value.type.dtype in SMALL_FLOATS and value.type.lanes > 1:
            return _narrow(Horizontal(operator, _wide(value, native)), value.type.dtype, native)
        case Binary(operator, left, right) if left.type.dtype in SMALL_FLOATS:
            result = Binary(operator, _wide(left, native), _wide(right, native))
            return result if operator in COMPARISONS else _narrow(result, left.type.dtype, native)
        case Intrinsic("fma" | "muladd" as name, arguments, kind) if kind.dtype in SMALL_FLOATS:
            operands = tuple(_wide(argument, native) for argument in arguments)
            return _narrow(Intrinsic(name, operands, FLOAT32.with_lanes(kind.lanes)), kind.dtype, native)
        case Intrinsic("round_bf16", (value,)) if "round_bf16" not in native:
            return _narrow(value, "bfloat16", native)
        case Cast(value, dtype) if value.type.dtype != dtype and {value.type.dtype, dtype} & SMALL_FLOATS:
            source = value.type.dtype
            if {source, dtype} == {"float16", "float32"} and "round_f16" in native:
                return node
            value = _wide(value, native) if source in SMALL_FLOATS else value
            if dtype in SMALL_FLOATS:
                return _narrow(value, dtype, native)
            return value if dtype == "float32" else Cast(value, dtype)
    return node


def _wide(value: Expression, native: Collection[str]) -> Expression:
    """Return a 16-bit float as float32, exactly."""
    if value.type.dtype == "float16" and "round_f16" in native:
        return Cast(value, "float32")
    bits = Value(value).bits("uint16").cast("uint32")
    if value.type.dtype == "bfloat16":
        return (bits << 16).bits("float32").expression
    # Exponent and mantissa move up; the scale corrects the bias and normalises denormals.
    magnitude = bits & 0x7FFF
    moved = magnitude << 13
    finite = (moved.bits("float32") * 2.0**112).bits("uint32")
    number = select(magnitude >= 0x7C00, moved | _INFINITY, finite)
    return (number | ((bits & 0x8000) << 16)).bits("float32").expression


def _narrow(value: Expression, dtype: str, native: Collection[str]) -> Expression:
    """Return a number as a 16-bit float."""
    single = _single(Value(value))
    if dtype == "float16" and "round_f16" in native:
        return single.cast(dtype).expression
    narrowed = _bfloat16(single) if dtype == "bfloat16" else _float16(single)
    return narrowed.cast("uint16").bits(dtype).expression


def _single(value: Value) -> Value:
    """Return a float32 that holds a number exactly, or rounded to odd."""
    kind = value.expression.type
    bits = 1 if kind.dtype == "bool" else element_bits(kind.dtype)
    if kind.dtype == "float32" or (bits <= 16 and not kind.is_float):
        return value if kind.dtype == "float32" else value.cast("float32")
    wide = value if kind.is_float else integer_to_odd(value) if bits == 64 else value.cast("float64")
    return narrow_to_odd(wide)


def _bfloat16(value: Value) -> Value:
    bits = value.bits("uint32")
    half = bits >> 16
    rounded = (bits + ((half & 1) + 0x7FFF)) >> 16
    return select(value.differs(value), half | 0x40, rounded)


def _float16(value: Value) -> Value:
    """Normal results round by an integer carry; denormal ones by adding 0.5, whose last place is theirs."""
    bits = value.bits("uint32")
    sign = bits & 0x80000000
    magnitude = bits ^ sign
    normal = (magnitude + (0x0FFF - (112 << 23) & 0xFFFFFFFF) + ((magnitude >> 13) & 1)) >> 13
    denormal = (magnitude.bits("float32") + 0.5).bits("uint32") - 0x3F000000
    finite = select(magnitude < 113 << 23, denormal, normal)
    special = select(magnitude > _INFINITY, 0x7E00, magnitude.constant(0x7C00))
    return select(magnitude >= 143 << 23, special, finite) | (sign >> 16)
