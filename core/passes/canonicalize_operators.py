"""One spelling for what ONNX can say in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import is_operator, replace_node


@dataclass(frozen=True)
class CanonicalizeOperators(NodePass):
    """Rewrite operators into the form that patterns and backends look for.

    1. Sum of two becomes Add
    2. a constant operand of Add or Mul stands second
    """

    name: ClassVar[str] = "canonicalize-operators"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        is_sum = is_operator(node, "Sum") and len(node.inputs) == 2
        if is_sum:  # case 1
            node = replace_node(node, "Add", node.inputs)
        is_swapped = is_operator(node, "Add", "Mul") and _constant_first(node)
        if is_swapped:  # case 2
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
        return is_sum or is_swapped


def _constant_first(node: ir.Node) -> bool:
    first, second = node.inputs
    if first is None or second is None:
        return False
    return first.const_value is not None and second.const_value is None
