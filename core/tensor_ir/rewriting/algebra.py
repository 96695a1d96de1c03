"""Rules of algebra on single operations: constants folded, identities, what intervals decide."""

from __future__ import annotations

from operator import add, mul, sub

import numpy as np

from graft.core.affine.linear import Interval
from graft.core.tensor_ir import ir, numerics
from graft.core.tensor_ir.interpreting.machine_operations import pure
from graft.core.tensor_ir.visit import children, in_lanes
from graft.core.types import INT64, Type

_WHOLE = {"add": add, "sub": sub, "mul": mul}
"""What index arithmetic is mostly made of, and needs no NumPy unless it overflows."""
_FOLDED = (ir.Unary, ir.Binary, ir.Select, ir.Cast, ir.Bitcast)


def splat_value(expression: ir.Expression) -> int | float | bool | None:
    """Return the number of a constant or of its broadcast."""
    if isinstance(expression, ir.Broadcast):
        expression = expression.value
    return expression.value if isinstance(expression, ir.Constant) else None


def decide(operator: str, low: int, high: int) -> bool | None:
    """Return whether ``difference operator 0`` holds for all differences in the interval, or for none."""
    match operator:
        case "lt":
            return True if high < 0 else False if low >= 0 else None
        case "le":
            return True if high <= 0 else False if low > 0 else None
        case "gt":
            return True if low > 0 else False if high <= 0 else None
        case "ge":
            return True if low >= 0 else False if high < 0 else None
        case "eq" | "ne":
            equal = True if low == high == 0 else False if low > 0 or high < 0 else None
            return equal if equal is None or operator == "eq" else not equal
        case _:
            raise AssertionError(f"'{operator}' is not a comparison")


def binary_bounds(operator: str, left: Interval, right: Interval) -> Interval | None:
    """Return bounds of an int64 operation from bounds of its operands, None where there are none."""
    match operator:
        case "min":
            return min(left[0], right[0]), min(left[1], right[1])
        case "max":
            return max(left[0], right[0]), max(left[1], right[1])
        case "mul":
            ends = [a * b for a in left for b in right]
            return min(ends), max(ends)
        case "div" if right[0] == right[1] > 0:
            return tuple(abs(end) // right[0] * (1 if end >= 0 else -1) for end in left)  # type: ignore[return-value]
        case "mod" if right[0] == right[1] > 0:
            limit = right[0] - 1
            return max(-limit, min(left[0], 0)), min(limit, max(left[1], 0))
        case _:
            return None


def identity(operator: str, left: ir.Expression, right: ir.Expression) -> ir.Expression | None:
    """Return what ``left operator right`` is if one side makes it trivial, without touching any float's bits."""
    first, second = splat_value(left), splat_value(right)
    if left.type.dtype == "bool":
        if operator in ("and", "or") and first is None and second is None:
            return left if left is right else None
        known, other = (left, right) if first is not None else (right, left)
        if operator in ("and", "or") and splat_value(known) is not None:
            return other if bool(splat_value(known)) == (operator == "and") else known
        return None
    if (operator in ("mul", "div") and second == 1) or (operator == "sub" and second == 0 and not _negative(second)):
        return left
    if operator == "mul" and first == 1:
        return right
    if left.type.is_integer and operator == "add" and 0 in (first, second):
        return right if first == 0 else left
    if operator in ("min", "max") and left is right:
        return left
    return None


def _negative(value: int | float | bool) -> bool:
    return bool(np.signbit(float(value)))


def unbroadcast(expression: ir.Expression, operands: tuple[ir.Expression, ...]) -> ir.Expression | None:
    """Return the scalar operation if every operand is a broadcast."""
    scalars = tuple(operand.value for operand in operands if isinstance(operand, ir.Broadcast))
    if len(scalars) != len(operands):
        return None
    is_extern = isinstance(expression, ir.Intrinsic) and ":" in expression.name
    return None if is_extern else in_lanes(expression, scalars, 1)


def fold(expression: ir.Expression) -> ir.Expression:
    """Return the constant that an operation on constants gives, or the operation where it cannot be computed here."""
    operands = children(expression)
    if isinstance(expression, ir.Binary) and expression.operator in _WHOLE:
        left, right = operands
        if isinstance(left, ir.Constant) and isinstance(right, ir.Constant) and left.type == right.type == INT64:
            number = _WHOLE[expression.operator](int(left.value), int(right.value))
            if abs(number) < 1 << 63:
                return ir.Constant(number, INT64)
    types = [expression.type, *(operand.type for operand in operands)]
    if any(kind.is_custom or kind.lanes > 1 or kind.dtype.startswith(("float8", "complex")) for kind in types):
        return expression
    values = [
        numerics.constant(operand.value, operand.type.dtype) for operand in operands if isinstance(operand, ir.Constant)
    ]
    is_float = isinstance(expression, ir.Intrinsic) and expression.name in numerics.FLOAT_INTRINSICS
    if not is_float and not isinstance(expression, _FOLDED):
        return expression
    with np.errstate(all="ignore"):
        return constant_of(pure(expression)(*values), expression.type)


def constant_of(value: numerics.Array, kind: Type) -> ir.Constant:
    """Return the constant of a zero-dimensional array."""
    if kind.dtype == "bool":
        return ir.Constant(bool(value), kind)
    return ir.Constant(int(value) if kind.is_integer else float(value), kind)
