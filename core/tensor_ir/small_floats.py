"""Arithmetic of 16-bit floats as arithmetic of float32, for machines without the former: each result rounded once."""

from __future__ import annotations

from graft.core.tensor_ir.ir import COMPARISONS, Binary, Cast, Expression, Intrinsic, Unary
from graft.core.tensor_ir.visit import ExpressionMap
from graft.core.types import FLOAT32

SMALL_FLOATS = frozenset({"float16", "bfloat16"})


def widening() -> ExpressionMap:
    """Return the map; what is left of float16 and bfloat16 are loads, stores, selections and casts."""
    return ExpressionMap(_widened)


def _widened(node: Expression) -> Expression:
    match node:
        case Unary(operator, value) if value.type.dtype in SMALL_FLOATS:
            return Cast(Unary(operator, Cast(value, "float32")), value.type.dtype)
        case Binary(operator, left, right) if left.type.dtype in SMALL_FLOATS:
            wide = Binary(operator, Cast(left, "float32"), Cast(right, "float32"))
            return wide if operator in COMPARISONS else Cast(wide, left.type.dtype)
        case Intrinsic("fma", arguments, kind) if kind.dtype in SMALL_FLOATS:
            operands = tuple(Cast(argument, "float32") for argument in arguments)
            return Cast(Intrinsic("fma", operands, FLOAT32.with_lanes(kind.lanes)), kind.dtype)
    return node
