"""What a region costs in generated code: a kernel for every group of operators that it fuses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from graft.core.operators.table import Cost, OperatorTable
from graft.partition.costs import Work, kernel_cost
from graft.plugins.codegen.fusion import FusionLimits, fuse

if TYPE_CHECKING:
    from graft.partition.region import Region


def region_costs(
    region: Region, table: OperatorTable, without: Collection[str], limits: FusionLimits
) -> Sequence[Cost]:
    """Return one cost for each kernel; only what survives fusion is read and written, views cost nothing."""
    work = Work(table)
    groups = fuse(region.nodes(), {output.value for output in region.outputs}, table, without, limits=limits)
    return [kernel_cost(group.nodes, work) for group in groups if not group.is_view]
