"""The user's constraints on single nodes and operators, as refusals."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.backend_like import BackendLike
from graft.partition.graph import RUNTIME, IndexedGraph
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.partition.tolerance import ACCURACY, Tolerance


def requested_refusals(
    graphs: Sequence[IndexedGraph], backends: Sequence[str], policy: Policy, fallbacks: Collection[str]
) -> dict[tuple[str, str], Reject]:
    """Return the refusals, by (node name, backend), that a policy's exclusions and pins amount to.

    An exclusion that names no backend holds for all but the ``fallbacks``.

    Raises PlanError for an unknown node, operator or backend and for a node both pinned and excluded.
    """
    result: dict[tuple[str, str], Reject] = {}
    by_name: dict[str, list[str]] = {}
    by_operator: dict[str, list[str]] = {}
    if policy.exclude_op or policy.exclude_node or policy.pin:
        for graph in graphs:
            for name, view in zip(graph.names, graph.views, strict=True):
                by_name[name] = [name]
                by_operator.setdefault(view.op_type, []).append(name)
    for kind, rules, known in (("operator", policy.exclude_op, by_operator), ("node", policy.exclude_node, by_name)):
        for constraint in rules:
            named, target = _split(constraint, backends, known)
            chosen = [named] if named else [name for name in backends if name not in fallbacks]
            for node in _look_up(kind, target, known):
                for backend in chosen:
                    result[node, backend] = Reject("user-excluded", f"{kind} '{target}' is excluded by the user")
    for node, backend in policy.pin.items():
        _look_up("node", node, by_name)
        if backend not in backends:
            raise PlanError(
                f"node '{node}' is pinned to backend '{backend}', which is not among {', '.join(backends) or 'none'}",
                node=node,
                backend=backend,
            )
        if (node, backend) in result:
            raise PlanError(
                f"node '{node}' is pinned to '{backend}' and excluded from it; drop one of the two", node=node
            )
        for other in backends:
            if other != backend:
                result[node, other] = Reject("user-excluded", f"the user pinned the node to {backend}")
    return result


def requested_tolerance(
    graphs: Sequence[IndexedGraph], backends: Sequence[str], policy: Policy, table: OperatorTable
) -> Tolerance:
    """Return what the policy allows to be inaccurate.

    Raises PlanError for an operator that neither the model nor the operator table has: simplifying may have removed it.
    """
    allowed: set[tuple[str, str]] = set()
    names = [operator.name for operator in table] if policy.allow_inaccurate else []
    known = {name: [name] for name in (*names, *(view.op_type for graph in graphs for view in graph.views))}
    for constraint in policy.allow_inaccurate:
        named, target = _split(constraint, backends, known)
        _look_up("operator", target, known)
        allowed |= {(backend, target) for backend in ([named] if named else backends)}
    return Tolerance(frozenset(allowed))


def special_refusals(
    graphs: Sequence[IndexedGraph], backends: Sequence[BackendLike], policy: Policy, tolerance: Tolerance
) -> dict[tuple[str, str], Reject]:
    """Return the refusals, by (node name, backend), of operators that backends which nobody asked for lose NaNs in.

    Who names a backend, pins a node to it or allows the operator to be inaccurate has asked for it.
    """
    if policy.placement in (None, "greedy"):
        return {}
    losing = [(one.name, frozenset(getattr(one, "loses_nan", ()))) for one in backends]
    return {
        (node, backend): Reject(
            ACCURACY, f"{backend} takes a NaN for a number in {view.op_type}; allow it to be inaccurate to have that"
        )
        for backend, operators in losing
        if operators
        for graph in graphs
        for node, view in zip(graph.names, graph.views, strict=True)
        if view.op_type in operators
        and (backend, view.op_type) not in tolerance.allowed
        and policy.pin.get(node) != backend
    }


def plan_refusals(plan: Plan, model: str, backends: Sequence[str]) -> dict[tuple[str, str], Reject]:
    """Return the refusals, by (node name, backend), that leave every node the backend that a plan gives it.

    ``model`` is the fingerprint of the model at hand. Raises PlanError if the plan is another model's, or places a
    node on a backend that is not among ``backends``.
    """
    if plan.model != model:
        raise PlanError(f"the plan is for another model: its fingerprint is {plan.model}, the model's is {model}")
    result: dict[tuple[str, str], Reject] = {}
    for row in plan.placements:
        if row.backend not in (*backends, RUNTIME, ""):
            raise PlanError(
                f"the plan places {row.op_type} (node '{row.node}') on backend '{row.backend}', "
                f"which is not among {', '.join(backends) or 'none'}",
                node=row.node,
                backend=row.backend,
            )
        for backend in backends:
            if backend != row.backend:
                other = Reject("user-excluded", f"the plan places the node on {row.backend or 'no backend'}")
                result[row.node, backend] = row.reasons.get(backend, other)
    return result


def require_plan(plan: Plan, wanted: Plan) -> None:
    """Raise PlanError if a plan that was given is not what came out, in whatever order it has its nodes."""
    rows, asked = (sorted(one.placements, key=lambda row: row.node) for one in (plan, wanted))
    counts, planned = (Counter(row.node for row in one) for one in (rows, asked))
    unlike = next((name for name in sorted({*counts, *planned}) if counts[name] != planned[name]), None)
    if unlike is not None:
        raise PlanError(
            f"the plan places node '{unlike}' {planned[unlike]} times, and the model has it {counts[unlike]} times",
            node=unlike,
        )
    for row, want in zip(rows, asked, strict=True):
        if row.backend != want.backend:
            reason = row.reasons.get(want.backend, "it is not asked for this node")
            raise PlanError(
                f"the plan places {want.op_type} (node '{want.node}') on '{want.backend}', which refuses it: {reason}",
                node=want.node,
                backend=want.backend,
            )


def require_pins(plan: Plan, policy: Policy) -> None:
    """Raise PlanError if a pinned node did not reach its backend, with that backend's reason."""
    if not policy.pin:
        return
    rows = {placement.node: placement for placement in plan.placements}
    for node, backend in policy.pin.items():
        row = rows[node]
        if row.backend != backend:
            raise PlanError(
                f"{row.op_type} (node '{node}') is pinned to '{backend}', which refuses it: {row.reasons[backend]}",
                node=node,
                backend=backend,
            )


def _split(constraint: str, backends: Sequence[str], known: Iterable[str]) -> tuple[str, str]:
    """Split ``backend:name``; a name that itself has a colon stays whole."""
    backend, colon, rest = constraint.partition(":")
    if colon and constraint not in known and backend in backends:
        return backend, rest
    return "", constraint


def _look_up(kind: str, name: str, known: dict[str, list[str]]) -> list[str]:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise PlanError(f"the model has no {kind} '{name}'{hint}", name=name)
