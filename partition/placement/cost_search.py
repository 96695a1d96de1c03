"""Placement by cost: a beam search over plans, from the plans that greed and single backends give.

A plan is changed by taking a region from its backend, by taking all nodes of one operator from it, or by dropping a
composite. Whole plans are compared, with all their regions and what passes between them: a region that is cheap by
itself may break what its neighbours fuse. The plans of the fallback backends (the built-in compiler) are trusted;
another one counts as cheaper only by more than a margin, for a model knows a vendor's library less well than it seems.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from graft.core.collection import collection_paused
from graft.core.graph.traversal import all_graphs
from graft.partition.backend_like import MAIN_MEMORY, memory_of
from graft.partition.costs import value_bytes
from graft.partition.graph import RUNTIME
from graft.partition.placement.estimators import Estimator
from graft.partition.placement.problem import Partitioned, Problem, Row
from graft.partition.placement.region_structure import structure
from graft.partition.plan import Plan
from graft.partition.region import REGION_DOMAIN, RegionCall, region_calls
from graft.partition.totals import MOVED, Least, Totals

BEAM = 3
"""How many plans are developed further at a time."""
OPERATORS_AT_ONCE, LEAST_PLANS = 2000, 4
"""How many operators are placed in all, in at least so many plans, unless ``model`` was asked for: so it stays quick.

Nor does `auto` change a plan that is dearer than the cheapest one.
"""
OPERATORS_KEPT = 20_000
"""How many operators the plans have in all that a search keeps beside its first ones; the others are freed."""
NOISE = 0.03
"""The share by which a measured time must be smaller to count as such."""


class PlanTimes(Protocol):
    """Measured times of whole plans."""

    def recorded(self, result: Partitioned) -> float | None:
        """Return the seconds that a plan was measured to take, infinity where it failed, None where it was not."""
        ...

    def measure(self, results: Sequence[Partitioned]) -> None:
        """Measure plans in turns with the first of them, as far as time allows, and record their times."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What a plan leaves out: (node, backend) pairs, and rows of pattern tables."""

    refused: frozenset[tuple[str, str]] = frozenset()
    dropped: frozenset[Row] = frozenset()

    def without(self, nodes: list[str], backend: str) -> Choice:
        """Return the choice that refuses a backend some more nodes."""
        return Choice(self.refused | {(node, backend) for node in nodes}, self.dropped)


@dataclass(slots=True)
class Priced:
    """A plan with its price; ``trusted`` says that it is one of the fallback backends as far as they go.

    ``whole`` says that the search began with it: it is that of greed, or of one backend as far as that goes.
    """

    choice: Choice
    result: Partitioned
    seconds: float
    trusted: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """The partitioning that a search found, and what it was compared with; None where there was nothing to compare."""

    result: Partitioned
    totals: Totals | None


def cheapest(problem: Problem, estimator: Estimator, times: PlanTimes | None = None) -> Chosen:
    """Return the cheapest partitioning that is found within ``problem.policy.search_budget`` plans, and its rivals.

    With ``times``, recorded times decide where the plan of the fallback backends has one; with the placement
    ``measured`` they are taken first.
    """
    if not set(problem.names) - set(problem.fallbacks):
        return Chosen(problem.solve(), None)
    search = _Search(problem, estimator)
    pool = search.run()
    if times is not None and problem.policy.placement == "measured":
        times.measure([entry.result for entry in _baseline_first(pool)])
    known = [] if times is None else _recorded(pool, times)
    best = pool[0] if not known else min(known, key=_believed)[0]
    return Chosen(best.result, _totals(best, search, {entry.choice: seconds for entry, seconds in known}, pool))


def _totals(best: Priced, search: _Search, known: Mapping[Choice, float], pool: Sequence[Priced]) -> Totals:
    """Return the chosen plan's time beside those of others, by the model, and measured where that decided."""
    measured = Least()
    for entry in pool:
        if entry.choice in known:
            measured.add(entry.result.plan, known[entry.choice])
    margin = search.estimator.margin
    return Totals(best.seconds, search.least.seconds, known.get(best.choice), measured.seconds, margin)


@collection_paused()
def faster(problem: Problem, greedy: Partitioned, estimator: Estimator, times: PlanTimes | None) -> str:
    """Return what the fallback backends by themselves would gain over a plan, "" where it is not known that they do."""
    if (
        not problem.fallbacks
        or greedy.plan.unplaced
        or not any(row.backend not in problem.fallbacks for row in greedy.plan.placements)
    ):
        return ""
    search = _Search(problem, estimator)
    alone = search.fallbacks_first(greedy.plan)[0]
    known = None if times is None else (times.recorded(greedy), times.recorded(alone.result))
    if known is not None and None not in known:
        before, after, how, margin = known[0] or 0.0, known[1] or 0.0, "as measured here", NOISE
    else:
        before, after, how, margin = search.seconds(greedy), alone.seconds, "by the model", estimator.margin
    if not after < before * (1 - margin):
        return ""
    used = {row.backend for row in alone.result.plan.placements}
    names = ",".join(name for name in problem.names if name in used)
    return f"{names} alone: about {before / after:.1f}x faster {how} (--place auto)"


@dataclass(slots=True)
class _Search:
    problem: Problem
    estimator: Estimator
    looked_at: int = 0
    least: Least = field(default_factory=Least)
    _known: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self) -> list[Priced]:
        """Return the plans from which the search began and the best that it came to, the cheapest first."""
        policy = self.problem.policy
        greedy = self.priced(Choice())
        plan = greedy.result.plan
        budget, worth = policy.search_budget, math.inf
        if policy.placement != "model":
            budget = min(budget, max(LEAST_PLANS, OPERATORS_AT_ONCE // max(1, len(plan.placements))))
        if policy.placement == "auto":
            worth = 1.0
        pool = {greedy.choice: greedy}
        greedy.trusted = {row.backend for row in plan.placements} <= {*self.problem.fallbacks, RUNTIME}
        if not greedy.trusted:  # else it is the plan of the fallback backends, and of every single backend
            pool |= {entry.choice: entry for entry in self.fallbacks_first(plan)}
            for choice in _single_backends(self.problem, plan):
                if choice not in pool:
                    pool[choice] = self.priced(choice)
        for entry in pool.values():
            entry.whole = True
        first, seen = set(pool), set(pool)
        most = max(BEAM, OPERATORS_KEPT // max(1, len(plan.placements)))
        beam = self._sorted(pool.values())[:BEAM]
        while beam:
            developed: list[Priced] = []
            for entry in beam:
                if entry.seconds > worth * self._sorted(pool.values())[0].seconds:
                    continue
                for choice in _changes(self.problem, entry):
                    if choice in seen or self.looked_at >= budget:
                        continue
                    seen.add(choice)
                    pool[choice] = priced = self.priced(choice)
                    if priced.seconds < entry.seconds:
                        developed = self._sorted([*developed, priced])[:BEAM]
                    del priced
                    for spare in self._sorted(one for one in pool.values() if one.choice not in first)[most:]:
                        del pool[spare.choice]
            best = self._sorted(pool.values())[:BEAM]
            beam = [entry for entry in best if any(entry is one for one in developed)]
        return self._sorted(pool.values())

    def _sorted(self, pool: Iterable[Priced]) -> list[Priced]:
        margin = self.estimator.margin
        return sorted(pool, key=lambda entry: entry.seconds if entry.trusted else entry.seconds / (1 - margin))

    def fallbacks_first(self, plan: Plan) -> list[Priced]:
        """Return the plans of the fallback backends: by themselves, and with the others for what the first leaves."""
        if not self.problem.fallbacks:
            return []
        others = [name for name in self.problem.names if name not in self.problem.fallbacks]
        alone = self.priced(Choice(frozenset((row.node, name) for row in plan.placements for name in others)), True)
        first = self.problem.fallbacks[0]
        left = {row.node for row in alone.result.plan.placements if row.backend != first}
        if not left:
            return [alone]
        return [
            alone,
            self.priced(Choice(frozenset(pair for pair in alone.choice.refused if pair[0] not in left)), True),
        ]

    def priced(self, choice: Choice, trusted: bool = False) -> Priced:
        """Partition as a choice says and price the result; operators that nobody takes are beyond price."""
        self.looked_at += 1
        result = self.problem.solve(dict.fromkeys(choice.refused, MOVED), choice.dropped)
        seconds = self.seconds(result)
        self.least.add(result.plan, seconds)
        return Priced(choice, result, seconds, trusted)

    def seconds(self, result: Partitioned) -> float:
        """Return the price of a partitioning."""
        if result.plan.unplaced:
            return math.inf
        typical = self.problem.work.typical
        memories = {one.name: device for one in self.problem.backends if (device := memory_of(one)) != MAIN_MEMORY}
        values = handed_over(result.model, memories)
        moved = sum(self.estimator.copy_seconds(value_bytes(value, typical)) for value in values)
        moved += sum(
            self.estimator.transfer_seconds(value_bytes(value, typical))
            for value in (transferred(result.model, memories) if memories else ())
        )
        return sum(map(self._region, region_calls(result.model, typical))) + moved

    def _region(self, call: RegionCall) -> float:
        """Return the price of a region; its backend is asked for one of those of the same structure."""
        with call.as_it_stands() as region:
            key = (region.backend, structure(region))
        if key not in self._known:
            self._known[key] = self.estimator.region_seconds(call.region())
        return self._known[key]


def handed_over(model: ir.Model, memories: Collection[str] = ()) -> Iterator[ir.Value]:
    """Yield the values that pass between regions of different backends, once for every backend that reads one.

    ``memories`` names backends that do not compute in main memory: what one of them reads or makes is read and written
    by its kernels, or `transferred`.
    """
    seen: set[tuple[ir.Value, str]] = set()
    for graph in all_graphs(model):
        for call in graph:
            if call.domain != REGION_DOMAIN:
                continue
            backend = call.metadata_props["Compiler"]
            for value in call.inputs:
                producer = None if value is None else value.producer()
                maker = None if producer is None else producer.metadata_props.get("Compiler")
                if value is None or maker in (None, backend) or maker in memories or backend in memories:
                    continue
                if (value, backend) not in seen:
                    seen.add((value, backend))
                    yield value


def transferred(model: ir.Model, memories: Mapping[str, str]) -> Iterator[ir.Value]:
    """Yield the values that are read in another memory than they are made in, once for every memory that reads one.

    ``memories`` are those of backends that do not compute in main memory. The model's inputs and outputs are there.
    """
    seen: set[tuple[ir.Value, str]] = set()
    for graph in all_graphs(model):
        reads = [(value, _memory(call, memories)) for call in graph for value in call.inputs]
        reads += [(value, MAIN_MEMORY) for value in graph.outputs]
        for value, memory in reads:
            if value is None or value.const_value is not None or (value, memory) in seen:
                continue
            seen.add((value, memory))
            if _memory(value.producer(), memories) != memory:
                yield value


def _memory(call: ir.Node | None, memories: Mapping[str, str]) -> str:
    return MAIN_MEMORY if call is None else memories.get(call.metadata_props.get("Compiler", ""), MAIN_MEMORY)


def _baseline_first(pool: Sequence[Priced]) -> list[Priced]:
    """Return plans in the order in which they are measured: whole ones are, whatever the model says of their price."""
    return sorted(pool, key=lambda entry: (not entry.trusted, not entry.whole))


def _recorded(pool: Sequence[Priced], times: PlanTimes) -> list[tuple[Priced, float]]:
    """Return the plans with recorded times, none unless the fallback backends' has one and a rival, too."""
    known = [(entry, seconds) for entry in pool if (seconds := times.recorded(entry.result)) is not None]
    return known if any(entry.trusted for entry, _ in known) and len(known) > 1 else []


def _believed(known: tuple[Priced, float]) -> float:
    """Return a recorded time by which plans are compared: who is not trusted must be faster by more than noise."""
    entry, seconds = known
    return seconds if entry.trusted else seconds / (1 - NOISE)


def _single_backends(problem: Problem, plan: Plan) -> Iterator[Choice]:
    """Yield the plans of every single backend, with those beside it that must take what is left."""
    nodes = [row.node for row in plan.placements]
    rest = {*problem.fallbacks, problem.names[-1] if problem.names else ""}
    for chosen in problem.names:
        others = [name for name in problem.names if name != chosen and name not in rest]
        if others:
            yield Choice(frozenset((node, name) for node in nodes for name in others))


def _changes(problem: Problem, entry: Priced) -> Iterator[Choice]:
    """Yield the choices one step from a plan: without a region, an operator, a composite."""
    plan = entry.result.plan
    by_operator: dict[tuple[str, str], list[str]] = {}
    by_region: dict[tuple[str, str], list[str]] = {}
    for row in plan.placements:
        if row.region and row.backend != problem.names[-1] and row.backend not in problem.fallbacks:
            by_operator.setdefault((row.backend, row.op_type), []).append(row.node)
            by_region.setdefault((row.backend, row.region), []).append(row.node)
    for group in (by_region, by_operator):
        for (backend, _), nodes in group.items():
            yield entry.choice.without(nodes, backend)
    for composite in sorted({(row.backend, row.composite) for row in plan.placements if row.composite}):
        yield Choice(entry.choice.refused, entry.choice.dropped | {composite})
