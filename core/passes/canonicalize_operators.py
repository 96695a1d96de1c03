"""One spelling for what ONNX can say in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Shape, broadcast
from graft.core.operators.definition.shape_rules import broadcasted
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import (
    add_constant,
    constant_of,
    graph_of,
    has_trait,
    is_operator,
    origin_of,
    replace_node,
)
from graft.core.shapes.symbolic_shapes import dimensions_of

MOST = 128
"""Operands of one operator."""


@dataclass(frozen=True)
class CanonicalizeOperators(NodePass):
    """Rewrite operators into the form that patterns and backends look for.

    1. Sum of two becomes Add
    2. a constant operand of Add or Mul stands second
    3. an operand is not expanded that the other ones expand as far
    4. nor is a constant factor that is the same for all products of a batch: it is one matrix
    5. what joins more than `MOST` operands joins groups of them first: its kernel would be as deep as they are many
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
        return is_sum or is_swapped or _read_unexpanded(node, rewriter) or _in_groups(node, rewriter)


def _in_groups(node: ir.Node, rewriter: Rewriter) -> bool:  # case 5
    joins = has_trait(node, Trait.JOINING) or is_operator(node, "Sum", "Max", "Min")
    if not joins or len(node.inputs) <= MOST:
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


def _read_unexpanded(node: ir.Node, rewriter: Rewriter) -> bool:  # cases 3 and 4
    row, result = OPERATORS.get(node.op_type, node.domain), dimensions_of(node.outputs[0])
    # the last axes of a product's factors broadcast with nothing
    own = 2 if is_operator(node, "MatMul") else 0
    if result is None or not (own or (row is not None and row.shapes is broadcasted)):
        return False
    shapes, changed = [None if value is None else dimensions_of(value) for value in node.inputs], False
    if any(shape is not None and len(shape) < own for shape in shapes):
        return False
    for number, value in enumerate(node.inputs):
        inner, outer = None if value is None else _inner_shape(value, own), shapes[number]
        if inner is None or outer is None or len(inner) < own or inner[len(inner) - own :] != outer[len(outer) - own :]:
            continue
        operands = [*shapes[:number], inner, *shapes[number + 1 :]]
        batches = (None if one is None else one[: len(one) - own] for one in operands)
        common = broadcast(*batches, ranges=rewriter.ranges)
        if common is not None and None not in common and common == tuple(result[: len(result) - own]):
            assert value is not None, f"input {number} of '{node.name}' has a shape and is none"
            node.replace_input_with(number, _inner(value, rewriter))
            shapes[number], changed = inner, True
    return changed


def _inner_shape(value: ir.Value, own: int) -> Shape | None:
    """Return the shape of what is expanded to a value; None if nothing is."""
    source = value.producer()
    if source is not None:
        inner = source.inputs[0] if is_operator(source, "Expand") else None
        return None if inner is None else dimensions_of(inner)
    array = constant_of(value) if own and len(value.shape or ()) > own else None
    return None if array is None or _common_matrix(array) is None else array.shape[-own:]


def _common_matrix(array: np.ndarray) -> np.ndarray | None:
    """Return the matrix that all matrices of an array are; None if they differ or there is none."""
    matrices = array.reshape(-1, *array.shape[-2:])
    is_common = len(matrices) > 0 and all(np.array_equal(matrices[0], one) for one in matrices[1:])
    return matrices[0] if is_common else None


def _inner(value: ir.Value, rewriter: Rewriter) -> ir.Value | None:
    source = value.producer()
    if source is not None:
        return source.inputs[0]
    array, graph = constant_of(value), value.graph
    matrix = None if array is None else _common_matrix(array)
    assert isinstance(graph, ir.Graph) and matrix is not None, f"'{value.name}' is no constant of equal matrices"
    return add_constant(graph, rewriter.names.fresh(f"{value.name}_matrix"), matrix)


def _constant_first(node: ir.Node) -> bool:
    first, second = node.inputs
    if first is None or second is None:
        return False
    return first.const_value is not None and second.const_value is None
