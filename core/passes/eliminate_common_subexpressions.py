"""Two nodes that compute the same become one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.traversal import all_graphs
from graft.core.operators.definition.adjoint import ANEW
from graft.core.operators.definition.index_bounds import FROM_FRONT
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import has_trait, is_operator, is_recomputed, origin_of

SMALL_ELEMENTS = 64
"""Initialisers up to this size are compared by contents."""


@dataclass(frozen=True)
class EliminateCommonSubexpressions:
    """Merge equal nodes and equal small initialisers of one graph.

    Kept apart: nodes with subgraphs, operators that draw random numbers (and Dropout in training), a node all of
    whose outputs are outputs of the graph, and one that computes again, to save memory, what another has computed.
    """

    name: ClassVar[str] = "eliminate-common-subexpressions"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        changed = False
        for graph in list(all_graphs(model)):
            changed |= _merge_constants(graph)
            changed |= _merge_nodes(graph)
        return changed


def _merge_constants(graph: ir.Graph) -> bool:
    seen: dict[Hashable, ir.Value] = {}
    changed = False
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.size > SMALL_ELEMENTS or tensor.dtype is ir.DataType.STRING:
            continue
        first = seen.setdefault((tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()), value)
        if first is not value and value.uses() and not value.is_graph_output():
            ir.convenience.replace_all_uses_with(value, first)
            changed = True
    return changed


def _merge_nodes(graph: ir.Graph) -> bool:
    seen: dict[Hashable, ir.Node] = {}
    changed = False
    for node in list(graph):
        key = _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is node or any(value.is_graph_output() for value in node.outputs):
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):
            ir.convenience.replace_all_uses_with(old, new)
        first.metadata_props.update(origin_of(first, node))
        graph.remove(node, safe=True)
        changed = True
    return changed


def _key(node: ir.Node) -> Hashable:
    """Return what two equal nodes have in common, None for a node that must not be merged."""
    training = is_operator(node, "Dropout") and len(node.inputs) > 2 and node.inputs[2] is not None
    if has_trait(node, Trait.NONDETERMINISTIC) or training:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.data.items()):
        contents = _contents(attribute)
        if contents is None:
            return None
        attributes.append((name, attribute.type, contents))
    used = tuple(bool(value.name) for value in node.outputs)
    marks = is_recomputed(node), FROM_FRONT in node.metadata_props, ANEW in node.metadata_props
    return (node.domain, node.op_type, node.overload, *marks, used, tuple(map(id, node.inputs)), tuple(attributes))


def _contents(attribute: ir.Attr) -> Hashable:
    simple = (
        ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING,
        ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS,
    )  # fmt: skip
    return repr(attribute.value) if attribute.type in simple and not attribute.is_ref() else None
