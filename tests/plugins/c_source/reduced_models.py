"""The model suite at reduced size: of layers that repeat each other, one, and what is left as it is.

A model that is a chain of like layers (the blocks of a Transformer, of a residual network) has few kernels; running one
layer of each kind compiles and computes every one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache

import onnx_ir as ir

import graft
from benchmarks.zoo import path_of
from examples.models.seed_weights import SeedWeights
from graft.core.graph.view import ValueView
from graft.core.passes.eliminate_dead_code import EliminateDeadCode


@cache
def reduced(name: str, seed: int = 0) -> ir.Model:
    """Return a model of the zoo with one layer of each kind and weights from ``seed``; ask for a clone to change it."""
    model = graft.load(path_of(name))
    while _drop_a_layer(model.graph):
        EliminateDeadCode().run(model)
    SeedWeights(seed).run(model)
    return model


def _drop_a_layer(graph: ir.Graph) -> bool:
    """Let what follows a layer read the input of that, where the layer before it is like it; return whether one was.

    A layer is a run of nodes between two points of the graph that differ in one value, of the same type.
    """
    nodes = _computed(graph)
    kinds = [_kind(node) for node in nodes]
    alive = _alive(graph, nodes)
    for length in range(2, len(nodes) // 2 + 1):
        for begin in range(length, len(nodes) - length + 1):
            if kinds[begin] != kinds[begin - length]:
                continue
            if kinds[begin : begin + length] != kinds[begin - length : begin]:
                continue
            gone, new = alive[begin] - alive[begin + length], alive[begin + length] - alive[begin]
            if len(gone) == len(new) == 1 and _type(*gone) == _type(*new):
                ir.convenience.replace_all_uses_with(*new, *gone, replace_graph_outputs=True)
                return True
    return False


def _computed(graph: ir.Graph) -> list[ir.Node]:
    """Return the nodes that depend on the graph's inputs, in order."""
    known, found = set(graph.inputs) - set(graph.initializers.values()), []
    for node in graph:
        if known.intersection(node.inputs):
            known.update(node.outputs)
            found.append(node)
    return found


def _alive(graph: ir.Graph, nodes: Sequence[ir.Node]) -> list[set[ir.Value]]:
    """Return for each node, and for the end, which inputs and results of earlier nodes are still read from there on."""
    order = {value: number for number, node in enumerate(nodes) for value in node.outputs}
    order |= dict.fromkeys(graph.inputs, -1)
    alive = [{value for value in graph.outputs if order.get(value, -1) < len(nodes)}]
    for number in reversed(range(len(nodes))):
        read = {value for value in nodes[number].inputs if value in order}
        alive.append((alive[-1] | read) - set(nodes[number].outputs))
    return alive[::-1]


def _kind(node: ir.Node) -> Hashable:
    """Return what two nodes have in common that do the same to other values."""
    attributes = tuple(sorted(str(attribute) for attribute in node.attributes.values()))
    return (
        node.domain,
        node.op_type,
        attributes,
        tuple(None if value is None else _type(value) for value in node.inputs),
    )


def _type(value: ir.Value) -> Hashable:
    view = ValueView(value)
    return view.dtype, view.static_shape
