"""What an operator and a boundary cost, as far as the operator table and the shapes say."""

from __future__ import annotations

import math

import onnx_ir as ir

from graft.core.operators.table import OperatorTable
from graft.core.types import element_bits
from graft.core.view import NodeView, ValueView

UNKNOWN_BYTES = 1 << 20
"""What a value of unknown shape is taken to have."""


def flops(node: NodeView, operators: OperatorTable) -> int:
    """Return the floating-point operations of a node, 0 where the table has no cost or shapes are not static."""
    operator = operators.of(node)
    if operator is None or operator.cost is None:
        return 0
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    if any(value.static_shape is None for value in values):
        return 0
    return operator.cost(node).flops


def value_bytes(value: ir.Value) -> int:
    """Return the bytes of a value; `UNKNOWN_BYTES` where its shape or type is not known."""
    view = ValueView(value)
    shape = view.static_shape
    if shape is None or not view.dtype:
        return UNKNOWN_BYTES
    return math.prod(shape) * element_bits(view.dtype) // 8 if view.dtype != "string" else UNKNOWN_BYTES
