"""What an operator and a boundary cost, as far as the operator table and the shapes say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from graft.core.model.view import NodeView, ValueView
from graft.core.operators.table import Cost, OperatorTable
from graft.core.types import element_bits

UNKNOWN_BYTES = 1 << 20
"""What a value of unknown shape is taken to have."""


class Work:
    """Floating-point operations of nodes, remembered for nodes that differ in nothing that counts."""

    def __init__(self, operators: OperatorTable) -> None:
        self.operators = operators
        self._known: dict[object, int] = {}

    def flops(self, view: NodeView) -> int:
        """Return the floating-point operations of a node, 0 where the table has no cost or shapes are unknown."""
        node = view.node
        if node.attributes:
            return self._count(view)
        shapes = tuple(
            None if value is None or value.shape is None else tuple(value.shape)
            for value in (*node.inputs, *node.outputs)
        )
        key = (node.domain, node.op_type, shapes)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(view)
        return known

    def _count(self, view: NodeView) -> int:
        operator = self.operators.of(view)
        known = all(value is None or value.static_shape is not None for value in (*view.inputs, *view.outputs))
        return operator.cost(view).flops if known and operator is not None and operator.cost is not None else 0


def kernel_cost(nodes: Sequence[NodeView], work: Work) -> Cost:
    """Return the cost of nodes that share a kernel: what the last one writes and the others read from outside moves."""
    made = {value for view in nodes for value in view.node.outputs}
    read = {value for view in nodes for value in view.node.inputs if value is not None and value not in made}
    moved = sum(value_bytes(value) for value in (*read, *nodes[-1].node.outputs) if value.name)
    return Cost(sum(map(work.flops, nodes)), moved)


def value_bytes(value: ir.Value) -> int:
    """Return the bytes of a value; `UNKNOWN_BYTES` where its shape or type is not known."""
    view = ValueView(value)
    shape = view.static_shape
    if shape is None or not view.dtype:
        return UNKNOWN_BYTES
    return math.prod(shape) * element_bits(view.dtype) // 8 if view.dtype != "string" else UNKNOWN_BYTES
