"""What strategies for blocks of threads are made of: loops over units, turns of threads, sums of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.accumulate import identity_of, joined
from graft.core.tensor_ir import ir
from graft.core.types import Type
from graft.plugins.cuda.machines import WARP

ACCESS = 16
"""Bytes that a thread reads or writes at one time at the most."""


def block_of(statements: Sequence[ir.Statement]) -> ir.Statement:
    """Return statements one after another."""
    return statements[0] if len(statements) == 1 else ir.Block(tuple(statements))


def launched(block: ir.Variable, blocks: Count, thread: ir.Variable, threads: int, body: ir.Statement) -> ir.Statement:
    """Return what each thread of each block does."""
    inner = ir.For(thread, b.index(threads), "parallel", body, "thread.x")
    return ir.For(block, b.extent(blocks), "parallel", inner, "block.x")


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


def in_turns(
    count: Count,
    thread: ir.Variable,
    threads: int,
    body: Callable[[ir.Expression], ir.Statement],
    lanes: int = 1,
    most: int = 8,
) -> ir.Statement:
    """Return what threads do for the numbers below ``count``, ``lanes`` at a time, which divide it.

    Neighbouring threads take neighbouring numbers. Few turns are written out.
    """
    step = threads * lanes
    turns = -(-count // step) if isinstance(count, int) else b.divide(b.add(count, step - 1), step)
    turn, number = ir.Variable("turn"), ir.Variable("number")
    place = b.multiply(b.add(b.multiply(turn, threads), thread), lanes)
    inside = body(number)
    if not isinstance(count, int) or count % step:
        inside = ir.If(b.less(number, b.extent(count)), inside)
    kind = "unrolled" if isinstance(turns, int) and turns <= most else "serial"
    return ir.For(turn, b.extent(turns), kind, ir.Let(number, place, inside))  # type: ignore[arg-type]


def summed(
    operator: ir.BinaryOperator,
    value: ir.Expression,
    thread: ir.Variable,
    threads: int,
    name: str,
    then: Callable[[ir.Expression], ir.Statement],
) -> ir.Statement:
    """Return what combines a value of each thread of the block; ``then`` gets the result, in every thread.

    Within warps by halves, each step behind a barrier of the warp, then all results of warps by each thread.
    """
    kind = value.type
    shared = ir.Buffer(f"{name}_parts", kind.dtype, (b.index(threads),), memory="shared", alignment=16)
    lane = b.modulo(thread, WARP)
    steps: list[ir.Statement] = [ir.Store(shared, (thread,), value), ir.Barrier("warp")]
    half = WARP // 2
    while half:
        two = joined(operator, ir.Load(shared, (thread,)), ir.Load(shared, (b.add(thread, half),)))
        steps += [ir.If(b.less(lane, half), ir.Store(shared, (thread,), two)), ir.Barrier("warp")]
        half //= 2
    if threads > WARP:
        steps.append(ir.Barrier("block"))
    warps: list[ir.Expression] = [ir.Load(shared, (b.index(number * WARP),)) for number in range(threads // WARP)]
    if threads == WARP:
        warps = [ir.Load(shared, (b.index(0),))]
    while len(warps) > 1:
        pairs = [
            joined(operator, *warps[i : i + 2]) if i + 1 < len(warps) else warps[i] for i in range(0, len(warps), 2)
        ]
        warps = pairs
    total = ir.Variable(name, kind)
    return ir.Allocate(shared, ir.Block((*steps, ir.Let(total, warps[0], then(total)))))


def neutral(operator: ir.BinaryOperator, kind: Type) -> ir.Expression:
    """Return what changes nothing when it is combined."""
    return identity_of(operator, kind)
