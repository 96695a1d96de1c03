"""The refusals of a plan, gathered, and what would change them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from graft.core.reject import LOST_TO
from graft.partition.plan import Plan

ADVICE = {
    "no-pattern": "give the backend a rule or a composite for this operator, or a graph pass that rewrites it",
    "dtype": "convert the model to a type that the backend takes, or teach the backend this one",
    "rank": "reshape around the operator, or teach the backend this rank",
    "shape": "change the shape in the model or with shapes (--shape), or teach the backend this one",
    "dynamic-shape": "give the dimension a number with dims (--dim), or its input with shapes (--shape)",
    "attribute": "export the model with another value of the attribute, or teach the backend this one",
    "layout": "transpose around the operator, or teach the backend this layout",
    "constant-required": "make the operand an initialiser of the model; what is computed at run time cannot be packed",
    "size": "change the size, or raise the backend's bound",
    "fused-use": "drop the other use of the value inside the pattern, or allow Policy(duplicate_dominated=True)",
    "accuracy": "use another backend, or accept the error with --allow-inaccurate BACKEND:OP",
    "cost": "another plan or backend is known or estimated to be faster; --pin NODE=BACKEND offloads regardless",
    "region-too-small": "lower min_region_ops or min_region_flops, or raise max_regions (--min-region-ops, ...)",
    "cycle": "the region would wait for itself; take the operator between its halves as well",
    "user-excluded": "drop exclude_op, exclude_node or pin (--exclude-op, ...), or the line of the plan file",
    "compile-failed": "mend the backend; with strict (--strict) the failure is an error, with -v it has its traceback",
    "unavailable": "`graft backends doctor` says what to install",
}


def advice(code: str) -> str:
    """Return what would change a refusal with this code."""
    if code.startswith(LOST_TO):
        return "name this backend earlier in -b, or move single operators with --pin NODE=BACKEND"
    return ADVICE[code]


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """The operators that one backend did not get for one reason."""

    backend: str
    code: str
    text: str
    operators: tuple[tuple[str, int], ...]
    """Operator types with their number, most frequent first."""
    nodes: tuple[str, ...]
    flops: int

    @property
    def advice(self) -> str:
        """What would change the refusal."""
        return advice(self.code)


def reason_groups(plan: Plan) -> tuple[ReasonGroup, ...]:
    """Return a plan's refusals gathered by backend, code and text.

    Backends stand in order of preference, real refusals before those where another backend came first, large groups
    before small ones.
    """
    nodes: dict[tuple[str, str, str], list[str]] = {}
    operators: dict[tuple[str, str, str], Counter[str]] = {}
    flops: Counter[tuple[str, str, str]] = Counter()
    for row in plan.placements:
        for backend, reject in row.reasons.items():
            key = backend, reject.code, reject.text
            nodes.setdefault(key, []).append(row.node)
            operators.setdefault(key, Counter())[row.op_type] += 1
            flops[key] += row.flops
    order = {name: number for number, name in enumerate(plan.backends)}
    keys = sorted(
        nodes, key=lambda key: (order.get(key[0], len(order)), key[1].startswith(LOST_TO), -len(nodes[key]), key)
    )
    return tuple(
        ReasonGroup(
            *key,
            tuple(sorted(operators[key].items(), key=lambda item: (-item[1], item[0]))),
            tuple(nodes[key]),
            flops[key],
        )
        for key in keys
    )


def shortened(names: tuple[str, ...] | list[str], limit: int = 2) -> str:
    """Return the first few names and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
