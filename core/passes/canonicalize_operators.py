"""One spelling for what ONNX can say in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.shape_rules import broadcasted
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import graph_of, is_operator, origin_of, replace_node

MOST = 128
"""Operands of one operator."""


@dataclass(frozen=True)
class CanonicalizeOperators(NodePass):
    """Rewrite operators into the form that patterns and backends look for.

    1. Sum of two becomes Add
    2. a constant operand of Add or Mul stands second
    3. an operand is not expanded that the other ones expand as far
    4. what joins more than `MOST` operands joins groups of them first: its kernel would be as deep as they are many
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
        return is_sum or is_swapped or _read_unexpanded(node) or _in_groups(node, rewriter)  # cases 3 and 4


def _in_groups(node: ir.Node, rewriter: Rewriter) -> bool:
    if not is_operator(node, "Sum", "Max", "Min", "Concat") or len(node.inputs) <= MOST:
        return False
    groups = [node.inputs[begin : begin + MOST] for begin in range(0, len(node.inputs), MOST)]
    parts = []
    for number, group in enumerate(groups):
        name = rewriter.names.fresh(f"{node.name}/{number}")
        part = ir.node(node.op_type, group, attributes=dict(node.attributes), name=name)
        part.metadata_props.update(origin_of(node))
        part.outputs[0].name, part.outputs[0].type = rewriter.names.fresh(f"{name}_joined"), node.outputs[0].type
        parts.append(part)
    graph_of(node).insert_before(node, parts)
    replace_node(node, node.op_type, [part.outputs[0] for part in parts], dict(node.attributes))
    return True


def _read_unexpanded(node: ir.Node) -> bool:
    row, result = OPERATORS.get(node.op_type, node.domain), ValueView(node.outputs[0]).static_shape
    if row is None or row.shapes is not broadcasted or result is None:
        return False
    shapes, changed = [None if value is None else ValueView(value).static_shape for value in node.inputs], False
    for number, value in enumerate(node.inputs):
        source = None if value is None else value.producer()
        if source is None or not is_operator(source, "Expand") or source.inputs[0] is None:
            continue
        inner = [*shapes[:number], ValueView(source.inputs[0]).static_shape, *shapes[number + 1 :]]
        known = [shape for shape in inner if shape is not None]
        if len(known) == len(inner) and np.broadcast_shapes(*known) == result:
            node.replace_input_with(number, source.inputs[0])
            shapes, changed = inner, True
    return changed


def _constant_first(node: ir.Node) -> bool:
    first, second = node.inputs
    if first is None or second is None:
        return False
    return first.const_value is not None and second.const_value is None
