"""Why a backend does not get a node: its own answer, and where that is "no pattern", the pattern that came nearest.

What a backend says by itself is found by partitioning for it alone. So the reason of a node that placement by cost
moved is ``cost`` if the backend would have taken it, as part of a composite too, and the backend's own otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.lazy import Lazy
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject
from graft.partition.annotate_target import lost_to
from graft.partition.backend_like import ask_check
from graft.partition.graph import IndexedGraph, is_call
from graft.partition.merge_composite import NO_PATTERN, fused_use, root_nodes
from graft.partition.partition_graph import GraphCuts
from graft.partition.plan import Placement, Plan, Reasons
from graft.partition.totals import MOVED
from graft.patterns.backtracking import StepLimitError
from graft.patterns.composite import Composite
from graft.patterns.explain import Explanation, nearest
from graft.patterns.graph_matching import roots_of
from graft.patterns.match import Match
from graft.patterns.walk import root_operators

COST = "cost"
NEAR = (NO_PATTERN, COST)
"""The reasons behind which there may be a truer one."""


@dataclass(frozen=True, slots=True)
class Alone:
    """What a backend says of a model that it is asked for alone: the nodes it takes, and its reasons, by node name."""

    takes: frozenset[str]
    rejects: Mapping[str, Reject]
    composites: Mapping[str, tuple[str, tuple[str, ...]]]
    """The composite that a node is taken in, and the names of all its nodes."""


def alone(backend: str, cuts: GraphCuts, rows: Sequence[Composite], operators: OperatorTable) -> Alone:
    """Read off what a backend says from the cuts of a model that was partitioned for it alone."""
    takes: set[str] = set()
    rejects: dict[str, Reject] = {}
    composites: dict[str, tuple[str, tuple[str, ...]]] = {}
    waiting = [cuts]
    while waiting:
        level = waiting.pop()
        names, placement = level.graph.names, level.annotation.placement
        said = {number: reject for (number, name), reject in level.annotation.rejects.items() if name == backend}
        takes.update(names[node] for node in range(len(names)) if placement[level.units.unit_of[node]] == backend)
        rejects.update((names[node], reject) for node, reject in said.items())
        groups = [unit.group for unit in level.units.units if unit.group is not None]
        for group in groups:
            members = tuple(names[node] for node in group.nodes)
            composites.update(dict.fromkeys(members, (group.composite.name, members)))
        wanted = {node for node, reject in said.items() if reject.code == NO_PATTERN}
        if wanted:
            standing = {(id(group.composite), group.match.root.node) for group in groups if not group.copies}
            found = near_misses(backend, level.graph, rows, operators, standing)
            rejects.update((names[node], found[node]) for node in wanted if node in found)
        waiting.extend(body for inner in level.inner.values() for body in inner.values())
    return Alone(frozenset(takes), rejects, composites)


def with_reasons(plan: Plan, said: Lazy[dict[str, Alone]], by_cost: bool) -> Plan:
    """Return a plan whose reasons are what the backends, asked alone, say of the nodes."""
    claim = partial(_claim, plan.backends, {row.node: row.backend for row in plan.placements})

    def find(row: Placement) -> Mapping[str, Reject]:
        return _reasons(row, said.value, claim, by_cost)

    return replace(plan, placements=tuple(_row(row, find) for row in plan.placements))


def _row(row: Placement, find: Callable[[Placement], Mapping[str, Reject]]) -> Placement:
    near = any(reject.code in NEAR for reject in row.reasons.values())
    return replace(row, reasons=Reasons(row, find)) if near else row


def _reasons(
    row: Placement, said: Mapping[str, Alone], claim: Callable[..., Reject | None], by_cost: bool
) -> Mapping[str, Reject]:
    reasons = dict(row.reasons)
    for backend, reject in row.reasons.items():
        own = said.get(backend)
        if own is None or reject.code not in NEAR:
            continue
        if row.node not in own.takes:
            reasons[backend] = own.rejects.get(row.node, reject)
        elif reject.code == NO_PATTERN:
            claimed = MOVED if by_cost else claim(backend, own.composites.get(row.node))
            reasons[backend] = reject if claimed is None else claimed
    return reasons


def _claim(
    order: Sequence[str], placed: Mapping[str, str], backend: str, composite: tuple[str, tuple[str, ...]] | None
) -> Reject | None:
    """Return why a backend has no composite that it would form alone: an earlier backend has one of its nodes."""
    name, members = composite or ("", ())
    earlier = order[: order.index(backend)]
    for member in members:
        if placed.get(member) in earlier:
            other = placed[member]
            return Reject(lost_to(other).code, f"{other} comes first at '{member}', which {name} needs too")
    return None


def near_misses(
    backend: str,
    graph: IndexedGraph,
    rows: Sequence[Composite],
    operators: OperatorTable,
    standing: Collection[tuple[int, ir.Node]] = (),
) -> dict[int, Reject]:
    """Return, by node, the refusal of the pattern that came nearest, for the nodes that one came near to.

    ``standing`` has, by identity, the rows that were found, each with the node at its root: these are no misses.
    Of equally near ones that is the one of the earlier row, then the first by its text: no order of nodes matters.
    """
    best: dict[int, tuple[tuple[int, int, int], Reject]] = {}
    by_operator: dict[tuple[str, str], list[NodeView]] = {}
    for view in graph.views:
        if not is_call(view.node):
            by_operator.setdefault((view.domain, view.op_type), []).append(view)
    for place, row in enumerate(rows):
        roots = root_operators(row.pattern)
        for view in chain.from_iterable(by_operator.get(one, ()) for one in roots or by_operator):
            if (id(row), view.node) in standing:
                continue
            found = explained(backend, row, view.node, operators)
            reject = found.reject
            if found.found or not found.members or reject.code == NO_PATTERN:
                continue
            if not found.rejects:
                reject = Reject(reject.code, f"{row.name} {reject.text}")
            reach = (len(found.members), -found.wanted, -place)
            for node in found.members:
                number = graph.number.get(node)
                known = None if number is None else best.get(number)
                if number is not None and (known is None or _is_nearer(reach, reject, *known)):
                    best[number] = (reach, reject)
    return {number: reject for number, (_, reject) in best.items()}


def _is_nearer(reach: tuple[int, int, int], reject: Reject, other: tuple[int, int, int], known: Reject) -> bool:
    return reach > other or (reach == other and reject.text < known.text)


def explained(backend: str, row: Composite, node: ir.Node, operators: OperatorTable) -> Explanation:
    """Explain a row of a table at a node, its check and the uses of inner values included."""
    roots = roots_of(row.pattern)

    def check(match: Match) -> Reject | None:
        refused = fused_use(match, match.members, root_nodes(match, roots))
        return ask_check(backend, row, match) if refused is None else refused

    try:
        return nearest(row.pattern, NodeView(node), check, operators)
    except StepLimitError as error:
        return Explanation(False, row.pattern, NodeView(node).where, str(error), code="size")
