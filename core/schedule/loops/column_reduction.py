"""Reductions over leading axes of large data, row by row: memory is read in order, a block of totals stays in a cache.

Accumulators in registers would read a few cache lines of each row and then the next row, a page away;
where the rows do not stay in a cache, the memory and its prefetchers are much faster over long pieces of few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.accumulate import finish
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import blocked, nested, shared, taken
from graft.core.schedule.primitives.bounds import Overlap
from graft.core.schedule.primitives.loop_kinds import Unroll
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.staging import ComputeAt
from graft.core.schedule.primitives.statements import scratch
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute
from graft.core.types import element_bits, storage_dtype

BLOCK_SHARE = 0.5
"""The totals of one block of columns, as a part of the first-level cache."""
ROWS = 8
"""Rows that are added to the totals together."""
CACHED_SHARE = 0.5
"""Data of so much of the second-level cache is reduced in registers, since its rows come from there."""


def reads_row_by_row(stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine) -> bool:
    """Whether a reduction with ``axis`` as vectors is large enough for blocks of totals."""
    if not stage.reduced or stage.reduced[-1].extent < ROWS:
        return False
    if not all(one.is_known for one in (*stage.reduced, axis)):
        return False
    size = prod(other.extent for other in (*stage.axes, *stage.reduced)) * _bytes(stage)
    return axis.extent >= 2 * ROWS * lanes and size > CACHED_SHARE * machine.working_set(2)


def column_blocks(stage: FlatStage, axis: LoopAxis, machine: Machine) -> int:
    """Return the number of blocks whose totals fill their share of the first-level cache at the most."""
    return -(-axis.extent * _bytes(stage) // int(BLOCK_SHARE * machine.working_set(1)))


def reduce_columns(
    stage: FlatStage, outer: Sequence[LoopAxis], axis: LoopAxis, lanes: int, machine: Machine, parallel: bool
) -> ir.Statement:
    """Reduce blocks of columns along ``axis``, which ``parallel`` shares among threads.

    All are whole vectors: the last overlaps with the one before.
    """
    name, blocks = axis.variable.name, column_blocks(stage, axis, machine)
    blocks = max(blocks, 2 if axis.extent % lanes else 1)
    first, row, block = f"{name}.first", stage.reduced[-1].variable.name, f"{name}.part"
    length = -(-axis.extent // (blocks * lanes)) * lanes
    sums, inside, rest = f"{name}.sum", f"{row}.row", f"{row}.rest"
    steps, tasks = list[Step](), [*outer]
    if length < axis.extent:
        steps.append(Overlap(name, length, block, name))
        tasks.append(LoopAxis(ir.Variable(block), -(-axis.extent // length)))
    steps += [ComputeAt("totals", tasks[-1].variable.name)] if tasks else []
    steps += [Split(row, ROWS, row, inside, (rest,)), Reorder((sums, inside)), Unroll(inside)]
    columns = [first, sums, name]
    if stage.reduced[-1].extent % ROWS:
        steps += [Reorder((f"{sums}.{rest}", rest)), Unroll(rest)]
        columns.append(f"{sums}.{rest}")
    steps += shared(tasks, machine) if parallel and tasks else ()
    for column in columns:
        steps += blocked((LoopAxis(ir.Variable(column), length),), lanes, lanes, machine)
    return taken(_plain(stage, (*outer, axis)), steps, outer)


def _plain(stage: FlatStage, axes: Sequence[LoopAxis]) -> ir.Statement:
    """Return the loops that begin all totals, add row by row, and store them; columns are the last of ``axes``."""
    assert stage.operator is not None and stage.initial is not None, "not a reduction"
    first, sums = (
        [replace(axis, variable=ir.Variable(f"{axis.variable.name}.{what}")) for axis in axes]
        for what in ("first", "sum")
    )
    total = scratch("totals", stage.value.type.dtype, *(axis.iterations for axis in axes))
    own, begin, added = (tuple(axis.variable for axis in of) for of in (axes, first, sums))
    start = substitute(stage.initial, dict(zip(own, begin, strict=True)))
    value = substitute(stage.value, dict(zip(own, added, strict=True)))
    parts = (
        nested(first, ir.Store(total, begin, start)),
        nested(
            [*sums[:-1], *stage.reduced, sums[-1]],
            ir.Store(total, added, ir.Binary(stage.operator, ir.Load(total, added), value)),
        ),
        nested(axes, finish(stage, ir.Load(total, own))),
    )
    return ir.Allocate(total, ir.Block(parts))


def _bytes(stage: FlatStage) -> int:
    """Return the size of an element of the totals."""
    return max(1, element_bits(storage_dtype(stage.value.type.dtype)) // 8)
