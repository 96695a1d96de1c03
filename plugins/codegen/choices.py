"""What a backend that generates code may decide in its own way, between a region and its scheduled kernels."""

from __future__ import annotations

from typing import ClassVar

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import Strategy, StrategyTable
from graft.plugins.codegen.grouping.fusion import FusionLimits
from graft.plugins.codegen.grouping.region_layout import Layouts, RegionGraph, region_layouts


class CodegenChoices:
    """The decisions, each with what Graft decides; a backend overrides those in which its machine differs."""

    name: ClassVar[str] = ""
    """The backend, whose own lowerings of custom datatypes go before those for any; "" is none in particular."""
    fusion: ClassVar[FusionLimits] = FusionLimits()

    strategies: ClassVar[tuple[Strategy, ...]] = ()
    """Rows that are asked before Graft's; what they build is verified, and the next row asked where it is wrong."""

    @property
    def opens_extents(self) -> bool:
        """Whether kernels that differ in extents alone may be one, whose extents are variables."""
        return True

    @property
    def table_of_strategies(self) -> StrategyTable:
        """All rows that are asked."""
        return TABLE.with_rows(self.strategies) if self.strategies else TABLE

    def schedule(self, kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled:
        """Return a kernel in loops; ``parameters`` are what tuning found for it."""
        return schedule(kernel, target, parameters, self.table_of_strategies)

    def layouts(self, graph: RegionGraph) -> Layouts:
        """Return the values inside a region that are stored in another order of axes than the graph has.

        ``graph.strategies`` begins with those of the backend, whose preferences (`Strategy.prefers`) come first.
        """
        return region_layouts(graph)


GRAFTS_OWN = CodegenChoices()
"""Graft's own decisions."""
