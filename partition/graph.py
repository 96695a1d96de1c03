"""A graph by numbers: nodes, their neighbours and unique names.

Everything that decides about placement works on numbers and never on the model, so nothing is changed until
`PartitionGraph` builds the result. Numbers follow the graph's own order (made topological where it is not); a
decision that needs an order takes `canonical`, which depends on structure and names alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import NodeView, is_packed
from graft.core.shapes.shape_arithmetic import shape_arithmetic
from graft.errors import ModelError
from graft.partition.region import COMPOSITE_DOMAIN, REGION_DOMAIN

RUNTIME = "runtime"
"""The placement of what the executor does itself: control flow, and arithmetic of shapes."""
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""The operators with bodies that the executor runs; others with bodies go to a backend, whole."""


@dataclass(slots=True)
class IndexedGraph:
    """A graph (or the body of a control-flow node) with its nodes numbered in topological order."""

    graph: ir.Graph
    nodes: list[ir.Node]
    names: list[str]
    """A name for every node, unique in the model; subgraphs' nodes count."""
    predecessors: list[list[int]]
    successors: list[list[int]]
    number: dict[ir.Node, int]
    captured: dict[int, tuple[ir.Value, ...]]
    """Values of outer graphs that a node's bodies read, for nodes that have bodies."""
    views: list[NodeView] = field(default_factory=list)
    arithmetic: frozenset[int] = frozenset()
    """The nodes of a main graph that compute with shapes of its inputs alone, which the runtime does itself."""

    def reads(self, index: int) -> Iterator[ir.Value]:
        """Yield the values that a node reads, those that its bodies capture included."""
        for value in self.nodes[index].inputs:
            if value is not None:
                yield value
        yield from self.captured.get(index, ())

    def canonical(self) -> list[int]:
        """Return the nodes in an order that is topological and independent of numbering: by depth, then by name."""
        depth = [0] * len(self.nodes)
        for index, before in enumerate(self.predecessors):
            for other in before:
                if depth[other] >= depth[index]:
                    depth[index] = depth[other] + 1
        names = self.names
        return sorted(range(len(depth)), key=lambda index: (depth[index], names[index]))


@dataclass(frozen=True, slots=True)
class IndexedTree:
    """A graph by numbers, and the bodies of its control-flow nodes by node number and body."""

    graph: IndexedGraph
    bodies: dict[int, dict[str, IndexedTree]]

    def all(self) -> list[IndexedGraph]:
        """Return the graph and all graphs inside it."""
        inner = [graph for tree in self.bodies.values() for body in tree.values() for graph in body.all()]
        return [self.graph, *inner]


def index_tree(graph: ir.Graph, taken: set[str], *, is_main: bool = True) -> IndexedTree:
    """Number a graph and, one after the other, the bodies inside it."""
    indexed = index_graph(graph, taken)
    indexed.arithmetic = frozenset(_arithmetic(indexed)) if is_main else frozenset()
    inner = {
        number: {key: index_tree(body, taken, is_main=False) for key, body in bodies(indexed.nodes[number])}
        for number in indexed.captured
    }
    return IndexedTree(indexed, inner)


def _arithmetic(graph: IndexedGraph) -> Iterator[int]:
    """Yield the nodes that compute with shapes alone."""
    known = shape_arithmetic(graph.graph)
    return (number for number, node in enumerate(graph.nodes) if node.outputs[0] in known)


def index_graph(graph: ir.Graph, taken: set[str] | None = None) -> IndexedGraph:
    """Number a graph.

    ``taken`` holds the node names of the model seen so far; it is added to. Constant nodes are left out: they are
    initialisers in the result. Raises ModelError on a cyclic graph.
    """
    taken = set() if taken is None else taken
    nodes = [node for node in graph if not is_constant_node(node)]
    number = {node: index for index, node in enumerate(nodes)}
    captured = {i: captures(node) for i, node in enumerate(nodes) if has_bodies(node)}
    predecessors, ordered = _edges(nodes, number, captured)
    if not ordered:
        order = topological(predecessors, graph)
        nodes = [nodes[i] for i in order]
        captured = {new: captured[old] for new, old in enumerate(order) if old in captured}
        number = {node: index for index, node in enumerate(nodes)}
        predecessors, _ = _edges(nodes, number, captured)
    successors: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(predecessors):
        for other in before:
            successors[other].append(index)
    names = [unique_name(NodeView(node).name or node.op_type, taken) for node in nodes]
    views = [NodeView(node) for node in nodes]
    return IndexedGraph(graph, nodes, names, predecessors, successors, number, captured, views)


def is_constant_node(node: ir.Node) -> bool:
    """Whether the node is a Constant that holds a tensor."""
    if node.op_type != "Constant" or node.domain != "":
        return False
    value = node.attributes.get("value")
    return value is not None and value.type == ir.AttributeType.TENSOR


def is_control_flow(node: ir.Node) -> bool:
    """Whether the runtime can run the node, its bodies being procedures."""
    return node.op_type in CONTROL_FLOW and node.domain in ("", "ai.onnx")


def has_bodies(node: ir.Node) -> bool:
    """Whether the node carries graphs: If, Loop, Scan, SequenceMap, FlexAttention."""
    return bool(node.attributes) and any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    )


def bodies(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Return the graphs of a node with their attributes' names, by attribute name."""
    result: list[tuple[str, ir.Graph]] = []
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if attribute.type == ir.AttributeType.GRAPH:
            result.append((name, attribute.as_graph()))
        elif attribute.type == ir.AttributeType.GRAPHS:
            result.extend((f"{name}[{i}]", graph) for i, graph in enumerate(attribute.as_graphs()))
    return result


def captures(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the values that the bodies of a node read from outside, each once, in order of first use."""
    found: dict[ir.Value, None] = {}
    for _, graph in bodies(node):
        own = set(graph.inputs) | set(graph.initializers.values())
        own.update(output for inner in graph for output in inner.outputs)
        read: list[ir.Value] = []
        for inner in graph:
            read.extend(value for value in inner.inputs if value is not None)
            if has_bodies(inner):
                read.extend(captures(inner))
        read.extend(graph.outputs)
        found.update((value, None) for value in read if value not in own)
    return tuple(found)


def is_tensor(value: ir.Value) -> bool:
    """Whether the value is a tensor of numbers as far as is known: no sequence, optional, map, strings, half bytes."""
    return not is_packed(value)


def is_exchanged(value: ir.Value) -> bool:
    """Whether a value can leave a region: as a tensor of numbers, or packed as `graft.runtime.packed_values` says."""
    return not isinstance(value.type, ir.SparseTensorType)


def is_call(node: ir.Node) -> bool:
    """Whether the node calls a region or a composite of an earlier partitioning."""
    return node.domain in (REGION_DOMAIN, COMPOSITE_DOMAIN)


def unique_name(preferred: str, taken: set[str]) -> str:
    """Return ``preferred``, or it with the first free number, and take it."""
    name, count = preferred, 1
    while name in taken:
        count += 1
        name = f"{preferred}_{count}"
    taken.add(name)
    return name


def topological(predecessors: Sequence[Iterable[int]], graph: ir.Graph | None = None) -> list[int]:
    """Return a topological order that keeps to the numbering where it can; raise ModelError on a cycle."""
    waiting = [len(set(before)) for before in predecessors]
    after: list[list[int]] = [[] for _ in predecessors]
    for index, before in enumerate(predecessors):
        for other in set(before):
            after[other].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for other in after[index]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    if len(order) != len(waiting):
        name = "" if graph is None else graph.name or ""
        raise ModelError(f"graph '{name}' has a cycle; ONNX graphs must be acyclic", graph=name)
    return order


def _edges(
    nodes: list[ir.Node], number: dict[ir.Node, int], captured: dict[int, tuple[ir.Value, ...]]
) -> tuple[list[list[int]], bool]:
    """Return every node's producers (each once), and whether all of them come earlier."""
    result: list[list[int]] = []
    ordered = True
    for index, node in enumerate(nodes):
        before: list[int] = []
        values = (*node.inputs, *captured[index]) if index in captured else node.inputs
        for value in values:
            producer = None if value is None else value.producer()
            if producer is not None:
                other = number.get(producer)
                if other is not None and other not in before:
                    before.append(other)
                    ordered = ordered and other < index
        result.append(before)
    return result, ordered
