"""What does not depend on the inputs, computed when the model is compiled: subgraphs that are compiled and run once.

The graph pass `FoldConstants` computes single operators of little work, in Python. What it leaves (standardised
weights, resized position embeddings, tables of products) is compiled by the backends that take whatever others leave
and run here, so that the constants have the very bits that a run would have computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import all_graphs
from graft.core.graph.view import NodeView, ValueView, constant_tensor, is_packed
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.cost import elements, size
from graft.core.operators.definition.table import Trait
from graft.core.passes.pipeline import RECORD
from graft.core.rewriting.fold_constants import put_constants
from graft.core.rewriting.node_rewrite import has_trait
from graft.core.types import is_custom
from graft.errors import GraftError

Evaluate = Callable[[ir.Model], Mapping[str, np.ndarray]]
"""Compiles and runs a model without inputs; raises GraftError where that fails."""

log = logging.getLogger("graft.compiler.constant_subgraphs")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the constants of one graph may take: bytes of all values together, and operations.

    ``elements`` bounds the operators whose number of operations nobody states.
    """

    bytes: int = 64 << 20
    flops: int = 1 << 31
    elements: int = 1 << 14


def fold_constant_subgraphs(model: ir.Model, evaluate: Evaluate, bounds: Bounds | None = None) -> bool:
    """Compute in place what depends on constants alone, in bodies too; return whether there was such.

    Bytes may also be as many as those of the constants that are read. DequantizeLinear stays, for backends look for
    quantised weights, and so does what `evaluate` cannot compute: it fails where it runs, if it runs.
    """
    changed = False
    for graph in list(all_graphs(model)):
        nodes = _constant_nodes(graph, bounds or Bounds())
        if not nodes:
            continue
        try:
            results = evaluate(_model_of(nodes, model))
        except GraftError as error:
            log.debug("constants of graph '%s' are left for the run: %s", graph.name, error)
            continue
        for node in reversed(nodes):
            arrays = [results.get(value.name or "") for value in node.outputs]
            if all(one is not None for one in arrays):
                put_constants(graph, node, [one for one in arrays if one is not None])
            else:
                graph.remove(node, safe=True)
        changed = True
    return changed


def _constant_nodes(graph: ir.Graph, bounds: Bounds) -> list[ir.Node]:
    """Return nodes in order that depend on constants alone, as many as the bounds have room for."""
    known: set[ir.Value] = set()
    read: set[ir.Value] = set()
    nodes: list[ir.Node] = []
    taken = flops = 0
    for node in graph:
        sources = [value for value in node.inputs if value is not None]
        if not all(one in known or constant_tensor(one) is not None for one in sources) or not _is_foldable(node):
            continue
        needed = {one for one in sources if one not in known}
        room = max(bounds.bytes, sum(size(ValueView(one)) for one in read | needed))
        more, work = sum(size(ValueView(one)) for one in node.outputs), _flops(node, bounds)
        if work is None or taken + more > room or flops + work > bounds.flops:
            continue
        nodes.append(node)
        known.update(node.outputs)
        read |= needed
        taken, flops = taken + more, flops + work
    return nodes


def _is_foldable(node: ir.Node) -> bool:
    """Whether a node may be computed here if its inputs are constant: all that it gives is numbers of a known shape."""
    if node.domain not in ("", "ai.onnx") or node.op_type in ("Constant", "DequantizeLinear", "Dropout"):
        return False
    if has_trait(node, Trait.NONDETERMINISTIC) or any(
        one.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for one in node.attributes.values()
    ):
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.name and not value.is_graph_output() for value in node.outputs) and all(map(_is_plain, values))


def _is_plain(value: ir.Value) -> bool:
    custom = is_custom(getattr(value.type, "denotation", None) or "")
    return not custom and not is_packed(value) and bool(value.dtype) and ValueView(value).static_shape is not None


def _flops(node: ir.Node, bounds: Bounds) -> int | None:
    """Return the operations of a node, None where nobody says how many and there are too many elements to try."""
    view = NodeView(node)
    operator = OPERATORS.of(view)
    if operator is not None and operator.cost is not None:
        return operator.cost(view).flops
    count = sum(map(elements, view.inputs)) + sum(map(elements, view.outputs))
    return count if count <= bounds.elements else None


def _model_of(nodes: list[ir.Node], model: ir.Model) -> ir.Model:
    """Return a model of copies of the nodes, whose outputs are those of nodes that others read."""
    copies: dict[ir.Value, ir.Value] = {}
    constants: list[ir.Value] = []
    made: list[ir.Node] = []
    inside = set(nodes)
    outputs: list[ir.Value] = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in copies:
                copies[value] = _copy(value, constant_tensor(value))
                constants.append(copies[value])
        copies |= {value: _copy(value) for value in node.outputs}
        made.append(
            ir.Node(
                node.domain,
                node.op_type,
                [None if one is None else copies[one] for one in node.inputs],
                list(node.attributes.values()),
                outputs=[copies[one] for one in node.outputs],
                name=node.name,
            )
        )
        if any(use.node not in inside for one in node.outputs for use in one.uses()):
            outputs += [copies[one] for one in node.outputs]
    graph = ir.Graph(
        [], outputs, nodes=made, initializers=constants, name="constants", opset_imports=dict(model.opset_imports)
    )
    small = ir.Model(graph, ir_version=model.ir_version)
    small.meta[RECORD] = []  # it has been loaded: as a part of the model
    return small


def _copy(value: ir.Value, tensor: ir.TensorProtocol | None = None) -> ir.Value:
    return ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=tensor)
