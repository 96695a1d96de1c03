"""Plans that say which products a precision rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graft.partition.region import regions

if TYPE_CHECKING:
    from graft.core.machine.target import Target
    from graft.partition.placement.problem import Partitioned
    from graft.plugins.backend import Backend


def with_precision(result: Partitioned, backends: Sequence[Backend], target: Target) -> Partitioned:
    """Return a partitioned model whose plan says which operators the target's precision rounds the factors of."""
    if target.precision == "float32":
        return result
    known = {backend.name: backend for backend in backends}
    nodes: set[str] = set()
    for region in regions(result.model):
        if region.backend in known:
            nodes.update(known[region.backend].rounded(region, target))
    return replace(result, plan=result.plan.with_precision(nodes, target.precision))
