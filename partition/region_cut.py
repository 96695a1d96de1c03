"""Where the regions of one backend meet: the units between them go to the side that lets fewer bytes pass.

Two regions of one backend meet where a foreign node keeps them apart. A unit that no foreign node forces into the
earlier one may stand on either side; which units change sides is a minimal cut, in which a value counts its bytes
once if it is needed on the other side too. Boundaries are settled from the first to the last, each on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.partition.costs import value_bytes
from graft.partition.graph import IndexedGraph
from graft.partition.min_cut import INFINITE, SINK, SOURCE, Network
from graft.partition.units import Units

MOST_UNITS = 4000
"""Boundaries with more movable units stay as they are: the cut would take longer than it saves."""


@dataclass(slots=True)
class Traffic:
    """Which values units read, and how large they are; found out when it is asked for."""

    graph: IndexedGraph
    units: Units
    typical: Mapping[str, int]
    """The numbers that symbols count with."""
    _bytes: dict[ir.Value, int] = field(default_factory=dict)

    def reads(self, unit: int) -> list[ir.Value]:
        """Return the values that a unit reads at run time, each once."""
        nodes = self.units.units[unit].body
        inside = {value for node in nodes for value in self.graph.nodes[node].outputs} if len(nodes) > 1 else set()
        read = {value: None for node in nodes for value in self.graph.reads(node) if value not in inside}
        return [value for value in read if constant_tensor(value) is None]

    def writes(self, unit: int) -> list[ir.Value]:
        """Return the values that a unit produces."""
        return [value for node in self.units.units[unit].nodes for value in self.graph.nodes[node].outputs]

    def touching(self, value: ir.Value) -> list[int]:
        """Return the units that produce or read a value, as far as their nodes stand in this graph themselves."""
        writer = self.writer(value)
        number, unit_of = self.graph.number, self.units.unit_of
        readers = [unit_of[number[use.node]] for use in value.uses() if use.node in number]
        return readers if writer is None else [writer, *readers]

    def writer(self, value: ir.Value) -> int | None:
        """Return the unit that produces a value, None for what comes from outside the graph."""
        producer = value.producer()
        number = None if producer is None else self.graph.number.get(producer)
        return None if number is None else self.units.unit_of[number]

    def bytes(self, value: ir.Value) -> int:
        """Return the bytes of a value, at least 1."""
        if value not in self._bytes:
            self._bytes[value] = max(1, value_bytes(value, self.typical))
        return self._bytes[value]


def cheaper_cut(
    mine: list[bool],
    order: list[list[int]],
    predecessors: Sequence[Sequence[int]],
    depth: Sequence[int],
    traffic: Traffic,
) -> dict[int, int]:
    """Return the units of the backend that go to a later region, with its depth.

    ``mine`` marks the backend's units, ``depth`` is that of `MergeRegions`; ``order`` is topological.
    """
    latest = _latest(mine, order, predecessors, depth)
    level = {group[0]: depth[group[0]] for group in order if mine[group[0]]}
    by_level: dict[int, list[int]] = {}
    for unit, value in level.items():
        by_level.setdefault(value, []).append(unit)
    moved: dict[int, int] = {}
    for boundary in range(max(by_level, default=0)):
        changing = _boundary(boundary, by_level, level, latest, predecessors, traffic)
        for unit in changing:
            moved[unit] = level[unit] = boundary + 1
        by_level[boundary + 1] = [*changing, *by_level.get(boundary + 1, ())]
    return moved


def _latest(
    mine: list[bool], order: list[list[int]], predecessors: Sequence[Sequence[int]], depth: Sequence[int]
) -> list[int]:
    """Return the largest depth that each unit can have while the units behind foreign ones keep theirs."""
    latest = [max(depth)] * len(mine)
    for group in reversed(order):
        own = mine[group[0]]
        limit = min(latest[unit] for unit in group)
        for unit in group:
            latest[unit] = limit
            for other in predecessors[unit]:
                bound = depth[unit] - 1 if own and not mine[other] else limit
                if bound < latest[other]:
                    latest[other] = bound
    return latest


def _boundary(
    boundary: int,
    by_level: dict[int, list[int]],
    level: dict[int, int],
    latest: Sequence[int],
    predecessors: Sequence[Sequence[int]],
    traffic: Traffic,
) -> list[int]:
    """Return the units of one region that go to the next one, in order."""
    later = by_level.get(boundary + 1, [])
    movable = {unit for unit in by_level[boundary] if latest[unit] > boundary}
    candidates = _candidates(movable, later, traffic)
    if not candidates or len(candidates) > MOST_UNITS:
        return []
    network = Network()
    vertex = {unit: network.vertex() for unit in sorted(candidates)}
    readers: dict[ir.Value, set[int]] = {}
    here = [unit for unit in by_level[boundary] if unit not in candidates]
    for side, units in ((SINK, later), (SOURCE, here)):
        for unit in units:
            for value in traffic.reads(unit):
                readers.setdefault(value, set()).add(side)
    for unit in sorted(candidates):
        for other in predecessors[unit]:
            if other in candidates:
                network.arc(vertex[unit], vertex[other], INFINITE)
        for value in traffic.reads(unit):
            readers.setdefault(value, set()).add(vertex[unit])
    for value, sides in readers.items():
        _carry(network, value, sides, boundary, level, vertex, traffic)
    chosen = network.sink_side()
    return [unit for unit in by_level[boundary] if vertex.get(unit, SOURCE) in chosen]


def _candidates(movable: set[int], later: Sequence[int], traffic: Traffic) -> set[int]:
    """Return the movable units that share a value, directly or through others, with the later region.

    Every consumer of a movable unit in its region is movable too, so the candidates are closed under consumers.
    """
    candidates: set[int] = set()
    stack = list(later) if movable else []
    while stack and len(candidates) <= MOST_UNITS:
        unit = stack.pop()
        for value in (*traffic.reads(unit), *(traffic.writes(unit) if unit in candidates else ())):
            for other in traffic.touching(value):
                if other in movable and other not in candidates:
                    candidates.add(other)
                    stack.append(other)
    return candidates


def _carry(
    network: Network,
    value: ir.Value,
    sides: set[int],
    boundary: int,
    level: dict[int, int],
    vertex: dict[int, int],
    traffic: Traffic,
) -> None:
    """Let a value cost its bytes where it is needed beyond the side on which it is produced or also read."""
    writer = traffic.writer(value)
    if writer not in vertex and sides <= {SOURCE, SINK}:
        return
    size = traffic.bytes(value)
    far = network.vertex()
    for side in sorted(sides):
        network.arc(far, side, INFINITE)
    if writer is not None and level.get(writer) == boundary:
        network.arc(vertex.get(writer, SOURCE), far, size)
        return
    near = network.vertex()
    for side in sorted(sides):
        network.arc(side, near, INFINITE)
    network.arc(near, far, size)
