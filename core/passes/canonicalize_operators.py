"""One spelling for what ONNX can say in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.affine.expressions import Ranges
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import broadcast
from graft.core.operators.definition.shape_rules import broadcasted
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import is_operator, replace_node
from graft.core.shapes.symbolic_shapes import dimensions_of


@dataclass(frozen=True)
class CanonicalizeOperators(NodePass):
    """Rewrite operators into the form that patterns and backends look for.

    1. Sum of two becomes Add
    2. a constant operand of Add or Mul stands second
    3. an operand is not expanded that the other ones expand as far
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
        return is_sum or is_swapped or _read_unexpanded(node, rewriter.ranges)  # case 3


def _read_unexpanded(node: ir.Node, ranges: Ranges) -> bool:
    row, result = OPERATORS.get(node.op_type, node.domain), dimensions_of(node.outputs[0])
    # the last axes of a product's factors broadcast with nothing
    own = 2 if is_operator(node, "MatMul") else 0
    if result is None or not (own or (row is not None and row.shapes is broadcasted)):
        return False
    shapes, changed = [None if value is None else dimensions_of(value) for value in node.inputs], False
    if any(shape is not None and len(shape) < own for shape in shapes):
        return False
    for number, value in enumerate(node.inputs):
        source = None if value is None else value.producer()
        if source is None or not is_operator(source, "Expand") or source.inputs[0] is None:
            continue
        inner, outer = dimensions_of(source.inputs[0]), shapes[number]
        if inner is None or outer is None or len(inner) < own or inner[len(inner) - own :] != outer[len(outer) - own :]:
            continue
        others = [shape for place, shape in enumerate(shapes) if place != number]
        common = broadcast(*(None if one is None else one[: len(one) - own] for one in (inner, *others)), ranges=ranges)
        if common is not None and None not in common and common == tuple(result[: len(result) - own]):
            node.replace_input_with(number, source.inputs[0])
            shapes[number], changed = inner, True
    return changed


def _constant_first(node: ir.Node) -> bool:
    first, second = node.inputs
    if first is None or second is None:
        return False
    return first.const_value is not None and second.const_value is None
