"""What whole plans take, chosen and not chosen: the two numbers behind each reason ``cost``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graft.core.reject import Reject
from graft.partition.plan import Placement, Plan, Reasons

MOVED = Reject("cost", "another placement is cheaper as a whole")
"""Why a node is not where a search has tried it, before the search is over."""
BY_MODEL, MEASURED = "by the model", "as measured here"

Seat = tuple[str, str]
"""(node, backend)."""


@dataclass(slots=True)
class Least:
    """The least seconds of a plan that has a node on a backend."""

    seconds: dict[Seat, float] = field(default_factory=dict)

    def add(self, plan: Plan, seconds: float) -> None:
        """Take a plan into account."""
        for row in plan.placements:
            seat = row.node, row.backend
            if seconds < self.seconds.get(seat, float("inf")):
                self.seconds[seat] = seconds


@dataclass(frozen=True, slots=True)
class Totals:
    """The seconds of the plan that was chosen and the least of those with a node elsewhere, modelled and measured.

    ``measured`` is None, and ``elsewhere_measured`` empty, where no measured times decided.
    """

    modelled: float
    elsewhere: Mapping[Seat, float]
    measured: float | None = None
    elsewhere_measured: Mapping[Seat, float] = field(default_factory=dict)
    margin: float = 0.0
    """The share by which the model must call a plan cheaper than the fallback backends' for it to be taken."""

    def explained(self, plan: Plan) -> Plan:
        """Return a plan in which the reason ``cost`` of what the search moved says both totals."""
        return replace(plan, placements=tuple(self._row(row) for row in plan.placements))

    def _row(self, row: Placement) -> Placement:
        if isinstance(row.reasons, Reasons):  # some are found when they are first read
            return replace(row, reasons=Reasons(row, self._reasons))
        return replace(row, reasons=self._reasons(row))

    def _reasons(self, row: Placement) -> Mapping[str, Reject]:
        return {name: self._said(row.node, name) if why == MOVED else why for name, why in row.reasons.items()}

    def _said(self, node: str, backend: str) -> Reject:
        seat = node, backend
        here, there = self.measured, self.elsewhere_measured.get(seat)
        if here is not None and there is not None:
            return _moved(f"{milliseconds(here)} against {milliseconds(there)} with {backend} here, {MEASURED}")
        there = self.elsewhere.get(seat)
        if there is None:
            return MOVED
        if here is not None:
            found = f"{milliseconds(here)} {MEASURED}; with {backend} here it was not measured, {BY_MODEL} "
            return _moved(f"{found}{milliseconds(self.modelled)} against {milliseconds(there)}")
        text = f"{milliseconds(self.modelled)} against {milliseconds(there)} with {backend} here, {BY_MODEL}"
        small = there <= self.modelled
        return _moved(f"{text}; a gain counts from {self.margin:.0%} on" if small else text)


def _moved(text: str) -> Reject:
    return Reject(MOVED.code, f"{MOVED.text}: {text}")


def milliseconds(seconds: float) -> str:
    """Return a time with three digits, such as ``0.123 ms``."""
    number = 1e3 * seconds
    return f"{number:.0f} ms" if number >= 1000 else f"{number:.3g} ms"
