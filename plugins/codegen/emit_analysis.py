"""What emitters ask about tensor IR: what a loop body uses, about how much work it is, which loops are one task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from math import prod
from typing import Any, get_args

from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    Intrinsic,
    Let,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.visit import (
    children,
    free_variables,
    statement_children,
    statement_expressions,
    walk_statements,
)
from graft.core.types import INT64

SERIAL_WORK = 16 * 1024
"""A parallel loop of less work (operations, see `Work`) runs serially, and no task gets less."""
FAILURES = {
    "fail_index": "index %lld is out of range: axis %lld has extent %lld, so that %lld to %lld are legal",
    "fail_extent": "the operands make the extent %lld of axis %lld of the result, but the model states %lld",
}
"""By external function that ends a kernel, its message for arguments as C's long long."""
UNKNOWN_EXTENT = 16
"""The number of iterations assumed of a loop whose extent is not a constant."""


def _parts_of(statement: Statement) -> Iterator[Any]:
    """Yield every distinct object in a statement, in order of first use."""
    seen: set[int] = set()
    todo: list[Any] = [statement]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            if type(node) not in _LEAVES:
                todo += _parts(node)[::-1]


def used(statement: Statement) -> tuple[dict[Variable, None], dict[Buffer, None]]:
    """Return the variables and buffers that occur in a statement, in order of first use."""
    variables: dict[Variable, None] = {}
    buffers: dict[Buffer, None] = {}
    for node in _parts_of(statement):
        kind = type(node)
        if kind is Variable:
            variables[node] = None
        elif kind is Buffer:
            buffers[node] = None
    return variables, buffers


def uses_any(statement: Statement, buffers: Collection[Buffer]) -> bool:
    """Whether one of some buffers occurs in a statement."""
    return any(type(node) is Buffer and node in buffers for node in _parts_of(statement))


def has_tile(statement: Statement, *, outside_loops: bool = False) -> bool:
    """Whether something in a statement is held in registers; ``outside_loops``: not just within a loop of it."""
    match statement:
        case Allocate(buffer) if buffer.memory == "register":
            return True
        case For(extent=extent) if outside_loops and extent != Constant(1, INT64):
            return False
    return any(has_tile(one, outside_loops=outside_loops) for one in statement_children(statement))


def has_intrinsic(statement: Statement) -> bool:
    """Whether a statement computes an intrinsic, which has many constants."""
    return any(type(node) is Intrinsic for node in _parts_of(statement))


def captured(
    body: Statement, buffers: Container[Buffer], variables: Container[Variable]
) -> tuple[list[Buffer], list[Variable]]:
    """Return which of the enclosing function's buffers and variables a body uses, in order of first use."""
    inner = {one.variable for one in walk_statements(body) if isinstance(one, For | Let)}
    used_variables, used_buffers = used(body)
    return (
        [one for one in used_buffers if one in buffers],
        [one for one in used_variables if one in variables and one not in inner],
    )


def element_count(buffer: Buffer) -> int | None:
    """Return the number of elements of a contiguous buffer of constant shape, else None."""
    if buffer.strides is not None or not all(isinstance(extent, Constant) for extent in buffer.shape):
        return None
    return prod(int(extent.value) for extent in buffer.shape if isinstance(extent, Constant))


def overlapping(function: Function) -> set[Buffer]:
    """Return the parameters that may be the same memory: an output and what it may be written over."""
    return {function.parameters[number] for number in (*function.in_place, *([-1] if function.in_place else []))}


class Work:
    """Estimates of the operations in statements and expressions: nodes, shared ones once, times iterations.

    Loops are remembered by identity: every loop around a parallel one asks again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[For, int]] = {}

    def __call__(self, node: Any) -> int:
        """Return the estimate of a statement or an expression."""
        if not isinstance(node, For):
            return self._of_parts(node)
        known = self._known.get(id(node))
        if known is None:
            extent = int(node.extent.value) if isinstance(node.extent, Constant) else UNKNOWN_EXTENT
            known = self._known[id(node)] = (node, max(extent, 1) * (1 + self._of_parts(node.body)))
        return known[1]

    def _of_parts(self, node: Any) -> int:
        total = 0
        seen: set[int] = set()
        todo: list[Any] = [node]
        while todo:
            part = todo.pop()
            kind = type(part)
            if kind is For:
                total += self(part)
            elif kind not in _LEAVES and id(part) not in seen:
                seen.add(id(part))
                total += 1
                if kind is not Buffer:
                    todo += _parts(part)
        return total


def is_shared(loop: For, work: Work, task: int) -> bool:
    """Whether a parallel loop may be worth a task: extents that vary may be large."""
    if work(loop) >= task:
        return True
    return any(isinstance(one, For) and not isinstance(one.extent, Constant) for one in walk_statements(loop))


def grain_of(body: Statement, work: Work, task: int, known: Container[Variable]) -> Expression:
    """Return how many iterations of a body a task has at least, by the extents that are ``known`` when it begins."""
    fixed, total = work(body), list[Expression]()
    todo = [body]
    while todo:
        match todo.pop():
            case Block(parts):
                todo += parts
            case Let(body=inner) | Allocate(body=inner):
                todo.append(inner)
            case For(extent=extent) as loop if not isinstance(extent, Constant) and all(
                one in known for one in free_variables(extent)
            ):
                fixed -= work(loop)
                total.append(Binary("mul", extent, Constant(work(loop) // UNKNOWN_EXTENT, INT64)))
    if not total:
        return Constant(max(1, task // fixed), INT64)
    operations: Expression = Constant(max(1, fixed), INT64)
    for one in total:
        operations = Binary("add", operations, one)
    return Binary("max", Constant(1, INT64), Binary("div", Constant(task, INT64), operations))


def collapsed(loop: For) -> tuple[Variable, Expression, Statement]:
    """Return the variable, extent and body of one loop over a nest of parallel loops."""
    nest = [loop]
    while isinstance(nest[-1].body, For) and nest[-1].body.kind == "parallel":
        extent = nest[-1].body.extent
        if not isinstance(extent, Constant) and not (
            isinstance(extent, Variable) and all(extent is not loop.variable for loop in nest)
        ):
            break
        nest.append(nest[-1].body)
    if len(nest) == 1:
        return loop.variable, loop.extent, loop.body
    index = Variable("index")
    extent, body, rest = loop.extent, nest[-1].body, index
    lets: list[tuple[Variable, Expression]] = []
    quotient: Expression = rest
    for level in reversed(nest[1:]):
        lets.append((level.variable, Binary("mod", quotient, level.extent)))
        quotient = Binary("div", quotient, level.extent)
        extent = Binary("mul", extent, level.extent)
    for variable, value in ((loop.variable, quotient), *lets):
        body = Let(variable, value, body)
    return index, extent, body


def _parts(node: Any) -> tuple[Any, ...]:
    """Return what stands directly in a statement, an expression or a buffer, in order."""
    own = _PARTS.get(type(node))
    return children(node) if own is None else own(node)


_LEAVES = frozenset({Constant, Variable})
_PARTS: dict[type, Callable[..., tuple[Any, ...]]] = {
    **dict.fromkeys(get_args(Statement), lambda s: (*statement_expressions(s), *statement_children(s))),
    Load: lambda e: (e.buffer, *children(e)),
    Buffer: lambda one: (*one.shape, *(one.strides or ()), *([one.tensor] if one.tensor else ())),
    Store: lambda s: (s.buffer, *statement_expressions(s)),
    Allocate: lambda s: (s.buffer, s.body),
    **dict.fromkeys((For, Let), lambda s: (s.variable, *statement_expressions(s), s.body)),
}
"""Of what has more in it than operands."""
