"""Regions that are too large for their backend's device, in parts that are not.

The units of a region stand in topological order, and no path leaves a region and comes back to it, so consecutive
units are regions of their own and the graph stays acyclic. A part takes units while its device has room for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.device_memory import DeviceMemory
from graft.core.graph.view import constant_tensor
from graft.core.reject import Reject
from graft.partition.backend_like import BackendLike
from graft.partition.costs import value_bytes
from graft.partition.partition_graph import Cut, GraphCuts
from graft.partition.region_cut import Traffic


def device_memory(backend: BackendLike) -> DeviceMemory:
    """Return the memory that a backend states of its device."""
    stated = getattr(backend, "memory", None)
    return stated if isinstance(stated, DeviceMemory) else DeviceMemory()


@dataclass(slots=True)
class Part:
    """Consecutive units of a region, and what they need."""

    reason: str
    """Why it is no part of the one before, "" of the first."""
    units: list[int] = field(default_factory=list)
    weights: int = 0
    activations: int = 0
    known: set[ir.Value] = field(default_factory=set)
    """The values that its units read or make."""


def parts(group: Sequence[int], memory: DeviceMemory, traffic: Traffic, layers: int | None = None) -> list[Part]:
    """Return a region, its units in topological order, in parts of at most ``layers`` that the device has room for.

    A unit that is too large by itself is a part of its own.
    """
    if memory == DeviceMemory() and layers is None:
        return [Part("", list(group))]
    found = [Part("")]
    last = _last_reads(group, traffic)
    for unit in group:
        needs = _with(found[-1], unit, traffic, last)
        if found[-1].units:
            lack = memory.lacking(needs.weights, needs.activations)
            reason = f"with '{_name(unit, traffic)}' it would have {lack}" if lack else ""
            if layers is not None and len(found[-1].units) >= layers:
                reason = f"a region has at most {layers} layer{'' if layers == 1 else 's'}"
            if reason:
                found.append(Part(reason))
                needs = _with(found[-1], unit, traffic, last)
        found[-1] = needs
    return found


def _with(part: Part, unit: int, traffic: Traffic, last: Mapping[ir.Value, int]) -> Part:
    """Return a part with one more unit.

    What it reads from outside is there from its beginning. What is read or returned behind a unit stays until then.
    """
    reads, writes = traffic.reads(unit), [one for one in traffic.writes(unit) if one in last]
    new = dict.fromkeys(value for value in (*reads, *_constants(unit, traffic)) if value not in part.known)
    given = sum(traffic.bytes(value) for value in new if constant_tensor(value) is None)
    weights = part.weights + sum(value_bytes(value, {}) for value in new if constant_tensor(value) is not None)
    known = {*part.known, *new, *writes} if new or writes else part.known
    live = {*reads, *writes} | {one for one in known if last.get(one, -1) > unit}
    here = sum(traffic.bytes(value) for value in live if constant_tensor(value) is None)
    return Part(part.reason, [*part.units, unit], weights, max(part.activations + given, here), known)


def _last_reads(group: Sequence[int], traffic: Traffic) -> dict[ir.Value, int]:
    """Return by value that units of a region exchange the last of all units that reads it, after all for outputs."""
    end = len(traffic.units.units)
    last: dict[ir.Value, int] = {}
    for unit in group:
        for value in (*traffic.reads(unit), *traffic.writes(unit)):
            readers = [one for one in traffic.touching(value) if one != traffic.writer(value)]
            if readers or value.is_graph_output():
                last[value] = end if value.is_graph_output() else max(readers)
    return last


def _constants(unit: int, traffic: Traffic) -> Iterator[ir.Value]:
    for node in traffic.units.units[unit].body:
        for value in traffic.graph.reads(node):
            if constant_tensor(value) is not None:
                yield value


def _name(unit: int, traffic: Traffic) -> str:
    return traffic.graph.names[traffic.units.units[unit].nodes[0]]


@dataclass(frozen=True, slots=True)
class RegionParts:
    """Parts regions once it is settled what they hold."""

    memories: Mapping[str, DeviceMemory]
    """By backend what its device has room for, where that is limited."""
    layers: Mapping[str, int]
    """By backend the most units of a region, where that is limited."""
    typical: Mapping[str, int]
    """The numbers that symbols count with."""

    def run(self, cuts: GraphCuts) -> dict[tuple[str, str], Reject]:
        """Part the regions of a graph and of its bodies.

        Return refusals, by (node name, backend), for units that the device has no room for even by themselves.
        """
        found: dict[tuple[str, str], Reject] = {}
        traffic = Traffic(cuts.graph, cuts.units, self.typical)
        parted: list[Cut] = []
        for cut in cuts.cuts:
            memory = self.memories.get(cut.backend or "", DeviceMemory())
            for part in parts(cut.units, memory, traffic, self.layers.get(cut.backend or "")):
                nodes = sorted(node for unit in part.units for node in cuts.units.units[unit].nodes)
                parted.append(Cut(cut.backend, part.units, nodes, parted=part.reason))
                if lack := memory.lacking(part.weights, part.activations):
                    names = (cuts.graph.names[node] for node in nodes)
                    found.update({(name, cut.backend or ""): Reject("size", f"it has {lack}") for name in names})
        cuts.cuts = parted
        for inner in (body for bodies in cuts.inner.values() for body in bodies.values()):
            found.update(self.run(inner))
        return found
