"""What a region costs in generated code: a kernel for every group of operators that it fuses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from graft.core.machine.rows import GENERIC
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Cost, OperatorTable
from graft.partition.costs import Work, kernel_cost
from graft.plugins.codegen.grouping.fusion import FusionLimits, fuse
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.grouping.region_layout import RegionGraph, between_transposes

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.partition.region import Region


def region_costs(
    region: Region, table: OperatorTable, without: Collection[str], limits: FusionLimits
) -> Sequence[Cost]:
    """Return one cost for each kernel; only what survives fusion is read and written, views cost nothing."""
    work = Work(table, region.typical)
    return [kernel_cost(nodes, work) for nodes in kernel_nodes(region, table, without, limits)]


def kernel_nodes(
    region: Region, table: OperatorTable, without: Collection[str], limits: FusionLimits
) -> Sequence[Sequence[NodeView]]:
    """Return the nodes of each kernel."""
    nodes, outputs = region.nodes(), {output.value for output in region.outputs}
    layouts = (
        {}
        if "channels-last" in without
        else between_transposes(RegionGraph(nodes, outputs, Lowerings(table), Target(GENERIC)))
    )
    groups = fuse(nodes, outputs, table, without, layouts, limits)
    return [group.nodes for group in groups if not group.is_view]
