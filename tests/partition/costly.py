"""Backends that say what their regions cost, and times by the backends of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graft.core.operators.definition.table import Cost
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.plan import Plan
from graft.partition.policy import PlacementMode, Policy
from graft.partition.region import Region, regions
from tests.partition.graphs import Toy, small


class Costly(Toy):
    """A backend that says what its regions cost."""

    def __init__(self, name: str, costs: Cost | list[Cost], fallback: bool = False) -> None:
        super().__init__(name, answer=lambda node: True, fallback=fallback)
        object.__setattr__(self, "costs", costs)

    def cost(self, region: Region) -> Cost | list[Cost]:
        return self.costs  # type: ignore[attr-defined,no-any-return]


@dataclass
class Clock:
    """Times by the backends of a plan, in the order in which they are first met."""

    known: dict[tuple[str, ...], float]
    measurable: dict[tuple[str, ...], float] = field(default_factory=dict)
    measured: list[tuple[str, ...]] = field(default_factory=list)

    def recorded(self, result: Partitioned) -> float | None:
        return self.known.get(backends_of(result))

    def measure(self, results: Sequence[Partitioned]) -> None:
        for one in results:
            self.measured.append(backends_of(one))
            if (seconds := self.measurable.get(backends_of(one))) is not None:
                self.known[backends_of(one)] = seconds


def backends_of(result: Partitioned) -> tuple[str, ...]:
    return tuple(dict.fromkeys(region.backend for region in regions(result.model)))


RIVALS = (Costly("npu", Cost(10**10, 0)), Costly("rest", Cost(10**9, 0), fallback=True))


def plan_by(mode: PlacementMode, clock: Clock) -> Plan:
    return partition(small("y = Relu(x)"), RIVALS, policy=Policy(placement=mode), times=clock).plan
