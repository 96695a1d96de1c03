"""The schedule of several dependent reductions over a row: Softmax, LayerNormalization and their like.

All stages run row by row (`graft.core.schedule.strategies.nests.generic_nest`), after what is costly has got a stage of
its own (`graft.core.schedule.loops.kept_stages`).
"""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.fused_stages import common_rows, fuse
from graft.core.schedule.loops.kept_stages import keep_costly, with_reciprocals
from graft.core.schedule.strategies.nests.generic_nest import schedule_stages
from graft.core.schedule.strategies.nests.split_reduction import split
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.tensor_ir.visit import loads


def schedule_row_wise(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel of dependent reductions row by row."""
    stages = with_reciprocals(keep_costly(fuse(kernel.stages, kernel.outputs)), kernel.outputs)
    if not common_rows(stages):
        stages = _in_parts(stages, kernel.inputs, target.machine)
    return schedule_stages(kernel, stages, target)


def _in_parts(stages: Sequence[Stage], inputs: Sequence[Buffer], machine: Machine) -> tuple[Stage, ...]:
    """Return stages that have no rows with reductions in parts, those of what the kernel reads in front."""
    every = [part for stage in stages for part in split(stage, machine)]
    made = {stage.buffer for stage in stages}
    first = [one for one in every if one.buffer not in made and all(load.buffer in inputs for load in loads(one.value))]
    return (*first, *(one for one in every if one not in first))


STRATEGY = Strategy("fused_rows", frozenset({Trait.ROW_WISE}), of_kernel(schedule_row_wise), varies=None)
