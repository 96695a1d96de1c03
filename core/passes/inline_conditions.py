"""An If or Where whose condition is known gives way to what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import constant_of, is_operator, known_shape, replace_node


@dataclass(frozen=True)
class InlineConditions(NodePass):
    """Put what a constant condition chooses in the place of the operator that asks it.

    1. the nodes of a branch of If
    2. an operand of Where that has the shape of the result and is chosen for all elements
    """

    name: ClassVar[str] = "inline-conditions"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        graph = node.graph
        condition = constant_of(node.inputs[0]) if is_operator(node, "If", "Where") else None
        if condition is None or not isinstance(graph, ir.Graph):
            return False
        if is_operator(node, "Where"):  # case 2
            return condition.size > 0 and condition.min() == condition.max() and _choose(node, bool(condition.flat[0]))
        if condition.size != 1:
            return False
        _inline(graph, node, "then_branch" if condition.item() else "else_branch", rewriter.names)  # case 1
        return True


def _choose(node: ir.Node, first: bool) -> bool:
    taken, result = node.inputs[1 if first else 2], node.outputs[0]
    has_its_shape = known_shape(taken) is not None and known_shape(taken) == known_shape(result)
    if has_its_shape:
        replace_node(node, "Identity", [taken])
    return has_its_shape


def _inline(graph: ir.Graph, node: ir.Node, taken: str, names: Names) -> None:
    branch = node.attributes[taken].as_graph()
    results, constants, nodes = list(branch.outputs), list(branch.initializers.values()), list(branch)
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    for value in (*constants, *(value for inner in nodes for value in inner.outputs)):
        if value.name:
            value.name = names.fresh(value.name)
    for value in constants:
        graph.initializers.add(value)
    graph.insert_before(node, nodes)
    for old, new in zip(node.outputs, results, strict=True):
        identity = ir.node("Identity", [new], name=names.fresh(f"{node.name}_{taken}"))
        graph.insert_before(node, identity)
        name, result = old.name, identity.outputs[0]
        result.type, result.shape = old.type or new.type, old.shape if old.shape is not None else new.shape
        ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
        old.name, result.name = None, name
    graph.remove(node, safe=True)
