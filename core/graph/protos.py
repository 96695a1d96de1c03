"""Walks over a model as ONNX's messages, and how they name its nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto
from onnx.helper import get_attribute_value, make_tensor, make_tensor_type_proto

from graft.errors import ModelError

_HELD = {
    "value": 0, "value_int": TensorProto.INT64, "value_ints": TensorProto.INT64, "value_float": TensorProto.FLOAT,
    "value_floats": TensorProto.FLOAT,
}  # fmt: skip
"""What a Constant of numbers may hold, and of which type: that of a tensor is its own."""
GRAPH, LISTS = AttributeProto.GRAPH, (AttributeProto.GRAPHS, AttributeProto.UNDEFINED)
"""What holds graphs, or may: looked up once, for that is slow in a message's class."""


def canonical(domain: str) -> str:
    """Return the domain's short name: "" for ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def where_of(node: NodeProto) -> str:
    """``Conv (node 'conv1')``: how messages name a node."""
    return f"{node.op_type} (node '{node.name or next(iter(node.output), '')}')"


def fault_of(node: NodeProto, fault: str) -> ModelError:
    """Return the error that says what is wrong with a node."""
    return ModelError(f"{where_of(node)}: {fault}", node=node.name)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs among a node's attributes: branches and loop bodies."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        kind = attribute.type
        if kind == GRAPH:
            found.append(attribute.g)
        elif kind in LISTS:
            found.extend(attribute.graphs)
    return found


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from every_node(graph.node)


def nodes_of_model(proto: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes of a model: those of its graph, its functions and all subgraphs."""
    yield from every_node(proto.graph.node)
    for function in proto.functions:
        yield from every_node(function.node)


def every_graph(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those within it."""
    yield graph
    for node in graph.node:
        if node.attribute:
            for inner in subgraphs(node):
                yield from every_graph(inner)


def constants_of(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of a graph whose contents are at hand, by name."""
    found = {one.name: one for one in graph.initializer if one.data_location != TensorProto.EXTERNAL}
    for node in graph.node:
        if node.op_type == "Constant" and (tensor := held_by(node)) is not None:
            found[node.output[0]] = tensor
    return found


def held_by(node: NodeProto) -> TensorProto | None:
    """Return what a Constant of numbers holds, None for another."""
    attribute = next(iter(node.attribute), None)
    if attribute is None or attribute.name not in _HELD:
        return None
    value = get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return value
    return make_tensor(node.output[0], _HELD[attribute.name], np.shape(value), np.ravel(value).tolist())


def types_of(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types that a graph states of its values, by name."""
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type for value in values if value.HasField("type")}
    return types | {one.name: make_tensor_type_proto(one.data_type, list(one.dims)) for one in graph.initializer}


def put_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Let these be the nodes of a graph; its own may be among them."""
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def order(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Return ``nodes`` so that each stands after what it reads, else in the order given; raise on a cycle."""
    producers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    if all(producers.get(name, -1) < number for number, node in enumerate(nodes) for name in reads_of(node)):
        return list(nodes)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, node in enumerate(nodes):
        sorter.add(number, *(producers[name] for name in reads_of(node) if name in producers))
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(where_of(nodes[number]) for number in error.args[1])
        raise ModelError(f"the graph has a cycle: {names}") from None
    sequence: list[NodeProto] = []
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        number = heapq.heappop(ready)
        sequence.append(nodes[number])
        sorter.done(number)
        for successor in sorter.get_ready():
            heapq.heappush(ready, successor)
    return sequence


def reads_of(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, those that its subgraphs read from outside included."""
    yield from filter(None, node.input)
    yield from captures_of(node)


def captures_of(node: NodeProto) -> Iterator[str]:
    """Yield the names that the subgraphs of a node read from outside."""
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            yield from (name for name in reads_of(inner) if name not in own)
        yield from (value.name for value in graph.output if value.name not in own)
