"""Short names for writing loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over


def loop(
    extent: b.Count, body: Callable[[ir.Expression], ir.Statement], kind: ir.LoopKind = "serial", name: str = "i"
) -> ir.Statement:
    """Return the loop over ``[0, extent)``; of one iteration only its body."""
    if extent == 1:
        return body(b.index(0))
    variable = ir.Variable(name)
    return loops_over([(variable, b.extent(extent))], body(variable), kind)


def block(*statements: ir.Statement) -> ir.Statement:
    """Return the statements one after another."""
    return statements[0] if len(statements) == 1 else ir.Block(statements)


def let(value: ir.Expression, body: Callable[[ir.Expression], ir.Statement], name: str = "x") -> ir.Statement:
    """Return ``body`` of a variable bound to ``value``."""
    variable = ir.Variable(name, value.type)
    return ir.Let(variable, value, body(variable))


def tiles(
    count: b.Count,
    step: int,
    body: Callable[[ir.Expression, int], ir.Statement],
    kind: ir.LoopKind = "serial",
    name: str = "i",
) -> ir.Statement:
    """Return ``body(begin, size)`` for tiles of ``step`` out of ``count``, and for the smaller one that is left.

    Of a count that varies, what is left is in tiles that halve.
    """
    if not isinstance(count, int):
        return _halving_tiles(count, step, body, kind, name)
    whole, rest = divmod(count, step)
    parts = []
    if whole:
        parts.append(loop(whole, lambda i: body(b.multiply(i, step), step), kind, name))
    if rest:
        parts.append(body(b.index(whole * step), rest))
    return ir.Block(tuple(parts))


def _halving_tiles(
    count: ir.Expression, step: int, body: Callable[[ir.Expression, int], ir.Statement], kind: ir.LoopKind, name: str
) -> ir.Statement:
    parts: list[ir.Statement] = []
    done: ir.Expression = b.index(0)
    sizes = (step, *(1 << n for n in reversed(range((step - 1).bit_length()))))
    for size in sizes:
        rest = b.subtract(count, done)
        whole = b.divide(rest, size)
        tile = partial(_tile_at, body, done, size)
        parts.append(loop(whole, tile, kind, name))
        done = b.add(done, b.multiply(whole, size))
    return ir.Block(tuple(parts))


def _tile_at(
    body: Callable[[ir.Expression, int], ir.Statement], begin: ir.Expression, size: int, i: ir.Expression
) -> ir.Statement:
    return body(b.add(begin, b.multiply(i, size)), size)
