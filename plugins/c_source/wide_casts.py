"""Casts of more lanes than a register holds, by parts that are registers.

GCC takes operations on vectors that no register holds apart into scalars: a rounding of 32 float32 to bfloat16 becomes
some 500 instructions, and a kernel with a hundred of them takes long to compile and to run.
"""

from __future__ import annotations

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import ExpressionMap
from graft.core.types import INT64, element_bits

REGISTER_BITS = 512
"""Of the largest vector register that a machine has."""
DEEPEST = 16
"""How many operations a part is computed by; what is below them is computed whole and cut."""


def casts_by_parts() -> ExpressionMap:
    """Return the map: a cast to smaller elements, of more than a register, joins casts of what a register holds."""
    return ExpressionMap(_by_parts)


def _by_parts(node: ir.Expression) -> ir.Expression:
    match node:
        case ir.Cast(value, _) | ir.Intrinsic("round_bf16", (value,)):
            lanes = value.type.lanes
            if lanes * element_bits(value.type.dtype) <= REGISTER_BITS:
                return node
            if element_bits(node.type.dtype) >= element_bits(value.type.dtype):
                return node
            half = lanes // 2
            halves = tuple(_by_parts(_part(node, first, half, 0)) for first in (0, half))
            return ir.Shuffle(halves, tuple(range(lanes)))
    return node


def _part(node: ir.Expression, first: int, lanes: int, depth: int) -> ir.Expression:
    """Return some lanes of an expression, computed by themselves."""

    def part(operand: ir.Expression) -> ir.Expression:
        return operand if operand.type.lanes == 1 else _part(operand, first, lanes, depth + 1)

    match node:
        case ir.Constant(value, kind):
            return ir.Constant(value, kind.with_lanes(lanes))
        case ir.Broadcast(value, _):
            return ir.Broadcast(value, lanes)
        case ir.Ramp(base, stride, _):
            start = ir.Binary("add", base, ir.Constant(first * stride, INT64)) if first else base
            return ir.Ramp(start, stride, lanes)
        case _ if depth >= DEEPEST:
            pass
        case ir.Load(buffer, indices, mask):
            return ir.Load(buffer, tuple(map(part, indices)), None if mask is None else part(mask))
        case ir.Unary(operator, value):
            return ir.Unary(operator, part(value))
        case ir.Binary(operator, left, right):
            return ir.Binary(operator, part(left), part(right))
        case ir.Select(condition, on_true, on_false):
            return ir.Select(part(condition), part(on_true), part(on_false))
        case ir.Cast(value, dtype):
            return ir.Cast(part(value), dtype)
        case ir.Intrinsic("round_bf16" | "fma" | "muladd" as name, arguments, kind):
            return ir.Intrinsic(name, tuple(map(part, arguments)), kind.with_lanes(lanes))
    return ir.Shuffle((node,), tuple(range(first, first + lanes)))
