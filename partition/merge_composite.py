"""MergeComposite: groups of nodes that the pattern tables want computed as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject
from graft.errors import GraftError, PatternError
from graft.partition.backend_like import ask_check
from graft.partition.graph import IndexedGraph, has_bodies, is_call, is_tensor
from graft.patterns.backtracking import StepLimitError
from graft.patterns.composite import Composite
from graft.patterns.graph_matching import roots_of
from graft.patterns.language import Pattern
from graft.patterns.match import Match
from graft.patterns.matcher import Matcher, value_of
from graft.patterns.walk import root_operators
from graft.runtime.foreign import kind_of, said

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
    several_roots: bool = False
    copies: tuple[int, ...] = ()
    """Nodes of the match that the composite computes again; they themselves stand outside."""


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
       the next way to match is tried, and the refusal is ``fused-use``. With ``duplicate`` the composite computes such
       a value again, where whatever else reads it leads to the composite and nowhere else.
    3. A check that refuses makes the matcher try the next way; its reason is kept.
    4. Calls of composites and regions, and control flow, are never part of a composite.
    """

    name: ClassVar[str] = "merge-composite"
    tables: tuple[Table, ...]
    longest: bool = False
    duplicate: bool = False
    operators: OperatorTable = OPERATORS
    barren: set[tuple[int, ir.Node]] = field(default_factory=set, compare=False)
    """Patterns, by identity, and nodes at which they do not match, whoever asks: known from run to run of a graph."""

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
        search = _Search(graph, free, result, Matcher(self.operators), self.barren, self.duplicate)
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
    barren: set[tuple[int, ir.Node]]
    duplicate: bool = False
    tied: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The groups with several roots that are taken, by member: only through these can an edge lead backwards."""

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
        if group.several_roots:
            self.tied.update(dict.fromkeys(group.nodes, group.nodes))
        self.result.groups.append(group)

    def _copies(self, members: set[int], root: int) -> set[int]:
        """Return the members that must stand outside as well, empty if what reads them leads elsewhere too."""
        graph = self.graph
        copies: set[int] = set()
        outside: list[int] = []
        for node in members - {root}:
            for value in graph.nodes[node].outputs:
                users = [graph.number.get(use.node, -1) for use in value.uses()]
                if value.is_graph_output() or -1 in users:
                    return set()
                outside.extend(user for user in users if user not in members)
                if any(user not in members for user in users):
                    copies.add(node)
        seen: set[int] = set()
        while outside:
            node = outside.pop()
            values = graph.nodes[node].outputs
            users = [graph.number.get(use.node, -1) for value in values for use in value.uses()]
            if node > root or not users or -1 in users or any(value.is_graph_output() for value in values):
                return set()
            if node not in seen:
                seen.add(node)
                outside.extend(user for user in users if user not in members)
        left = list(copies)
        while left:
            inner = [other for other in graph.predecessors[left.pop()] if other in members and other not in copies]
            copies.update(inner)
            left.extend(inner)
        return copies

    def _is_convex(self, members: set[int]) -> bool:
        """Whether no path leaves the members and comes back, groups with several roots being one node."""
        stack = [other for node in members for other in self.graph.successors[node] if other not in members]
        seen: set[int] = set()
        last = max(members)
        while stack:
            node = stack.pop()
            if node in members:
                return False
            if node not in seen and (node < last or self.tied):
                group = self.tied.get(node, (node,))
                seen.update(group)
                stack.extend(other for inner in group for other in self.graph.successors[inner])
        return True

    def _matches(self, table: Table, row: Composite, index: int) -> Iterator[Match]:
        """Yield the matches of a row at a node; a search without end is a refusal; faults name the backend."""
        view = self.graph.views[index]
        here = (id(row.pattern), view.node)
        if here in self.barren:
            return
        is_barren = True
        try:
            for match in self.matcher.matches(row.pattern, view.node):
                is_barren = False
                yield match
            if is_barren:
                self.barren.add(here)
        except StepLimitError as error:
            reject = Reject("size", f"the search for {row.name} at {view.where} was given up: {error}")
            self.result.rejects.setdefault((index, table.backend), reject)
        except PatternError as error:
            raise PatternError(
                f"composite '{row.name}' of backend '{table.backend}' at {view.where}: {error}",
                composite=row.name,
                plugin=table.backend,
            ) from error
        except GraftError as error:
            error.facts.setdefault("plugin", table.backend)
            raise
        except Exception as error:
            raise PatternError(
                f"composite '{row.name}' of backend '{table.backend}' raised {kind_of(error)} at "
                f"{view.where}: {said(error)}",
                plugin=table.backend,
                composite=row.name,
            ) from error

    def _standing(self, table: Table, row: Composite, index: int) -> Iterator[Group]:
        number = self.graph.number
        for match in self._matches(table, row, index):
            members = match.members
            nodes = sorted(number.get(node, -1) for node in members)
            if not nodes or nodes[0] < 0:
                continue
            if not all(self.free[node] and node not in table.refused for node in nodes):
                continue
            roots = root_nodes(match, roots_of(row.pattern))
            reject = fused_use(match, members, roots)
            copies: set[int] = set()
            if reject is not None and reject.code == "fused-use" and self.duplicate and len(roots) == 1:
                copies = self._copies(set(nodes), index)
                reject = None if copies else reject
            if reject is None and len(roots) > 1 and not self._is_convex(set(nodes)):
                reject = Reject("cycle", "a node outside the match lies between its nodes")
            if reject is None:
                reject = ask_check(table.backend, row, match)
            if reject is None:
                owned = tuple(node for node in nodes if node not in copies)
                yield Group(row, table.backend, owned, match, len(roots) > 1, tuple(sorted(copies)))
            else:
                self.result.rejects.setdefault((index, table.backend), reject)


def root_nodes(match: Match, roots: Sequence[Pattern]) -> frozenset[ir.Node]:
    """Return the nodes of a match whose values may be used outside of it: its root and those of ``roots``."""
    if not roots:
        return frozenset((match.root.node,))
    found = (value_of(pattern, match.bindings) for pattern in roots)
    producers = (value.producer() for value in found if value is not None)
    return frozenset((match.root.node, *(node for node in producers if node is not None)))


def fused_use(match: Match, members: frozenset[ir.Node], roots: frozenset[ir.Node]) -> Reject | None:
    """Return a refusal if a value inside a match is needed outside, or one of them is not a tensor."""
    for node in match.sorted_members():
        for value in node.outputs:
            if node not in roots:
                outside = sorted(NodeView(use.node).where for use in value.uses() if use.node not in members)
                if outside or value.is_graph_output():
                    user = outside[0] if outside else "the graph's outputs"
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
