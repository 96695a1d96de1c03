"""What strategies for blocks of threads are made of: loops over units, turns of threads, sums of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.accumulate import identity_of, joined
from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    BinaryOperator,
    Block,
    Buffer,
    Expression,
    For,
    If,
    Let,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.types import Type
from graft.plugins.cuda.machines import WARP

ACCESS = 16
"""Bytes that a thread reads or writes at one time at the most."""


def block_of(statements: Sequence[Statement]) -> Statement:
    """Return statements one after another."""
    return statements[0] if len(statements) == 1 else Block(tuple(statements))


def launched(block: Variable, blocks: Count, thread: Variable, threads: int, body: Statement) -> Statement:
    """Return what each thread of each block does."""
    inner = For(thread, b.index(threads), "parallel", body, "thread.x")
    return For(block, b.extent(blocks), "parallel", inner, "block.x")


def places(number: Expression, extents: Sequence[Count]) -> list[Expression]:
    """Return the indices of an element, of which ``number`` is the position in row-major order."""
    indices: list[Expression] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, b.modulo(number, b.extent(extent)))
        number = b.divide(number, b.extent(extent))
    return [number, *indices] if extents else []


def bound(variables: Sequence[Variable], values: Sequence[Expression], body: Statement) -> Statement:
    """Return a body with variables bound to values."""
    for variable, value in zip(reversed(variables), reversed(values), strict=True):
        body = Let(variable, value, body)
    return body


def in_turns(
    count: Count, thread: Variable, threads: int, body: Callable[[Expression], Statement], lanes: int = 1, most: int = 8
) -> Statement:
    """Return what threads do for the numbers below ``count``, ``lanes`` at a time, which divide it.

    Neighbouring threads take neighbouring numbers. Few turns are written out.
    """
    step = threads * lanes
    turns = -(-count // step) if isinstance(count, int) else b.divide(b.add(count, step - 1), step)
    turn, number = Variable("turn"), Variable("number")
    place = b.multiply(b.add(b.multiply(turn, threads), thread), lanes)
    inside = body(number)
    if not isinstance(count, int) or count % step:
        inside = If(b.less(number, b.extent(count)), inside)
    kind = "unrolled" if isinstance(turns, int) and turns <= most else "serial"
    return For(turn, b.extent(turns), kind, Let(number, place, inside))  # type: ignore[arg-type]


def summed(
    operator: BinaryOperator,
    value: Expression,
    thread: Variable,
    threads: int,
    name: str,
    then: Callable[[Expression], Statement],
) -> Statement:
    """Return what combines a value of each thread of the block; ``then`` gets the result, in every thread.

    Within warps by halves, each step behind a barrier of the warp, then all results of warps by each thread.
    """
    kind = value.type
    shared = Buffer(f"{name}_parts", kind.dtype, (b.index(threads),), memory="shared", alignment=16)
    lane = b.modulo(thread, WARP)
    steps: list[Statement] = [Store(shared, (thread,), value), Barrier("warp")]
    half = WARP // 2
    while half:
        two = joined(operator, Load(shared, (thread,)), Load(shared, (b.add(thread, half),)))
        steps += [If(b.less(lane, half), Store(shared, (thread,), two)), Barrier("warp")]
        half //= 2
    if threads > WARP:
        steps.append(Barrier("block"))
    warps: list[Expression] = [Load(shared, (b.index(number * WARP),)) for number in range(threads // WARP)]
    if threads == WARP:
        warps = [Load(shared, (b.index(0),))]
    while len(warps) > 1:
        pairs = [
            joined(operator, *warps[i : i + 2]) if i + 1 < len(warps) else warps[i] for i in range(0, len(warps), 2)
        ]
        warps = pairs
    total = Variable(name, kind)
    return Allocate(shared, Block((*steps, Let(total, warps[0], then(total)))))


def neutral(operator: BinaryOperator, kind: Type) -> Expression:
    """Return what changes nothing when it is combined."""
    return identity_of(operator, kind)
