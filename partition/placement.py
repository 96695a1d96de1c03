"""Placement by cost: a beam search over plans, from the plans that greed and single backends give.

A plan is changed by taking a region from its backend, by taking all nodes of one operator from it, or by dropping a
composite. Since the greedy plan and the best plan of every single backend are among those it starts from, the result
is never worse than these, as the estimator sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.reject import Reject
from graft.partition.costs import value_bytes
from graft.partition.estimators import Estimator
from graft.partition.plan import Plan
from graft.partition.problem import Partitioned, Problem, Row
from graft.partition.region import REGION_DOMAIN, Region, regions
from graft.partition.structure import structure

BEAM = 3
"""How many plans are developed further at a time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a plan leaves out: (node, backend) pairs, and rows of pattern tables."""

    refused: frozenset[tuple[str, str]] = frozenset()
    dropped: frozenset[Row] = frozenset()

    def without(self, nodes: list[str], backend: str) -> Choice:
        """Return the choice that refuses a backend some more nodes."""
        return Choice(self.refused | {(node, backend) for node in nodes}, self.dropped)


@dataclass(slots=True)
class _Priced:
    choice: Choice
    result: Partitioned
    seconds: float


def cheapest(problem: Problem, estimator: Estimator) -> Partitioned:
    """Return the cheapest partitioning that is found within ``problem.policy.search_budget`` plans."""
    search = _Search(problem, estimator)
    greedy = search.price(Choice())
    pool = [greedy, *(search.price(choice) for choice in _single_backends(problem, greedy.result.plan))]
    seen = {entry.choice for entry in pool}
    pool.sort(key=lambda entry: entry.seconds)
    beam = pool[:BEAM]
    while beam:
        developed: list[_Priced] = []
        for entry in beam:
            for choice in _changes(problem, entry):
                if choice in seen or search.looked_at >= problem.policy.search_budget:
                    continue
                seen.add(choice)
                priced = search.price(choice)
                if priced.seconds < entry.seconds:
                    developed.append(priced)
        pool = sorted([*pool, *developed], key=lambda entry: entry.seconds)[:BEAM]
        beam = [entry for entry in pool if entry in developed]
    return pool[0].result


@dataclass(slots=True)
class _Search:
    problem: Problem
    estimator: Estimator
    looked_at: int = 0
    _known: dict[tuple[str, str], float] = field(default_factory=dict)

    def price(self, choice: Choice) -> _Priced:
        """Partition as a choice says and price the result; operators that nobody takes are beyond price."""
        self.looked_at += 1
        reasons = {pair: Reject("cost", "another placement is cheaper as a whole") for pair in choice.refused}
        result = self.problem.solve(reasons, choice.dropped)
        seconds = sum(self._region(region) for region in regions(result.model))
        seconds += sum(self.estimator.copy_seconds(value_bytes(value)) for value in handed_over(result.model))
        return _Priced(choice, result, float("inf") if result.plan.unplaced else seconds)

    def _region(self, region: Region) -> float:
        key = (region.backend, structure(region))
        if key not in self._known:
            self._known[key] = self.estimator.region_seconds(region)
        return self._known[key]


def handed_over(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the values that pass between regions of different backends, once for every backend that reads one."""
    seen: set[tuple[ir.Value, str]] = set()
    for graph in model.graphs():
        for call in graph:
            if call.domain != REGION_DOMAIN:
                continue
            backend = call.metadata_props["Compiler"]
            for value in call.inputs:
                producer = None if value is None else value.producer()
                if value is None or producer is None or producer.metadata_props.get("Compiler") in (None, backend):
                    continue
                if (value, backend) not in seen:
                    seen.add((value, backend))
                    yield value


def _single_backends(problem: Problem, plan: Plan) -> Iterator[Choice]:
    """Yield the plans of every single backend, with those beside it that must take what is left."""
    nodes = [row.node for row in plan.placements]
    rest = {*problem.policy.unbounded, problem.names[-1] if problem.names else ""}
    for chosen in problem.names:
        others = [name for name in problem.names if name != chosen and name not in rest]
        if others:
            yield Choice(frozenset((node, name) for node in nodes for name in others))


def _changes(problem: Problem, entry: _Priced) -> Iterator[Choice]:
    """Yield the choices one step from a plan: without a composite, an operator, a region."""
    plan = entry.result.plan
    composites = {(row.backend, row.composite) for row in plan.placements if row.composite}
    for composite in sorted(composites):
        yield Choice(entry.choice.refused, entry.choice.dropped | {composite})
    by_operator: dict[tuple[str, str], list[str]] = {}
    by_region: dict[tuple[str, str], list[str]] = {}
    for row in plan.placements:
        if row.region:
            by_operator.setdefault((row.backend, row.op_type), []).append(row.node)
            by_region.setdefault((row.backend, row.region), []).append(row.node)
    for group in (by_operator, by_region):
        for (backend, _), nodes in group.items():
            if backend != problem.names[-1]:
                yield entry.choice.without(nodes, backend)
