"""The fused multiply-add as arithmetic, for machines without the instruction.

Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.
It is as exact as the instruction unless a product's error underflows (products below 2^-969 in float64) and takes
about thirty operations: for functions that must give the same bits everywhere (`Function.is_exact`).
"""

from __future__ import annotations

from graft.core.tensor_ir.arithmetic.exact_rounding import add_to_odd, sum_error
from graft.core.tensor_ir.ir import Binary, Expression, Intrinsic, Unary
from graft.core.tensor_ir.scalar_math import Value, select
from graft.core.tensor_ir.visit import ExpressionMap

_SPLIT = 2.0**27 + 1


def without_fused(node: Expression) -> Expression:
    """Return a fused multiply-add of float32 or float64 as other operations; any other node as it is."""
    if not isinstance(node, Intrinsic) or node.name != "fma":
        return node
    left, right, addend = map(Value, node.arguments)
    match node.type.dtype:
        case "float32":
            wide = left.cast("float64") * right.cast("float64")
            return add_to_odd(wide, addend.cast("float64")).cast("float32").expression
        case "float64":
            return _multiply_add(left, right, addend).expression
        case _:
            return node


def product_error(node: Expression) -> Expression:
    """Return ``fma(x, y, -(x * y))``, the error of a product, as other operations; any other node as it is.

    Rounded twice it would be 0. Other fused multiply-adds only save a rounding.
    """
    match node:
        case Intrinsic("fma", (left, right, Unary("neg", Binary("mul", first, second) as product))):
            if left is first and right is second and node.type.dtype == "float64":
                return _product_error(Value(left), Value(right), Value(product)).expression
    return node


def unfused(*, is_exact: bool) -> ExpressionMap:
    """Return the map for a machine without the instruction: every fused multiply-add, or only errors of products."""
    return ExpressionMap(without_fused if is_exact else product_error)


def _multiply_add(left: Value, right: Value, addend: Value) -> Value:
    product = left * right
    error = _product_error(left, right, product)
    low = addend + error
    high = product + low
    rest = add_to_odd(sum_error(addend, error, low), sum_error(product, low, high))
    # The parts of infinite and of very large numbers are NaN.
    return select(rest.equals(rest), high + rest, product + addend)


def _product_error(left: Value, right: Value, product: Value) -> Value:
    """Return ``left * right - product`` by halves of the factors' bits (Dekker)."""
    (first, second), (third, fourth) = _halves(left), _halves(right)
    return second * fourth - (((product - first * third) - second * third) - first * fourth)


def _halves(value: Value) -> tuple[Value, Value]:
    scaled = value * _SPLIT
    high = scaled - (scaled - value)
    return high, value - high
