"""The whole way: composites, placement, regions, and the partitioned model with its plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.table import OperatorTable
from graft.core.reject import Reject
from graft.errors import PatternError, PlanError
from graft.partition.annotate_target import AnnotateTarget
from graft.partition.backend_like import BackendLike
from graft.partition.bounds import too_small
from graft.partition.cheaper_cut import Traffic
from graft.partition.costs import Work
from graft.partition.fingerprint import fingerprint
from graft.partition.graph import RUNTIME, IndexedGraph, IndexedTree, index_tree, is_call
from graft.partition.merge_composite import MergeComposite, Table
from graft.partition.merge_regions import MergeRegions
from graft.partition.partition_graph import Cut, GraphCuts, PartitionGraph
from graft.partition.plan import Plan
from graft.partition.planning import placements
from graft.partition.policy import Policy
from graft.partition.units import make_units
from graft.partition.wishes import plan_refusals, require_pins, require_plan, wished_refusals
from graft.patterns.validate import validate

__all__ = ["Partitioned", "Policy", "partition"]


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned model and how it came about."""

    model: ir.Model
    plan: Plan


def partition(
    model: ir.Model,
    backends: Sequence[BackendLike],
    *,
    policy: Policy | None = None,
    refusals: Mapping[tuple[str, str], Reject] | None = None,
    plan: Plan | None = None,
    operators: OperatorTable = OPERATORS,
) -> Partitioned:
    """Partition a model among backends in order of preference; the model given is not changed.

    ``plan`` is one made (and edited) before: every node goes to the backend that it names, or the call fails.

    ``refusals`` are facts known beforehand, by (node name, backend name), such as ``compile-failed``. Operators that
    nobody takes stay in the graph, with placement "" in the plan (`Plan.require_complete`). Raises PlanError for
    contradictory wishes, PluginError and PatternError for a backend's faults, ModelError for a cyclic graph.
    """
    policy = policy or Policy()
    names = [backend.name for backend in backends]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise PlanError(f"backend '{doubled[0]}' is listed twice; list each backend once", backend=doubled[0])
    for backend in backends:
        _validate(backend)
    with collection_paused():
        wanted = {} if plan is None else plan_refusals(plan, fingerprint(model), names)
        result = _partition(model, backends, policy, {**wanted, **(refusals or {})}, operators)
    if plan is not None and not refusals:
        require_plan(result.plan, plan)
    return result


def _validate(backend: BackendLike) -> None:
    """Raise PatternError, naming the composite, if a row of the backend's table is wrong."""
    names: set[str] = set()
    for row in backend.patterns:
        if row.name in names:
            raise PatternError(
                f"backend '{backend.name}' has two composites named '{row.name}'; give each row its own name",
                plugin=backend.name,
                composite=row.name,
            )
        names.add(row.name)
        try:
            validate(row.pattern)
        except PatternError as error:
            raise PatternError(
                f"composite '{row.name}' of backend '{backend.name}': {error}", plugin=backend.name, composite=row.name
            ) from error


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the collector of cycles from looking through a growing model again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _partition(
    model: ir.Model,
    backends: Sequence[BackendLike],
    policy: Policy,
    refusals: Mapping[tuple[str, str], Reject],
    operators: OperatorTable,
) -> Partitioned:
    names = [backend.name for backend in backends]
    tree = index_tree(model.graph, set())
    known = {**wished_refusals(tree.all(), names, policy), **refusals}
    missing = {
        backend.name: Reject("unavailable", text) for backend in backends if (text := backend.available()) is not None
    }
    work = Work(operators)
    session = _Session(tuple(backends), policy, known, missing, operators)
    cuts = session.cut(tree)
    while policy.bounds_regions and (small := too_small(cuts, policy, work)):
        session.known.update(small)
        cuts = session.cut(tree)
    result = PartitionGraph().run(model, cuts)
    plan = Plan(tuple(names), tuple(placements(tree, cuts, model, names, work)), fingerprint(model))
    require_pins(plan, policy)
    return Partitioned(result, plan)


@dataclass(slots=True)
class _Session:
    """One partitioning: what stays the same for every graph of the model, and what is refused so far."""

    backends: tuple[BackendLike, ...]
    policy: Policy
    known: dict[tuple[str, str], Reject]
    missing: dict[str, Reject]
    """The backends that cannot run here."""
    operators: OperatorTable

    def cut(self, tree: IndexedTree) -> GraphCuts:
        """Decide about a graph and the bodies that stay in it."""
        graph = tree.graph
        refused = self._refused(graph)
        tables = tuple(
            Table(
                backend.name, tuple(backend.patterns), frozenset(node for node, name in refused if name == backend.name)
            )
            for backend in self.backends
            if backend.name not in self.missing
        )
        grouping = MergeComposite(tables, self.policy.match_order == "longest", self.operators).run(graph)
        units = make_units(graph, grouping.groups)
        annotation = AnnotateTarget(self.backends).run(graph, units.units, grouping, refused)
        placement = [
            None if is_call(graph.nodes[unit.nodes[0]]) else where
            for unit, where in zip(units.units, annotation.placement, strict=True)
        ]
        names = tuple(backend.name for backend in self.backends)
        merged = MergeRegions(names).run(units.predecessors, placement, Traffic(graph, units))
        cuts = []
        for group in merged:
            nodes = sorted(node for unit in group for node in units.units[unit].nodes)
            where = placement[group[0]]
            cuts.append(Cut(where if where in names else None, sorted(group), nodes))
        result = GraphCuts(graph, units, annotation, cuts)
        for number, inner in tree.bodies.items():
            if annotation.placement[units.unit_of[number]] == RUNTIME:
                result.inner[number] = {key: self.cut(body) for key, body in inner.items()}
        return result

    def _refused(self, graph: IndexedGraph) -> dict[tuple[int, str], Reject]:
        """Return what is refused beforehand, by node number."""
        result: dict[tuple[int, str], Reject] = {}
        if self.known:
            numbers = {name: number for number, name in enumerate(graph.names)}
            for (node, backend), reject in self.known.items():
                if node in numbers:
                    result[numbers[node], backend] = reject
        for backend, reject in self.missing.items():
            result.update({(number, backend): reject for number in range(len(graph.nodes))})
        return result
