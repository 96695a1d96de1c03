"""MergeComposite: groups of nodes that the pattern tables want computed as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.table import OperatorTable
from graft.core.reject import Reject
from graft.partition.backend_like import ask_check
from graft.partition.graph import IndexedGraph, has_bodies, is_call, is_tensor
from graft.patterns.composite import Composite
from graft.patterns.match import Match
from graft.patterns.matcher import Matcher, root_operators

NO_PATTERN = "no-pattern"


@dataclass(frozen=True, slots=True)
class Table:
    """The pattern table of one backend and the nodes (by number) that it may not have."""

    backend: str
    rows: Sequence[Composite]
    refused: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Group:
    """A composite found in the graph: its nodes by number, ascending."""

    composite: Composite
    backend: str
    nodes: tuple[int, ...]
    match: Match


@dataclass(slots=True)
class Grouping:
    """What `MergeComposite` found: disjoint groups, and the refusals of checks by (node, backend)."""

    groups: list[Group] = field(default_factory=list)
    rejects: dict[tuple[int, str], Reject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeComposite:
    """Finds composites, table by table and row by row, from the outputs towards the inputs.

    1. A node belongs to at most one composite; rows and tables that come first choose first. With ``longest`` a
       backend's larger matches go before its smaller ones, whatever their rows.
    2. A match stands only if every value inside it that is not an output of its root is used inside alone: otherwise
       the next way to match is tried, and the refusal is ``fused-use``.
    3. A check that refuses makes the matcher try the next way; its reason is kept.
    4. Calls of composites and regions, and control flow, are never part of a composite.
    """

    name: ClassVar[str] = "merge-composite"
    tables: tuple[Table, ...]
    longest: bool = False
    operators: OperatorTable = OPERATORS

    def run(self, graph: IndexedGraph) -> Grouping:
        """Return the groups found; the graph is not changed."""
        result = Grouping()
        if not any(table.rows for table in self.tables):
            return result
        order = list(reversed(graph.canonical()))
        by_operator: dict[tuple[str, str], list[int]] = {}
        for rank, index in enumerate(order):
            node = graph.nodes[index]
            by_operator.setdefault((node.domain, node.op_type), []).append(rank)
        free = [not is_call(node) and not has_bodies(node) for node in graph.nodes]
        search = _Search(graph, free, result, Matcher(self.operators))
        for table in self.tables:
            found = ((row, index) for row in table.rows for index in _candidates(row, order, by_operator))
            if self.longest:
                search.take_longest(table, found)
            else:
                for row, index in found:
                    search.take_first(table, row, index)
        return result


@dataclass(slots=True)
class _Search:
    graph: IndexedGraph
    free: list[bool]
    result: Grouping
    matcher: Matcher

    def take_first(self, table: Table, row: Composite, index: int) -> None:
        """Take the first match of a row at a node that stands."""
        if self.free[index] and index not in table.refused:
            group = next(self._standing(table, row, index), None)
            if group is not None:
                self._take(group)

    def take_longest(self, table: Table, candidates: Iterable[tuple[Composite, int]]) -> None:
        """Take all matches that stand, larger ones first."""
        groups = [
            group
            for row, index in candidates
            if self.free[index] and index not in table.refused
            for group in self._standing(table, row, index)
        ]
        for group in sorted(groups, key=lambda group: -len(group.nodes)):
            if all(self.free[node] for node in group.nodes):
                self._take(group)

    def _take(self, group: Group) -> None:
        for node in group.nodes:
            self.free[node] = False
        self.result.groups.append(group)

    def _standing(self, table: Table, row: Composite, index: int) -> Iterator[Group]:
        number = self.graph.number
        for match in self.matcher.matches(row.pattern, self.graph.nodes[index]):
            members = match.members
            nodes = sorted(number.get(node, -1) for node in members)
            if not nodes or nodes[0] < 0:
                continue
            if not all(self.free[node] and node not in table.refused for node in nodes):
                continue
            reject = fused_use(match, members) or ask_check(table.backend, row, match)
            if reject is None:
                yield Group(row, table.backend, tuple(nodes), match)
            else:
                self.result.rejects.setdefault((index, table.backend), reject)


def fused_use(match: Match, members: set[ir.Node]) -> Reject | None:
    """Return a refusal if a value inside a match is needed outside, or is not a tensor at its edge."""
    root = match.root.node
    for node in members:
        for value in node.outputs:
            if node is not root:
                outside = next((use.node for use in value.uses() if use.node not in members), None)
                if outside is not None or value.is_graph_output():
                    user = f"'{outside.name}'" if outside is not None else "the graph's outputs"
                    return Reject("fused-use", f"'{value.name}' inside the match is also used by {user}")
            if not is_tensor(value):
                return Reject("dtype", f"'{value.name}' is not a tensor")
        for read in node.inputs:
            if read is not None and not is_tensor(read):
                return Reject("dtype", f"'{read.name}' is not a tensor")
    return None


def _candidates(row: Composite, order: list[int], by_operator: dict[tuple[str, str], list[int]]) -> Iterable[int]:
    roots = root_operators(row.pattern)
    if roots is None:
        return order
    if len(roots) == 1:
        ranks = by_operator.get(next(iter(roots)), [])
    else:
        ranks = sorted(rank for root in roots for rank in by_operator.get(root, ()))
    return [order[rank] for rank in ranks]
