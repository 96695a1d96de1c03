"""What differs between two plans, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graft.partition.plan import Placement, Plan

Change = Literal["added", "removed", "operator", "backend", "composite", "reasons"]


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One difference at one node: what it is about, and both sides; ``reason`` is why the node left its backend."""

    node: str
    op_type: str
    what: Change
    before: str
    after: str
    reason: str = ""


def plan_diff(before: Plan, after: Plan) -> tuple[PlanChange, ...]:
    """Return the differences, in the order of ``before``, then nodes that only ``after`` has.

    A node's most telling difference is given: its operator, else its backend, its composite, its reasons. How nodes
    are grouped into regions follows from these and is not compared.
    """
    new = {row.node: row for row in after.placements}
    old = {row.node for row in before.placements}
    changes = [change for row in before.placements if (change := _change(row, new)) is not None]
    changes += [PlanChange(row.node, row.op_type, "added", "", row.backend) for row in after.placements
                if row.node not in old]  # fmt: skip
    return tuple(changes)


def _change(row: Placement, new: Mapping[str, Placement]) -> PlanChange | None:
    other = new.get(row.node)
    if other is None:
        return PlanChange(row.node, row.op_type, "removed", row.backend, "")
    if row.op_type != other.op_type:
        return PlanChange(row.node, row.op_type, "operator", row.op_type, other.op_type)
    if row.backend != other.backend:
        reason = str(other.reasons.get(row.backend, "")) if row.backend else ""
        return PlanChange(row.node, row.op_type, "backend", row.backend, other.backend, reason)
    if row.composite != other.composite:
        return PlanChange(row.node, row.op_type, "composite", row.composite, other.composite)
    if row.reasons != other.reasons:
        return PlanChange(row.node, row.op_type, "reasons", _reasons(row), _reasons(other))
    return None


def _reasons(row: Placement) -> str:
    return ", ".join(f"{backend}: {reject.code}" for backend, reject in row.reasons.items())
