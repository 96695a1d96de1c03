"""One partitioning problem: what stays the same while refusals are tried out."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

import onnx_ir as ir

from graft.core.collection import collection_paused
from graft.core.lazy import Lazy
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import LOST_TO, Reject
from graft.errors import GraftError
from graft.partition.annotate_target import AnnotateTarget
from graft.partition.backend_like import BackendLike, options_of
from graft.partition.costs import Work
from graft.partition.graph import RUNTIME, IndexedGraph, IndexedTree, has_bodies, index_tree, is_call
from graft.partition.merge_composite import MergeComposite, Table
from graft.partition.merge_regions import MergeRegions
from graft.partition.partition_graph import Cut, GraphCuts, KeptNames, PartitionGraph, name_regions
from graft.partition.placement.boundary_support import BoundarySupport
from graft.partition.placement.constraints import requested_refusals, requested_tolerance, special_refusals
from graft.partition.placement.fingerprint import fingerprint
from graft.partition.placement.near_misses import NEAR, Alone, alone, with_reasons
from graft.partition.placement.planning import placements
from graft.partition.placement.region_bounds import all_cuts, too_small
from graft.partition.placement.region_parts import RegionParts, device_memory
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.partition.region_cut import Traffic
from graft.partition.tolerance import Tolerance
from graft.partition.units import Units, in_order, make_units
from graft.patterns.composite import Composite

log = logging.getLogger("graft.partition")

Refusals = Mapping[tuple[str, str], Reject]
"""By (node name, backend name)."""
Row = tuple[str, str]
"""A row of a pattern table: (backend name, composite name)."""

COLLECT_ALL = 60_000
"""Operators placed after which what plans left behind that were kept for a while is freed."""

SHAPES = Reject(f"{LOST_TO}{RUNTIME}", "the runtime evaluates the shapes of inputs itself")
TOO_DEAR = Reject("cost", "its operators are cheaper apart")


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned model and how it came about."""

    built: Lazy[ir.Model]
    plan: Plan

    @property
    def model(self) -> ir.Model:
        """The model whose graphs call regions, built when it is first read: a plan alone does without it."""
        return self.built.value


@dataclass(slots=True)
class Problem:
    """A model, the backends in order of preference, and the options; `solve` gives the partitioning."""

    model: ir.Model
    backends: tuple[BackendLike, ...]
    policy: Policy
    refusals: Refusals
    operators: OperatorTable
    kept: KeptNames = field(default_factory=dict)
    """The names of regions that were compiled before."""
    tree: IndexedTree = field(init=False)
    work: Work = field(init=False)
    fingerprint: str = field(init=False)
    placed: int = 0
    """How many operators were placed, in all plans, since all garbage was collected."""
    missing: dict[str, Reject] = field(init=False)
    """The backends that cannot run here."""
    tolerance: Tolerance = field(init=False)
    tables: tuple[tuple[str, tuple[Composite, ...]], ...] = field(init=False)
    boundary_support: BoundarySupport = field(init=False)
    region_parts: RegionParts = field(init=False)
    barren: set[tuple[int, ir.Node]] = field(default_factory=set)
    """Where patterns of the tables do not match."""

    def __post_init__(self) -> None:
        self.tree = index_tree(self.model.graph, set())
        self.work = Work.of_model(self.operators, self.model)
        self.fingerprint = fingerprint(self.model)
        answers = {backend.name: backend.available() for backend in self.backends}
        self.missing = {name: Reject("unavailable", text) for name, text in answers.items() if text is not None}
        graphs = self.tree.all()
        self.tolerance = requested_tolerance(graphs, self.names, self.policy, self.operators)
        present = tuple(backend for backend in self.backends if backend.name not in self.missing)
        self.tables = tuple((backend.name, self.tolerance.rows(backend)) for backend in present)
        self.boundary_support = BoundarySupport(present, self.tolerance)
        most = self.policy.max_region_layers
        layers = {} if most is None else {name: most for name in self.names if name not in self.fallbacks}
        memories = {backend.name: device_memory(backend) for backend in present}
        self.region_parts = RegionParts(memories, layers, self.work.typical)
        requested = requested_refusals(graphs, self.names, self.policy, self.fallbacks)
        special = special_refusals(graphs, self.backends, self.policy, self.tolerance)
        self.refusals = {**special, **requested, **self.refusals}

    @property
    def names(self) -> tuple[str, ...]:
        """The backends' names in order of preference."""
        return tuple(backend.name for backend in self.backends)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The backends that are there to take what others leave."""
        return tuple(backend.name for backend in self.backends if getattr(backend, "fallback", False))

    def solve(self, more: Refusals | None = None, dropped: Collection[Row] = ()) -> Partitioned:
        """Return the partitioning with some more refusals, and without the ``dropped`` composites."""
        self._free_earlier()
        known = {**(more or {}), **self.refusals}
        cuts = self._cut(self.tree, known, dropped)
        while more := self._given_up(cuts, known) or self.region_parts.run(cuts):
            known.update(more)
            cuts = self._cut(self.tree, known, dropped)
        name_regions(self.model.functions, cuts, self.kept)
        rows = tuple(placements(self.tree, cuts, self.model.functions, self.names, self.work))
        options = {backend.name: given for backend in self.backends if (given := options_of(backend))}
        parted = {cut.name: cut.parted for _, cut in all_cuts(cuts) if cut.parted}
        plan = Plan(self.names, rows, self.fingerprint, tuple(sorted(dropped)), options=options, parted=parted)
        return Partitioned(Lazy(partial(PartitionGraph().run, self.model, cuts)), plan)

    def _given_up(self, cuts: GraphCuts, known: Refusals) -> Refusals:
        """Return refusals for what backends give up in these regions, or else for regions that are too small."""
        found = self.boundary_support.given_up(cuts, known.keys())
        if found or not self.policy.bounds_regions:
            return found
        return too_small(cuts, self.policy, self.work, self.fallbacks)

    def with_true_reasons(self, result: Partitioned, by_cost: bool) -> Partitioned:
        """Return a partitioning whose plan says, of backends with composites, what came nearest and what cost decided.

        Only backends that did not get a node for want of a pattern, or for its cost, are asked again, each alone: when
        such a reason is first read. Where placement was ``by_cost``, and may leave a faulty backend out, a fault of
        one leaves the reasons as they are.
        """
        rows = {name: table for name, table in self.tables if table}
        asked = {name for row in result.plan.placements for name, why in row.reasons.items() if why.code in NEAR}
        if asked.isdisjoint(rows):
            return result

        def ask() -> dict[str, Alone]:
            found = dict[str, Alone]()
            for name, table in rows.items():
                if name not in asked:
                    continue
                try:
                    found[name] = self._alone(name, table)
                except GraftError as error:
                    if not by_cost:
                        raise
                    log.warning("backend '%s' does not say why it gets no node: %s", name, error)
            return found

        said = Lazy(ask)
        return replace(result, plan=with_reasons(result.plan, said, by_cost))

    @collection_paused()
    def _alone(self, backend: str, rows: tuple[Composite, ...]) -> Alone:
        """Return what a backend says that is asked for the model alone."""
        own = {pair: why for pair, why in self.refusals.items() if pair[1] == backend}
        single = copy(self)  # with everything that is known of the model; constraints are among the refusals
        single.backends = tuple(one for one in self.backends if one.name == backend)
        cuts = single._cut(single.tree, own, (), regions=False)
        return alone(backend, cuts, rows, self.operators)

    def _free_earlier(self) -> None:
        """Free the models of plans that a search has dropped: they hold cycles, and the collector is paused.

        What the last plan left behind is among the youngest objects; plans that were kept for a while are looked for
        once as many operators were placed as makes that worth its time.
        """
        if self.placed:
            is_due = self.placed >= COLLECT_ALL
            gc.collect(2 if is_due else 0)
            self.placed = 0 if is_due else self.placed
        self.placed += len(self.tree.graph.nodes)

    def _cut(self, tree: IndexedTree, known: Refusals, dropped: Collection[Row], *, regions: bool = True) -> GraphCuts:
        """Decide about a graph and the bodies that stay in it; ``regions`` are needed to build a model, not to ask."""
        graph = tree.graph
        refused = self._refused(graph, known)
        tables = self._tables(graph, refused, dropped)
        longest, duplicate = self.policy.match_order == "longest", self.policy.duplicate_dominated
        grouping = MergeComposite(tables, longest, duplicate, self.operators, self.barren).run(graph)
        units = make_units(graph, grouping.groups)
        annotation = AnnotateTarget(self.backends, self.tolerance).run(graph, units.units, grouping, refused)
        cuts = self._regions(graph, units, annotation.placement) if regions else []
        result = GraphCuts(graph, units, annotation, cuts)
        for number, inner in tree.bodies.items():
            if annotation.placement[units.unit_of[number]] == RUNTIME:
                result.inner[number] = {
                    key: self._cut(body, known, dropped, regions=regions) for key, body in inner.items()
                }
        return result

    def _tables(
        self, graph: IndexedGraph, refused: Mapping[tuple[int, str], Reject], dropped: Collection[Row]
    ) -> tuple[Table, ...]:
        """Return the pattern tables; a node that an earlier backend takes by itself is in no later one's composite."""
        found: list[Table] = []
        tables, taken = dict(self.tables), set[int]()
        last = max((number for number, one in enumerate(self.backends) if tables.get(one.name)), default=-1)
        for number, backend in enumerate(self.backends[: last + 1]):
            own = {node for node, other in refused if other == backend.name}
            found.append(
                Table(backend.name, _rows(backend.name, tables.get(backend.name, ()), dropped), frozenset(own | taken))
            )
            if number < last:
                asked = (node for node in range(len(graph.nodes)) if node not in own and node not in taken)
                taken.update(node for node in asked if self._takes(backend, graph, node))
        return tuple(found)

    def _takes(self, backend: BackendLike, graph: IndexedGraph, node: int) -> bool:
        """Whether a backend takes a single node."""
        plain = not is_call(graph.nodes[node]) and not has_bodies(graph.nodes[node])
        return plain and self.tolerance.ask(backend, graph.views[node]) is None

    def _regions(self, graph: IndexedGraph, units: Units, annotated: list[str | None]) -> list[Cut]:
        """Return the regions of a graph; calls of earlier regions stand alone."""
        placement = [
            None if is_call(graph.nodes[unit.nodes[0]]) else where
            for unit, where in zip(units.units, annotated, strict=True)
        ]
        cuts: list[Cut] = []
        for group in MergeRegions(self.names).run(
            in_order(graph, units, placement), placement, Traffic(graph, units, self.work.typical)
        ):
            nodes = sorted(node for unit in group for node in units.units[unit].nodes)
            where = placement[group[0]]
            cuts.append(Cut(where if where in self.names else None, sorted(group), nodes))
        return cuts

    def _refused(self, graph: IndexedGraph, known: Refusals) -> dict[tuple[int, str], Reject]:
        """Return what is refused beforehand, by node number."""
        result: dict[tuple[int, str], Reject] = {}
        if known:
            numbers = {name: number for number, name in enumerate(graph.names)}
            for (node, backend), reject in known.items():
                if node in numbers:
                    result[numbers[node], backend] = reject
        for number in graph.arithmetic:
            result.update({(number, backend): SHAPES for backend in self.names})
        for backend, reject in self.missing.items():
            result.update({(number, backend): reject for number in range(len(graph.nodes))})
        return result


def _rows(backend: str, rows: tuple[Composite, ...], dropped: Collection[Row]) -> tuple[Composite, ...]:
    """Return the rows of a table; those dropped match, and are refused for their cost."""
    if not dropped:
        return rows
    return tuple(replace(row, check=lambda match: TOO_DEAR) if (backend, row.name) in dropped else row for row in rows)
