"""Regions that are not worth their boundary, as refusals."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from graft.core.reject import Reject
from graft.partition.costs import Work
from graft.partition.partition_graph import Cut, GraphCuts
from graft.partition.policy import Policy

SMALL = "region-too-small"


def too_small(cuts: GraphCuts, policy: Policy, work: Work, fallbacks: Collection[str]) -> dict[tuple[str, str], Reject]:
    """Return refusals, by (node name, backend), for the nodes of regions below the policy's bounds.

    ``fallbacks`` are the backends for which bounds do not hold.

    Of the backends that have regions to lose, only the first in line loses some: what it loses may make the regions
    of the next ones larger.
    """
    regions = [(graph, cut) for graph, cut in all_cuts(cuts) if cut.backend and cut.backend not in fallbacks]
    lost: list[tuple[GraphCuts, Cut, str]] = []
    for graph, cut in regions:
        done = _flops(graph, cut, work) if policy.min_region_flops else 0
        if len(cut.nodes) < policy.min_region_ops:
            count = len(cut.nodes)
            text = (
                f"the region has {count} operator{'' if count == 1 else 's'}, at least {policy.min_region_ops} wanted"
            )
            lost.append((graph, cut, text))
        elif done < policy.min_region_flops:
            lost.append((graph, cut, f"the region has {done} FLOPs, at least {policy.min_region_flops} wanted"))
    if not lost and policy.max_regions is not None:
        lost = _surplus(regions, policy.max_regions, work)
    first = lost[0][1].backend if lost else ""
    return {
        (graph.graph.names[node], first): Reject(SMALL, text)
        for graph, cut, text in lost
        if first and cut.backend == first
        for node in cut.nodes
    }


def all_cuts(cuts: GraphCuts) -> Iterator[tuple[GraphCuts, Cut]]:
    """Yield every region of a graph and of its bodies."""
    for cut in cuts.cuts:
        if cut.backend is not None:
            yield cuts, cut
    for inner in cuts.inner.values():
        for body in inner.values():
            yield from all_cuts(body)


def _surplus(regions: list[tuple[GraphCuts, Cut]], most: int, work: Work) -> list[tuple[GraphCuts, Cut, str]]:
    """Return the smallest regions of each backend beyond ``most``."""
    by_backend: dict[str, list[tuple[GraphCuts, Cut]]] = {}
    for graph, cut in regions:
        by_backend.setdefault(cut.backend or "", []).append((graph, cut))
    surplus: list[tuple[GraphCuts, Cut, str]] = []
    for own in by_backend.values():
        own.sort(key=lambda item: (_flops(item[0], item[1], work), len(item[1].nodes)), reverse=True)
        surplus.extend(
            (graph, cut, f"{most} larger region{'s are' if most != 1 else ' is'} enough") for graph, cut in own[most:]
        )
    return surplus


def _flops(graph: GraphCuts, cut: Cut, work: Work) -> int:
    return sum(work.flops(graph.graph.views[node]) for node in cut.nodes)
