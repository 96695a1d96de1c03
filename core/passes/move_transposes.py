"""Transpositions move behind what does not care about the order of axes, so that they meet and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.passes.rewrite import Names, attribute_of, is_operator, origin_of, replace_node, sole_use

ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean")
"""Operators of several inputs, broadcast against each other, that are computed in any order of axes."""


@dataclass(frozen=True)
class MoveTransposes:
    """Compute on tensors before they are transposed; there are never more transpositions than before.

    1. Transpose of a Transpose becomes one
    2. an elementwise operator whose inputs are all transposed alike, one of them for it alone, is computed before, and
       its result transposed: the residual stream of a network that normalises channels keeps them last
    """

    name: ClassVar[str] = "move-transposes"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        changed, names = False, Names(model)
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            order = _order(node)
            before = None if order is None else _order(_producer(node.inputs[0]))
            if order is not None and before is not None:  # case 1
                _merge(node, [before[axis] for axis in order])
                changed = True
            elif is_operator(node, *ELEMENTWISE) and (common := _common_order(node)) is not None:  # case 2
                _compute_before(node, common, names)
                changed = True
        return changed


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _order(node: ir.Node | None) -> list[int] | None:
    """Return the order of axes that a node brings about, None if it is no Transpose or of unknown rank."""
    if node is None or not is_operator(node, "Transpose") or node.inputs[0] is None:
        return None
    given = attribute_of(node, "perm", None)
    if given is None and node.inputs[0].shape is not None:
        given = reversed(range(len(node.inputs[0].shape)))
    return None if given is None else [int(axis) for axis in given]


def _merge(node: ir.Node, order: Sequence[int]) -> None:
    first = _producer(node.inputs[0])
    assert first is not None, f"node '{node.name}' follows no other"
    replace_node(node, "Transpose", [first.inputs[0]], {"perm": list(order)}, [first])


def _common_order(node: ir.Node) -> list[int] | None:
    """Return the order in which all inputs of a node are transposed; None if they are not, or nothing is saved."""
    producers = [_producer(value) for value in node.inputs]
    orders = [_order(producer) for producer in producers]
    if len(orders) < 2 or orders[0] is None or any(order != orders[0] for order in orders):
        return None
    saved = any(value is not None and sole_use(value) for value in node.inputs)
    known = node.outputs[0].shape is not None and node.outputs[0].dtype is not None
    return orders[0] if saved and known else None


def _compute_before(node: ir.Node, order: Sequence[int], names: Names) -> None:
    graph, output = node.graph, node.outputs[0]
    assert graph is not None, f"node '{node.name}' is in no graph"
    assert output.shape is not None, f"node '{node.name}' gives a tensor of unknown shape"
    sources = [producer.inputs[0] for value in node.inputs if (producer := _producer(value)) is not None]
    before = ir.node(node.op_type, sources, name=names.fresh(f"{node.name}_before"))
    before.metadata_props.update(origin_of(node))
    graph.insert_before(node, before)
    result = before.outputs[0]
    result.name = names.fresh(f"{output.name}_before")
    result.type = output.type
    result.shape = ir.Shape([output.shape[list(order).index(axis)] for axis in range(len(order))])
    replace_node(node, "Transpose", [result], {"perm": list(order)}, [before])
