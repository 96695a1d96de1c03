"""What strategies for blocks of threads are made of: loops over units, and places in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Bind
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over

ACCESS = 16
"""Bytes that a thread reads or writes at one time at the most."""
WRITTEN_OUT = 16
"""Turns of a loop that are written out."""


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


def unrolled(variable: ir.Variable, extent: int, body: ir.Statement) -> ir.Statement:
    """Return copies of a body."""
    return ir.For(variable, b.index(extent), "unrolled", body)


def repeated(variable: ir.Variable, extent: int, body: ir.Statement) -> ir.Statement:
    """Return copies of a body, or a loop where they would be many."""
    return ir.For(variable, b.index(extent), "unrolled" if extent <= WRITTEN_OUT else "serial", body)


def staged(
    steps: Count,
    stages: int,
    begun: Callable[[ir.Expression, ir.Expression], ir.Statement],
    seen: Callable[[ir.Expression], Sequence[ir.Statement]],
    used: Callable[[ir.Expression, ir.Expression], ir.Statement],
) -> ir.Statement:
    """Return a loop of steps, of which each uses one of so many stages in shared memory.

    ``begun`` brings the stage of a step to a slot of the memory, ``seen`` stands before the barrier behind which all
    see it. Of several stages the later ones are under way (``cp.async``) while one is used, and one barrier is enough.
    """
    step, early, ahead = ir.Variable("step"), ir.Variable("early"), stages - 1
    if not ahead:
        none, barrier = b.index(0), ir.Barrier("block")
        body = ir.Block((begun(step, none), *seen(step), barrier, used(step, none), barrier))
        return ir.For(step, b.extent(steps), "serial", body)

    def inside(number: ir.Expression) -> ir.Statement:
        fill = ir.If(b.less(number, b.extent(steps)), begun(number, b.modulo(number, stages)))
        return ir.Block((fill, ir.CallExtern("commit_copies", ())))

    wait, later = ir.CallExtern("wait_copies", (b.index(ahead - 1),)), inside(b.add(step, ahead))
    body = ir.Block((wait, *seen(step), ir.Barrier("block"), later, used(step, b.modulo(step, stages))))
    return ir.Block((unrolled(early, ahead, inside(early)), ir.For(step, b.extent(steps), "serial", body)))
