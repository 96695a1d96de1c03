"""Constant nodes become initialisers, so that a constant has one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import is_operator


@dataclass(frozen=True)
class LiftConstants(NodePass):
    """Turn every Constant node into an initialiser of its graph, except where it is the graph's output."""

    name: ClassVar[str] = "lift-constants"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Turn a node into an initialiser."""
        if not is_operator(node, "Constant") or node.outputs[0].is_graph_output() or len(node.attributes) != 1:
            return False
        output, graph = node.outputs[0], node.graph
        tensor = ir.convenience.get_const_tensor(output)
        if tensor is None or not isinstance(graph, ir.Graph):
            return False
        lifted = ir.Value(
            name=output.name,
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
            metadata_props=dict(output.metadata_props),
        )
        lifted.meta.update(output.meta)
        graph.register_initializer(lifted)
        output.replace_all_uses_with(lifted)
        graph.remove(node, safe=True)
        return True
