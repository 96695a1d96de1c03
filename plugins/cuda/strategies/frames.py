"""What strategies for blocks of threads are made of: loops over units, and places in them."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Bind
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over

ACCESS = 16
"""Bytes that a thread reads or writes at one time at the most."""


def block_of(statements: Sequence[ir.Statement]) -> ir.Statement:
    """Return statements one after another."""
    return statements[0] if len(statements) == 1 else ir.Block(tuple(statements))


def launched(block: ir.Variable, blocks: Count, thread: ir.Variable, threads: int, body: ir.Statement) -> ir.Statement:
    """Return what each thread of each block does."""
    loops = loops_over([(block, b.extent(blocks)), (thread, b.index(threads))], body)
    return taken(loops, [Bind(block.name, "block.x"), Bind(thread.name, "thread.x")])


def places(number: ir.Expression, extents: Sequence[Count]) -> list[ir.Expression]:
    """Return the indices of an element, of which ``number`` is the position in row-major order."""
    indices: list[ir.Expression] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, b.modulo(number, b.extent(extent)))
        number = b.divide(number, b.extent(extent))
    return [number, *indices] if extents else []


def bound(variables: Sequence[ir.Variable], values: Sequence[ir.Expression], body: ir.Statement) -> ir.Statement:
    """Return a body with variables bound to values."""
    for variable, value in zip(reversed(variables), reversed(values), strict=True):
        body = ir.Let(variable, value, body)
    return body
