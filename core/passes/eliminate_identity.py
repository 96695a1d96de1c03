"""Nodes that hand on their input unchanged disappear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Facts
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import bypass, is_view
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.core.types import CUSTOM_DOMAIN


@dataclass(frozen=True)
class EliminateIdentity(NodePass):
    """Remove nodes that compute exactly their first input, and whose other results (Dropout's mask) nobody reads.

    Which do, their rows say (`Operator.identity`).
    """

    name: ClassVar[str] = "eliminate-identity"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        is_unread = not any(one.uses() or one.is_graph_output() for one in node.outputs[1:])
        is_copy = is_unread and bool(node.inputs) and node.inputs[0] is not None and _is_identity(node)
        return is_copy and bypass(node)


def _is_identity(node: ir.Node) -> bool:
    row = OPERATORS.of(view := NodeView(node))
    # in the domain of custom datatypes a value's type and a constant's elements are codes: there views alone are known
    rule = None if row is None or node.domain == CUSTOM_DOMAIN else row.identity
    if rule is None and not is_view(node):
        return False
    shapes = [None if value is None else dimensions_of(value) for value in node.inputs]
    facts = Facts(view, shapes, [None] * len(shapes), result=dimensions_of(node.outputs[0]))
    return facts.keeps_shape if rule is None else rule(facts)
