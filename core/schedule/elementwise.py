"""The schedule of elementwise and injective kernels: one expression per output, nothing in memory between operators."""

from __future__ import annotations

from graft.core.schedule.generic import fuse, schedule_stages
from graft.core.schedule.inline import inline_stages
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.nest import operations
from graft.core.target import Target

REPEATED = 4
"""How many times the work of the operators the inlined expressions may be before results are kept instead."""


def schedule_elementwise(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel without reductions in one loop nest per output.

    Everything is inlined; equal subexpressions are computed once. Only where operators read each other's results at
    many different places are intermediate results kept.
    """
    stages = inline_stages(kernel.stages, kernel.outputs)
    before, after = (sum(operations(stage.value) for stage in part) for part in (kernel.stages, stages))
    if after > REPEATED * before:
        stages = fuse(kernel.stages, kernel.outputs)
    return schedule_stages(kernel, stages, target)
