"""Stages before there are loops: those that are cheap are inlined, tables in front stay, and rows are found."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graft.core.schedule.loops.flat_stages import USUAL
from graft.core.schedule.loops.inline import inline_stages, stage_expressions
from graft.core.schedule.loops.nest import operations
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.tensor_ir.visit import loads

CHEAP = 4
"""Operations that are rather repeated than kept in memory."""
ROW = 256
"""Elements of a row of stages that do not reduce."""
TABLE = 8
"""How many times as large as a table what reads it must be, to be worth the memory."""
SMALL_TABLE = 1 << 14
"""Elements of a table of several axes."""
SHORT_ROW = 8
"""Elements that a row of stages with reductions should have at least."""


def leading_tables(stages: Sequence[ir.Stage]) -> tuple[ir.Stage, ...]:
    """Return the stages in front that read nothing but each other, where something larger reads them.

    They are of one axis, or small and dear.
    """
    tables: list[ir.Stage] = []
    made: set[ir.Buffer] = set()
    for stage in stages[:-1]:
        if not made.issuperset(load.buffer for load in loads(*stage_expressions(stage))):
            break
        is_dear = stage.reduction is not None or operations(stage.value) > CHEAP
        if (len(stage.axes) != 1 or stage.reduction is not None) and not (is_dear and _size(stage) <= SMALL_TABLE):
            break
        tables.append(stage)
        made.add(stage.buffer)
    largest = max(map(_size, tables), default=0)
    return tuple(tables) if largest * TABLE <= max(map(_size, stages), default=0) else ()


def _size(stage: ir.Stage) -> int:
    return counted(stage.buffer.shape)


def counted(extents: Sequence[ir.Expression]) -> int:
    """Return the product of extents, each as choices count it."""
    return prod(int(one.value) if isinstance(one, ir.Constant) else USUAL for one in extents)


def fuse(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> tuple[ir.Stage, ...]:
    """Inline the stages that are cheap to repeat, or whose every element is used once; tables in front stay."""
    uses = {stage.buffer: uses_of(stage.buffer, stages) for stage in stages}
    tables = {stage.buffer for stage in leading_tables(stages)}

    def wanted(stage: ir.Stage) -> bool:
        if stage.buffer in tables:
            return False
        readers = uses[stage.buffer]
        once = len(readers) == 1 and space(readers[0]) <= space(stage)
        return once or operations(stage.value) <= CHEAP

    return inline_stages(stages, outputs, wanted)


def space(stage: ir.Stage) -> int:
    """Return the number of times a stage evaluates its value."""
    axes = () if stage.reduction is None else stage.reduction.axes
    return counted([*stage.buffer.shape, *(axis.extent for axis in axes)])


def common_rows(stages: Sequence[ir.Stage], between: Sequence[ir.Buffer] = ()) -> int:
    """Return the number of leading axes along which the stages are independent of each other.

    Rows are made long enough for vectors where that is possible; a row of what lies ``between`` stages has a size that
    is known, since each thread keeps one.
    """
    shapes = [stage.buffer.shape for stage in stages]
    produced = {stage.buffer for stage in stages}
    if len(stages) == 1:
        return 0
    reduces = any(stage.reduction is not None for stage in stages)
    best = 0
    for rows in range(min(map(len, shapes)), 0, -1):
        same = all(shape[:rows] == shapes[0][:rows] for shape in shapes)
        known = all(isinstance(extent, ir.Constant) for one in between for extent in one.shape[rows:])
        if not same or not known or not all(_stays_in_row(stage, produced, rows) for stage in stages):
            continue
        if max(counted(shape[rows:]) for shape in shapes) >= (SHORT_ROW if reduces else ROW):
            return rows
        best = best or rows
    return best if reduces else 0


def _stays_in_row(stage: ir.Stage, produced: set[ir.Buffer], rows: int) -> bool:
    """Whether a stage reads intermediate results only in the row that it writes."""
    return all(
        all(index is axis for index, axis in zip(load.indices[:rows], stage.axes, strict=False))
        for load in loads(*stage_expressions(stage))
        if load.buffer in produced
    )
