"""What a backend that generates code may decide in its own way, between a region and its scheduled kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

import onnx_ir as ir

from graft.core.machine.target import Target
from graft.core.model.view import NodeView
from graft.core.operators.table import OperatorTable
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.select import schedule
from graft.core.schedule.strategies.table import TABLE
from graft.core.schedule.strategy import Strategy
from graft.plugins.codegen.fusion import FusionLimits
from graft.plugins.codegen.image_layout import values_last


class CodegenChoices:
    """The decisions, each with what Graft decides; a backend overrides those in which its machine differs."""

    name: ClassVar[str] = ""
    """The backend, whose own lowerings of custom datatypes go before those for any; "" is none in particular."""
    fusion: ClassVar[FusionLimits] = FusionLimits()

    strategies: ClassVar[tuple[Strategy, ...]] = ()
    """Rows that are asked before Graft's; what they build is verified, and the next row asked where it is wrong."""

    def schedule(self, kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled:
        """Return a kernel in loops; ``parameters`` are what tuning found for it."""
        table = TABLE.with_rows(self.strategies) if self.strategies else TABLE
        return schedule(kernel, target, parameters, table)

    def channels_last(
        self, nodes: Sequence[NodeView], outputs: Collection[ir.Value], table: OperatorTable, target: Target
    ) -> Collection[ir.Value]:
        """Return the values inside a region that are stored with channels last; ``outputs`` leave it and are not."""
        return set() if "channels-last" in target.without else values_last(nodes, outputs, table, target.precision)


GRAFTS_OWN = CodegenChoices()
"""Graft's own decisions."""
