"""The whole way: composites, placement, regions, and the partitioned model with its plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import onnx_ir as ir

from graft.core.collection import collection_paused
from graft.core.lazy import Lazy
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.backend_like import BackendLike
from graft.partition.partition_graph import KeptNames
from graft.partition.placement.constraints import plan_refusals, require_pins, require_plan
from graft.partition.placement.cost_search import PlanTimes, cheapest, faster
from graft.partition.placement.estimators import Estimator, Roofline
from graft.partition.placement.fingerprint import fingerprint
from graft.partition.placement.problem import Partitioned, Problem
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.partition.totals import Totals
from graft.patterns.checks.tables import require_composites, shadow_text, shadowed
from graft.patterns.composite import Composite

__all__ = ["Partitioned", "Policy", "partition"]

log = logging.getLogger("graft.partition")


def partition(
    model: ir.Model,
    backends: Sequence[BackendLike],
    *,
    policy: Policy | None = None,
    refusals: Mapping[tuple[str, str], Reject] | None = None,
    plan: Plan | None = None,
    estimator: Estimator | None = None,
    times: PlanTimes | None = None,
    operators: OperatorTable = OPERATORS,
    kept: KeptNames | None = None,
) -> Partitioned:
    """Partition a model among backends in order of preference; the model given is not changed.

    ``refusals`` are facts known beforehand, by (node name, backend name), such as ``compile-failed``. ``plan`` is one
    made (and edited) before: every node goes to the backend that it names, or the call fails. ``estimator`` prices
    regions (by a model if left out) and ``times`` knows or measures plans where ``policy.placement`` asks for it; with
    an estimator, a plan by default placement says what another placement would gain. Regions that were compiled before
    have the names of ``kept``. Operators that nobody takes stay in the graph, with placement "" in the plan
    (`Plan.require_complete`).

    Raises PlanError for contradictory options, PluginError and PatternError for a backend's faults, ModelError for a
    cyclic graph.
    """
    policy = policy or Policy()
    names = [backend.name for backend in backends]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise PlanError(f"backend '{doubled[0]}' is listed twice; list each backend once", backend=doubled[0])
    for backend in backends:
        _require_table(backend.name, tuple(backend.patterns))
    with collection_paused():
        wanted = {} if plan is None else plan_refusals(plan, fingerprint(model), names)
        totals: Totals | None = None
        problem = Problem(model, tuple(backends), policy, {**wanted, **(refusals or {})}, operators, kept or {})
        if plan is not None:
            result = problem.solve(dropped=plan.dropped)
            result = replace(result, plan=replace(result.plan, gain=plan.gain))
        elif policy.placement in (None, "greedy"):
            result = problem.solve()
            if policy.placement is None and estimator is not None and set(problem.names) - set(problem.fallbacks):
                gain = Lazy(partial(faster, problem, result, estimator, times))
                result = replace(result, plan=replace(result.plan, gain=gain))
        else:
            if times is None and policy.placement == "measured":
                raise PlanError(
                    "placement 'measured' needs times of plans; pass times=graft.compiler.plan_times.times_here(...)"
                )
            prices = estimator or Roofline(problem.backends, problem.operators)
            found = cheapest(problem, prices, None if policy.placement == "model" else times)
            result, totals = found.result, found.totals
        by_cost = plan is None and policy.placement not in (None, "greedy")
        result = problem.with_true_reasons(result, by_cost=by_cost)
        if totals is not None:
            result = replace(result, plan=totals.explained(result.plan))
    require_pins(result.plan, policy)
    if plan is not None and not refusals:
        require_plan(result.plan, plan)
    return result


@lru_cache(maxsize=64)
def _require_table(backend: str, rows: tuple[Composite, ...]) -> None:
    """Refuse a table with a row that is wrong, and say which rows others leave nothing; a table is checked once."""
    require_composites(backend, rows)
    for row, earlier in shadowed(rows):
        log.warning("%s", shadow_text(backend, row, earlier))
