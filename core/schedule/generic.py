"""The schedule for everything that has none of its own, and the frame of the simple ones: rows of fused stages.

Stages that cannot be inlined run one after another. Where they agree on their leading axes (*rows*) and read each
other's results only within a row, the whole chain runs row by row: rows in parallel, what lies between the stages in
scratch memory of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graft.core.schedule.flat import FlatStage, Layout, LoopAxis, collapse, constant_extent, flatten
from graft.core.schedule.inline import constant_shape, inline_stages, stage_expressions
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops import SERIAL_WORK, Vectors, outer_loops
from graft.core.schedule.nest import nest, operations, work
from graft.core.schedule.vectorize import instantiate, lower_loops
from graft.core.target import Target
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Function, Stage, Statement, Variable
from graft.core.tensor_ir.rewrite import Simplifier, simplify_statement
from graft.core.tensor_ir.visit import loads

CHEAP = 4
"""Operations that are rather repeated than kept in memory."""
ROW = 256
"""Elements of a row of stages that do not reduce."""


def schedule_generic(kernel: Kernel, target: Target) -> Scheduled:
    """Return loops for a kernel of any stages whose shapes are constant."""
    stages = fuse(kernel.stages, kernel.outputs)
    return schedule_stages(kernel, stages, target)


def fuse(stages: Sequence[Stage], outputs: Sequence[Buffer]) -> tuple[Stage, ...]:
    """Inline the stages that are cheap to repeat, or whose every element is used once."""
    uses = {stage.buffer: _uses(stage.buffer, stages) for stage in stages}

    def wanted(stage: Stage) -> bool:
        readers = uses[stage.buffer]
        once = len(readers) == 1 and space(readers[0]) <= space(stage)
        return once or operations(stage.value) <= CHEAP

    return inline_stages(stages, outputs, wanted)


def _uses(buffer: Buffer, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that read a buffer, once for each distinct load."""
    return [stage for stage in stages for load in loads(*stage_expressions(stage)) if load.buffer is buffer]


def space(stage: Stage) -> int:
    """Return the number of times a stage evaluates its value."""
    shape = constant_shape(stage.buffer)
    assert shape is not None, f"stage of '{stage.buffer.name}' has a symbolic shape"
    axes = () if stage.reduction is None else stage.reduction.axes
    return prod(shape) * prod(constant_extent(axis.extent) for axis in axes)


def schedule_stages(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled:
    """Return loops that run the stages as they are, row by row where that is possible."""
    vectors, simplifier = Vectors.of(target), Simplifier()
    between = [stage.buffer for stage in stages if stage.buffer not in kernel.outputs]
    rows = common_rows(stages)
    layout = Layout(rows, between)
    shape = constant_shape(stages[0].buffer) or ()
    row_axes = [LoopAxis(Variable(f"row{number}"), extent) for number, extent in enumerate(shape[:rows])]
    flat = [flatten(stage, layout, simplifier, row_axes) for stage in stages]
    memory = [layout.flat(buffer) for buffer in between]
    if rows:
        body = _row_by_row(flat, row_axes, memory, simplifier, vectors)
    else:
        body = _allocated(memory, Block(tuple(nest(stage, simplifier, vectors, parallel=True) for stage in flat)))
    parameters = tuple(layout.flat(buffer) for buffer in (*kernel.inputs, *kernel.outputs))
    # Tails repeat the loops inside them: fresh variables, so that each is bound once.
    finished = instantiate(simplify_statement(lower_loops(simplify_statement(body))), {})
    return Scheduled(Function(kernel.name, parameters, len(kernel.outputs), finished, kernel.origin))


def _row_by_row(
    stages: Sequence[FlatStage],
    row_axes: Sequence[LoopAxis],
    memory: Sequence[Buffer],
    simplifier: Simplifier,
    vectors: Vectors,
) -> Statement:
    axes, stages = collapse(row_axes, stages, simplifier)
    body = Block(tuple(nest(stage, simplifier, vectors, parallel=False) for stage in stages))
    total = sum(map(work, stages)) * prod(axis.extent for axis in axes)
    return outer_loops(axes, _allocated(memory, body), total >= SERIAL_WORK)


def _allocated(memory: Sequence[Buffer], body: Statement) -> Statement:
    for buffer in reversed(memory):
        body = Allocate(buffer, body)
    return body


def common_rows(stages: Sequence[Stage]) -> int:
    """Return the number of leading axes along which the stages are independent of each other.

    Without reductions, rows are made long enough for vectors.
    """
    shapes = [constant_shape(stage.buffer) or () for stage in stages]
    produced = {stage.buffer for stage in stages}
    if len(stages) == 1:
        return 0
    for rows in range(min(map(len, shapes)), 0, -1):
        same = all(shape[:rows] == shapes[0][:rows] for shape in shapes)
        longest = max(prod(shape[rows:]) for shape in shapes)
        reduces = any(stage.reduction is not None for stage in stages)
        if same and (reduces or longest >= ROW) and all(_stays_in_row(stage, produced, rows) for stage in stages):
            return rows
    return 0


def _stays_in_row(stage: Stage, produced: set[Buffer], rows: int) -> bool:
    """Whether a stage reads intermediate results only in the row that it writes."""
    return all(
        all(index is axis for index, axis in zip(load.indices[:rows], stage.axes, strict=False))
        for load in loads(*stage_expressions(stage))
        if load.buffer in produced
    )
