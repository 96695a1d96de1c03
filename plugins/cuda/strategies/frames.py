"""What strategies for blocks of threads are made of: loops over units, and places in them."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over

ACCESS = 16
"""Bytes that a thread reads or writes at one time at the most."""
WRITTEN_OUT = 16
"""Turns of a loop that are written out."""


def launched(block: ir.Variable, blocks: Count, threads: int, body: ir.Statement, behind: str = "") -> ir.Statement:
    """Return what the threads of each block do, which share its parallel loops; ``behind`` are steps after that."""
    steps = f"bind {block.name} block.x\nspmd {block.name} {threads} thread.x -> thread\n{behind}"
    return taken(loops_over([(block, b.extent(blocks))], body), parse_schedule(steps))


def each(unit: ir.Variable, units: int, *statements: ir.Statement) -> ir.Statement:
    """Return what each thread of a block does."""
    return loops_over([(unit, b.index(units))], ir.Block(statements), "parallel")


def places(number: ir.Expression, extents: Sequence[Count]) -> list[ir.Expression]:
    """Return the indices of an element, of which ``number`` is the position in row-major order."""
    indices: list[ir.Expression] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, b.modulo(number, b.extent(extent)))
        number = b.divide(number, b.extent(extent))
    return [number, *indices] if extents else []


def unrolled(variable: ir.Variable, extent: int, body: ir.Statement) -> ir.Statement:
    """Return copies of a body."""
    return loops_over([(variable, b.index(extent))], body, "unrolled")
