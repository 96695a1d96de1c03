"""Casts of more lanes than a register holds, by parts that are registers.

GCC takes operations on vectors that no register holds apart into scalars: a rounding of 32 float32 to bfloat16 becomes
some 500 instructions, and a kernel with a hundred of them takes long to compile and to run.
"""

from __future__ import annotations

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import ExpressionMap, children, in_lanes
from graft.core.types import INT64, element_bits

REGISTER_BITS = 512
"""Of the largest vector register that a machine has."""
DEEPEST = 16
"""How many operations a part is computed by; what is below them is computed whole and cut."""

_LANEWISE = frozenset({ir.Load, ir.Unary, ir.Binary, ir.Select, ir.Cast})
_BY_LANE = frozenset({"round_bf16", "fma", "muladd"})
"""What computes each lane from the same lane of its operands: expressions, and intrinsics."""


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
    by_lane = node.name in _BY_LANE if isinstance(node, ir.Intrinsic) else type(node) in _LANEWISE
    if by_lane and depth < DEEPEST:
        return in_lanes(node, tuple(map(part, children(node))), lanes)
    return ir.Shuffle((node,), tuple(range(first, first + lanes)))
