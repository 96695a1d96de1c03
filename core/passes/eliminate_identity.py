"""Nodes that hand on their input unchanged disappear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import all_nodes
from graft.core.operators.definition.facts import Shape
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import attribute_of, bypass, constant_of, has_trait, is_operator, is_view
from graft.core.shapes.symbolic_shapes import dimensions_of

NAMES = frozenset({
    "Identity", "Sum", "Max", "Min", "Mean", "Concat", "Dropout", "Cast", "CastLike", "Expand", "Transpose", "Pad",
    "Slice", "Tile", "Mul", "Div", "Sub", "Add",
})  # fmt: skip
"""The operators that may hand on their input, beside views."""


@dataclass(frozen=True)
class EliminateIdentity:
    """Remove nodes that compute exactly their first input, and whose other results (Dropout's mask) nobody reads.

    1. Identity, and Sum, Max, Min, Mean, Concat of one input
    2. Dropout in inference
    3. Cast and CastLike to the type that the input has
    4. views (Reshape, Flatten, Squeeze, Unsqueeze) and Expand to the shape that the input has
    5. Transpose in the order of the axes, or that moves only axes of length 1
    6. Pad by nothing, Slice of everything, Tile by one
    7. Mul and Div by 1, Sub of 0, Add of an integer 0 (a float -0.0 + 0 would change)
    """

    name: ClassVar[str] = "eliminate-identity"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        changed = False
        for node in list(all_nodes(model.graph)):
            is_possible = node.op_type in NAMES or has_trait(node, Trait.VIEW)
            is_possible &= not any(one.uses() or one.is_graph_output() for one in node.outputs[1:])
            if is_possible and node.inputs and node.inputs[0] is not None and _is_identity(node):
                changed |= bypass(node)
        return changed


def _is_identity(node: ir.Node) -> bool:
    source, output = node.inputs[0], node.outputs[0]
    assert source is not None, f"node '{node.name}' has no input"
    if is_operator(node, "Identity"):  # case 1
        return True
    if is_operator(node, "Sum", "Max", "Min", "Mean", "Concat"):
        return len(node.inputs) == 1
    if is_operator(node, "Dropout"):  # case 2
        return _is_inference(node)
    if is_operator(node, "Cast", "CastLike"):  # case 3
        return source.dtype is not None and source.dtype == output.dtype
    shape = dimensions_of(source)
    if shape is None or None in shape or shape != dimensions_of(output):
        return False
    if is_view(node) or is_operator(node, "Expand"):  # case 4
        return True
    if is_operator(node, "Transpose"):  # case 5
        return _keeps_order(node, shape)
    if is_operator(node, "Pad", "Slice", "Tile"):  # case 6
        return _takes_everything(node)
    return _is_neutral(node)  # case 7


def _is_inference(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = constant_of(node.inputs[2])
    return training is not None and not training.any()


def _keeps_order(node: ir.Node, shape: Shape) -> bool:
    order = attribute_of(node, "perm", tuple(reversed(range(len(shape)))))
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _takes_everything(node: ir.Node) -> bool:
    if node.op_type == "Slice":
        steps = constant_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else np.ones(1)
        return steps is not None and bool((steps == 1).all())
    amounts = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return amounts is not None and bool((amounts == (0 if node.op_type == "Pad" else 1)).all())


def _is_neutral(node: ir.Node) -> bool:
    if not is_operator(node, "Mul", "Div", "Sub", "Add"):
        return False
    operand, neutral = constant_of(node.inputs[1]), 1 if node.op_type in ("Mul", "Div") else 0
    if operand is None or operand.size == 0 or not bool((operand == neutral).all()):
        return False
    if node.op_type == "Sub":
        return not bool(np.signbit(operand).any())
    return node.op_type != "Add" or operand.dtype.kind in "iu"
