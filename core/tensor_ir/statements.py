"""What stands around a statement: bindings, memory and loops, the first of several outermost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graft.core.tensor_ir.ir import Allocate, Buffer, Expression, For, Let, LoopKind, Statement, Variable


def bind(values: Iterable[tuple[Variable, Expression]], body: Statement) -> Statement:
    """Return ``body`` where each of the variables holds its value."""
    for variable, value in reversed(list(values)):
        body = Let(variable, value, body)
    return body


def bound(name: str, values: Sequence[Expression], body: Callable[[list[Expression]], Statement]) -> Statement:
    """Return ``body`` of variables that hold the values, each of which is computed once."""
    variables = [Variable(f"{name}{number}", value.type) for number, value in enumerate(values)]
    return bind(zip(variables, values, strict=True), body(list(variables)))


def allocate(buffers: Sequence[Buffer], body: Statement) -> Statement:
    """Return ``body`` with the memory of the buffers."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def loops_over(axes: Iterable[tuple[Variable, Expression]], body: Statement, kind: LoopKind = "serial") -> Statement:
    """Return loops of one kind over axes of some extents."""
    for variable, extent in reversed(list(axes)):
        body = For(variable, extent, kind, body)
    return body
