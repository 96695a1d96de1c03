"""Units: what is placed as one: a composite, nodes tied by values that cannot leave a region, or a single node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.rewriting.node_rewrite import is_recomputed
from graft.partition.graph import IndexedGraph, bodies, is_call, is_control_flow, is_exchanged, topological
from graft.partition.merge_composite import Group


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are placed as one, by number, ascending."""

    nodes: tuple[int, ...]
    group: Group | None = None
    opaque: bool = False
    """Whether values that cannot leave a region keep the nodes together, or a node's bodies to the node."""

    @property
    def body(self) -> tuple[int, ...]:
        """The nodes that are computed when the unit is: its own, and those that its composite computes again."""
        if self.group is None or not self.group.copies:
            return self.nodes
        return tuple(sorted((*self.nodes, *self.group.copies)))


@dataclass(frozen=True, slots=True)
class Units:
    """The units in topological order, the unit of every node, and the units that each unit reads."""

    units: list[Unit]
    unit_of: list[int]
    predecessors: list[list[int]]


def in_order(graph: IndexedGraph, units: Units, placement: Sequence[str | None]) -> list[list[int]]:
    """Return the units that each unit comes behind: those that it reads.

    One that computes again, to save memory, comes behind the last unit before it that another backend has as well:
    nothing that it reads would keep it from moving to the first region, from which on it would take memory.
    """
    behind = list(units.predecessors)
    latest: dict[str | None, int] = {}  # by placement: its last unit so far
    for number, unit in enumerate(units.units):
        if any(is_recomputed(graph.nodes[node]) for node in unit.nodes):
            others = [last for where, last in latest.items() if where != placement[number]]
            behind[number] = [*behind[number], *others]
        latest[placement[number]] = number
    return behind


def make_units(graph: IndexedGraph, groups: Sequence[Group]) -> Units:
    """Return the units of a graph with the given composites.

    Nodes that share a value that cannot leave a region become one unit, and so does whatever lies between them.
    """
    owner = list(range(len(graph.nodes)))
    grouped: dict[int, Group] = {}
    for group in groups:
        for node in group.nodes:
            owner[node] = group.nodes[0]
        grouped[group.nodes[0]] = group
    opaque = _tie(graph, owner)
    several_roots = any(group.several_roots for group in groups)
    for component in _components(graph, owner) if opaque or several_roots else []:
        leader = min(owner[node] for node in component)
        for node in component:
            owner[node] = leader
        opaque.update(component)
    members: dict[int, list[int]] = {}
    for node, leader in enumerate(owner):
        members.setdefault(leader, []).append(node)
    units = [
        Unit(tuple(nodes), None if nodes[0] in opaque else grouped.get(nodes[0]), nodes[0] in opaque)
        for nodes in members.values()
    ]
    return _ordered(graph, units)


def crosses_bodies(node: ir.Node, captured: Sequence[ir.Value]) -> bool:
    """Whether a value that cannot leave a region enters or leaves a control-flow node or one of its bodies."""
    edge: list[ir.Value | None] = [*node.inputs, *node.outputs, *captured]
    for _, body in bodies(node):
        edge.extend(body.inputs)
        edge.extend(body.outputs)
    return any(value is not None and not is_exchanged(value) for value in edge)


def _tie(graph: IndexedGraph, owner: list[int]) -> set[int]:
    """Give nodes that share a value that cannot leave a region one owner; return those that must not be opened."""
    opaque: set[int] = set()
    parent = list(range(len(graph.nodes)))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for index, node in enumerate(graph.nodes):
        if index in graph.captured and (not is_control_flow(node) or crosses_bodies(node, graph.captured[index])):
            opaque.add(index)
        for value in node.inputs if index not in graph.captured else graph.reads(index):
            if value is None or is_exchanged(value) or is_call(node):
                continue
            opaque.add(index)
            producer = value.producer()
            if producer is not None and producer in graph.number:
                parent[find(index)] = find(graph.number[producer])
        if any(not is_exchanged(value) for value in node.outputs):
            opaque.add(index)
    tied: dict[int, int] = {}
    for member in sorted(opaque):
        owner[member] = tied.setdefault(find(member), member)
    return opaque


def _components(graph: IndexedGraph, owner: list[int]) -> list[list[int]]:
    """Return the groups of nodes whose owners lie on a common cycle once owners are contracted (Tarjan, iterative)."""
    successors: dict[int, set[int]] = {}
    for node, before in enumerate(graph.predecessors):
        for other in before:
            if owner[other] != owner[node]:
                successors.setdefault(owner[other], set()).add(owner[node])
    found = strongly_connected(sorted(set(owner)), successors)
    cycles = {leader: number for number, component in enumerate(found) if len(component) > 1 for leader in component}
    result: dict[int, list[int]] = {}
    for node, leader in enumerate(owner):
        if leader in cycles:
            result.setdefault(cycles[leader], []).append(node)
    return list(result.values())


def strongly_connected(vertices: Sequence[int], successors: dict[int, set[int]]) -> list[list[int]]:
    """Return the strongly connected components (Tarjan 1972), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    result: list[list[int]] = []
    for start in vertices:
        if start in index:
            continue
        work = [(start, iter(sorted(successors.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            vertex, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(successors.get(other, ())))))
                    break
                if other in on_stack:
                    low[vertex] = min(low[vertex], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == index[vertex]:
                    component: list[int] = []
                    while not component or component[-1] != vertex:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    result.append(component)
    return result


def _ordered(graph: IndexedGraph, units: list[Unit]) -> Units:
    """Return the units numbered in topological order."""
    units.sort(key=lambda unit: unit.nodes[-1])
    unit_of, predecessors = _contract(graph, units)
    if any(other >= number for number, before in enumerate(predecessors) for other in before):
        order = topological(predecessors, graph.graph)
        units = [units[number] for number in order]
        unit_of, predecessors = _contract(graph, units)
    return Units(units, unit_of, predecessors)


def _contract(graph: IndexedGraph, units: Sequence[Unit]) -> tuple[list[int], list[list[int]]]:
    unit_of = [0] * len(graph.nodes)
    for number, unit in enumerate(units):
        for node in unit.nodes:
            unit_of[node] = number
    predecessors: list[list[int]] = []
    for number, unit in enumerate(units):
        before: list[int] = []
        copies = () if unit.group is None else unit.group.copies
        for node in unit.body:
            for other in graph.predecessors[node]:
                reached = unit_of[other]
                if reached != number and reached not in before and other not in copies:
                    before.append(reached)
        predecessors.append(before)
    return unit_of, predecessors
