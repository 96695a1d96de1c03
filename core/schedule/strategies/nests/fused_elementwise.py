"""The schedule of elementwise and injective kernels: one expression per output, nothing in memory between operators."""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.fused_stages import fuse, leading_tables
from graft.core.schedule.loops.inline import inline_stages, stage_expressions
from graft.core.schedule.loops.nest import operations
from graft.core.schedule.loops.table_blocks import is_open
from graft.core.schedule.strategies.nests.generic_nest import schedule_stages
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Buffer, Load, Stage
from graft.core.tensor_ir.visit import loads
from graft.core.types import element_bits, storage_dtype

REPEATED = 4
"""How many times the work of the operators the inlined expressions may be before results are kept instead."""


def schedule_elementwise(kernel: Kernel, target: Target) -> Scheduled:
    """Return a kernel without reductions in one loop nest per output.

    Everything is inlined; equal subexpressions are computed once. Only where operators read each other's results at
    many different places are intermediate results kept.
    """
    most = REPEATED * sum(operations(stage.value) for stage in kernel.stages)
    # What one stage has grown to is inlined no further: it would grow with every operator that reads it.
    found = leading_tables(kernel.stages)
    tables, varying = {stage.buffer for stage in found}, {stage.buffer for stage in found if is_open(stage)}
    stages = inline_stages(
        kernel.stages, kernel.outputs, lambda stage: stage.buffer not in tables and operations(stage.value) <= most
    )
    kept = {*kernel.outputs, *varying}
    inlined = all(stage.buffer in kept or stage.reduction is not None for stage in stages)
    if not inlined or sum(operations(stage.value) for stage in stages) > most:
        stages = fuse(kernel.stages, kernel.outputs)
    scheduled = schedule_stages(kernel, stages, target)
    return replace(scheduled, source=replace(scheduled.function, in_place=overwritable(kernel)))


def overwritable(kernel: Kernel) -> tuple[int, ...]:
    """Return the numbers of the inputs over which the function of a kernel may write its output.

    These are the inputs of the same size that are read at the index that is written and nowhere else, if all stages
    are over the same indices.
    """
    if kernel.anchor not in (Trait.ELEMENTWISE, Trait.INJECTIVE) or len(kernel.outputs) != 1:
        return ()
    (output,) = kernel.outputs
    computed = {stage.buffer for stage in kernel.stages}
    if any(stage.buffer.shape != output.shape or stage.value.type.is_custom for stage in kernel.stages):
        return ()
    elsewhere = {
        load.buffer
        for stage in kernel.stages
        for load in loads(*stage_expressions(stage))
        if not _is_own_index(load, stage)
    }
    if elsewhere & computed:
        return ()
    return tuple(
        number
        for number, buffer in enumerate(kernel.inputs)
        if buffer not in elsewhere and buffer not in kernel.constants and _same_bytes(buffer, output)
    )


def _is_own_index(load: Load, stage: Stage) -> bool:
    if load.buffer.shape != stage.buffer.shape:
        return False
    triples = zip(load.indices, stage.axes, stage.buffer.shape, strict=True)
    return all(index is axis or extent == b.index(1) for index, axis, extent in triples)


def _same_bytes(buffer: Buffer, output: Buffer) -> bool:
    same = buffer.shape == output.shape and buffer.strides is None and output.strides is None
    return same and element_bits(storage_dtype(buffer.dtype)) == element_bits(storage_dtype(output.dtype))


STRATEGY = Strategy(
    "fused_elementwise", frozenset({Trait.ELEMENTWISE, Trait.INJECTIVE}), of_kernel(schedule_elementwise), varies=None
)
