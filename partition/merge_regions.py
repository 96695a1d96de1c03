"""MergeRegions: the largest regions whose graph stays acyclic, in linear time.

For one backend, let the *depth* of a node be the largest number of times that a path to it leaves that backend's
nodes. Then all of the backend's nodes of one depth form one region:

1. it is convex, because a path that leaves the backend's nodes comes back one deeper;
2. contracting these regions leaves the graph acyclic, for the same reason;
3. no two of them can be merged: a node of depth k + 1 has a node of depth k before it with a foreign node between;
4. there is no partition into fewer regions; and the result depends on nothing but the graph.

A node whose consumers lie deeper may go to a later region as well, where that makes fewer bytes pass from one region
to the other (`graft.partition.region_cut`); 1 to 4 still hold. Backends take turns in order of preference, each on
the graph in which the regions of the earlier ones are single nodes, so an earlier backend's regions do not depend on
the later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graft.partition.region_cut import Traffic, cheaper_cut


@dataclass(frozen=True, slots=True)
class MergeRegions:
    """Gives every unit its region. Units are numbered in topological order; None is a unit that stays alone."""

    name: ClassVar[str] = "merge-regions"
    backends: tuple[str, ...]

    def run(
        self,
        predecessors: Sequence[Sequence[int]],
        placement: Sequence[str | None],
        traffic: Traffic | None = None,
    ) -> list[list[int]]:
        """Return the regions in topological order, each a list of units; units outside ``backends`` stand alone.

        ``predecessors[u]`` are the units that unit u reads, all smaller than u. Without ``traffic`` every unit goes to
        the first region that it can be in.
        """
        order: list[list[int]] = [[unit] for unit in range(len(placement))]
        for backend in self.backends:
            if backend in placement:
                order = _merge([name == backend for name in placement], order, predecessors, traffic)
        return order


def _merge(
    mine: list[bool], order: list[list[int]], predecessors: Sequence[Sequence[int]], traffic: Traffic | None
) -> list[list[int]]:
    """Return the groups of ``order`` with the backend's units merged by depth, again in topological order."""
    depth = _depths(mine, order, predecessors)
    if traffic is not None and max(depth):
        moved = cheaper_cut(mine, order, predecessors, depth, traffic)
        if moved:
            depth = _depths(mine, order, predecessors, moved)
    deepest = max(depth)
    foreign: list[list[list[int]]] = [[] for _ in range(deepest + 1)]
    regions: list[list[int]] = [[] for _ in range(deepest + 1)]
    for group in order:
        if mine[group[0]]:
            regions[depth[group[0]]].extend(group)
        else:
            foreign[depth[group[0]]].append(group)
    result: list[list[int]] = []
    for level in range(deepest + 1):
        result.extend(foreign[level])
        if regions[level]:
            result.append(regions[level])
    return result


def _depths(
    mine: list[bool], order: list[list[int]], predecessors: Sequence[Sequence[int]], moved: dict[int, int] | None = None
) -> list[int]:
    """Return the depth of every unit; ``moved`` gives some of the backend's units a larger one."""
    depth = [0] * len(mine)
    for group in order:
        own = mine[group[0]]
        level = moved.get(group[0], 0) if moved and own else 0
        for unit in group:
            for other in predecessors[unit]:
                reached = depth[other]
                if not own and mine[other]:
                    reached += 1
                if reached > level:
                    level = reached
        if level:
            for unit in group:
                depth[unit] = level
    return depth
