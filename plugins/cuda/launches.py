"""From a scheduled function to launches: what runs on the device at one time, and the memory between them.

A function's outermost loops that are bound to blocks and threads are a launch each. Parallel loops that are bound to
nothing, as strategies for processors leave them, become one thread for each iteration. A serial loop around parallel
ones is one block whose threads share these and meet behind each of them; what is neither is done by one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    Binary,
    Block,
    Buffer,
    CallExtern,
    Constant,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Statement,
    Store,
    Unary,
    Variable,
    level_of,
)
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    free_variables,
    loads,
    map_accesses,
    map_statement,
    substitute,
    walk_statements,
)
from graft.core.types import element_bits
from graft.errors import CompileError
from graft.plugins.codegen.emit_analysis import FAILURES, collapsed, used

THREADS = 256
"""Threads of a block where no strategy says how many."""
REPORT = Buffer("report", "int64", (b.index(8),), alignment=64)
"""Where a kernel says that it found something wrong: 1 + its number in `FAILURES`, then the numbers of the message."""
LOCAL = 1024
"""Bytes that a thread may have for itself in memory that is not its registers."""
AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and its geometry: blocks, threads of a block, and what it reads and writes."""

    name: str
    grid: tuple[Expression, Expression, Expression]
    block: tuple[int, int, int]
    body: Statement
    buffers: tuple[Buffer, ...]
    extents: tuple[Variable, ...]

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return prod(self.block)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a function in order, and the buffers that live between them."""

    function: Function
    launches: tuple[Launch, ...]
    workspaces: tuple[Buffer, ...]


def launches_of(function: Function) -> Launches:
    """Return the launches of a function; raise CompileError where memory or loops have extents that are computed."""
    splitter = _Splitter(function)
    splitter.statement(guarded(function.body), ())
    return Launches(function, tuple(splitter.launches), tuple(splitter.workspaces))


_Around = tuple[Let | Expression, ...]
"""What is around a statement: bindings, and conditions under which it is done."""


@dataclass(slots=True)
class _Splitter:
    function: Function
    launches: list[Launch] = field(default_factory=list)
    workspaces: list[Buffer] = field(default_factory=list)

    def statement(self, statement: Statement, around: _Around) -> None:
        match statement:
            case Block(statements):
                for inner in statements:
                    self.statement(inner, around)
            case Allocate(buffer, body):
                self.statement(self._kept(buffer, body, around), around)
            case Let(_, value, body) if not loads(value):
                self.statement(body, (*around, statement))
            case If(condition, then_body, else_body) if not loads(condition):
                self.statement(then_body, (*around, condition))
                if else_body is not None:
                    self.statement(else_body, (*around, Unary("not", condition)))
            case For(binding=binding) if binding:
                self._launch(statement, around)
            case For(kind="parallel"):
                self._launch(self._bound(statement, around), around)
            case _ if _has_parallel(statement):
                self._launch(self._together(statement, around), around)
            case _:
                alone = For(Variable("thread"), b.index(1), "parallel", statement, "thread.x")
                self._launch(For(Variable("block"), b.index(1), "parallel", alone, "block.x"), around)

    def _kept(self, buffer: Buffer, body: Statement, around: _Around) -> Statement:
        """Make a buffer memory of the device, and return the body that uses it."""
        shape = tuple(self._outside(extent, around) for extent in buffer.shape)
        kept = replace(buffer, shape=shape, memory="host", alignment=max(16, buffer.alignment))
        self.workspaces.append(kept)
        return with_buffer(body, buffer, kept)

    def _outside(self, extent: Expression, around: _Around) -> Expression:
        """Return an extent over those of the function's parameters."""
        values = {one.variable: one.value for one in around if isinstance(one, Let)}
        while free_variables(extent) & values.keys():
            extent = substitute(extent, values)
        if loads(extent) or not free_variables(extent) <= set(extents_of(self.function)):
            raise CompileError(
                f"function '{self.function.name}': the size of what lies between its loops is computed on the device",
                function=self.function.name,
            )
        return extent

    def _launch(self, statement: For, around: _Around) -> None:
        grid: dict[str, Expression] = {axis: b.index(1) for axis in AXES}
        block = dict.fromkeys(AXES, 1)
        for one in walk_statements(statement):
            if not isinstance(one, For) or not one.binding:
                continue
            axis = one.binding.partition(".")[2] or "x"
            if level_of(one.binding) == "block":
                grid[axis] = self._outside(one.extent, around)
            elif isinstance(one.extent, Constant):
                block[axis] = max(block[axis], int(one.extent.value))
            else:
                raise CompileError(
                    f"function '{self.function.name}': a block has a number of threads, not '{one.extent}'"
                )
        body: Statement = statement
        for outer in reversed(around):
            body = replace(outer, body=body) if isinstance(outer, Let) else If(outer, body)
        body = simplify_statement(body)
        variables, buffers = used(body)
        known = [*self.function.parameters, *self.workspaces]
        read = {variable for one in known if one in buffers for extent in (*one.shape, *(one.strides or ()))
                for variable in free_variables(extent)}  # fmt: skip
        extents = [one for one in extents_of(self.function) if one in variables or one in read]
        self.launches.append(
            Launch(
                f"{self.function.name}_{len(self.launches)}" if self.launches else self.function.name,
                (grid["x"], grid["y"], grid["z"]),
                (block["x"], block["y"], block["z"]),
                body,
                (*(one for one in known if one in buffers), *((REPORT,) if reports(body) else ())),
                tuple(extents),
            )
        )

    def _bound(self, loop: For, around: _Around) -> For:
        """Return parallel loops with a thread for each iteration."""
        index, extent, body = collapsed(loop)
        body = self._without_local(body, index, extent, around)
        block, thread = Variable(f"{index.name}.block"), Variable(f"{index.name}.thread")
        known = int(extent.value) if isinstance(extent, Constant) else None
        threads = THREADS if known is None else max(32, min(THREADS, -(-known // 32) * 32))
        inside = If(Binary("lt", index, extent), body)
        place = b.add(b.multiply(block, threads), thread)
        each = For(thread, b.index(threads), "parallel", Let(index, place, inside), "thread.x")
        blocks = b.divide(b.add(extent, threads - 1), threads)
        return For(block, blocks, "parallel", each, "block.x")

    def _without_local(self, body: Statement, index: Variable, extent: Expression, around: _Around) -> Statement:
        """Return the body of a thread with what is large of its memory a part of one buffer for all threads."""
        for allocate in [one for one in walk_statements(body) if isinstance(one, Allocate)]:
            buffer = allocate.buffer
            known = [int(one.value) for one in buffer.shape if isinstance(one, Constant)]
            if len(known) == len(buffer.shape) and prod(known) * element_bits(buffer.dtype) // 8 <= LOCAL:
                continue
            shape = (self._outside(extent, around), *(self._outside(one, around) for one in buffer.shape))
            whole = Buffer(buffer.name, buffer.dtype, shape, alignment=16)
            self.workspaces.append(whole)
            body = _without_allocation(body, buffer)
            body = with_buffer(body, buffer, whole, (index,))
        return body

    def _together(self, statement: Statement, around: _Around) -> For:
        """Return a statement around parallel loops as what one block does."""
        thread = Variable("thread")
        body = For(thread, b.index(THREADS), "parallel", self._shared(statement, thread, around), "thread.x")
        return For(Variable("block"), b.index(1), "parallel", body, "block.x")

    def _shared(self, statement: Statement, thread: Variable, around: _Around) -> Statement:
        match statement:
            case Block(statements):
                return Block(tuple(self._shared(one, thread, around) for one in statements))
            case Allocate(buffer, body):
                return self._shared(self._kept(buffer, body, around), thread, around)
            case Let(_, value, body):
                own: _Around = (*around, statement) if not loads(value) else around
                return replace(statement, body=self._shared(body, thread, own))
            case For(kind="parallel"):
                index, extent, body = collapsed(statement)
                body = self._without_local(body, index, extent, around)
                turn = Variable(f"{index.name}.turn")
                place = b.add(b.multiply(turn, THREADS), thread)
                turns = b.divide(b.add(extent, THREADS - 1), THREADS)
                inside = Let(index, place, If(Binary("lt", index, extent), body))
                return Block((For(turn, turns, "serial", inside), Barrier("block")))
            case For(body=body) if _has_parallel(body):
                return replace(statement, kind="serial", body=self._shared(body, thread, around))
            case If(condition, then_body, else_body) if _has_parallel(statement):
                other = None if else_body is None else self._shared(else_body, thread, around)
                return If(condition, self._shared(then_body, thread, around), other)
        return Block((If(Binary("eq", thread, b.index(0)), statement), Barrier("block")))


def extents_of(function: Function) -> tuple[Variable, ...]:
    """Return the extents and strides of a function's parameters that vary, each once."""
    found: dict[Variable, None] = {}
    for buffer in function.parameters:
        for extent in (*buffer.shape, *(buffer.strides or ())):
            if isinstance(extent, Variable):
                found[extent] = None
    return tuple(found)


def reports(body: Statement) -> bool:
    """Whether a body may say that it found something wrong."""
    return any(isinstance(one, CallExtern) and one.name in FAILURES for one in walk_statements(body))


def _has_parallel(statement: Statement) -> bool:
    return any(isinstance(one, For) and one.kind == "parallel" for one in walk_statements(statement))


def _without_allocation(body: Statement, buffer: Buffer) -> Statement:
    def rule(statement: Statement) -> Statement:
        return statement.body if isinstance(statement, Allocate) and statement.buffer is buffer else statement

    return map_statement(body, lambda expression: expression, rule)


def with_buffer(body: Statement, old: Buffer, new: Buffer, leading: tuple[Expression, ...] = ()) -> Statement:
    """Return a body with accesses of a buffer made accesses of another one, at ``leading`` indices before its own."""
    return map_accesses(body, {old}, lambda _, indices: (new, (*leading, *indices)))


def guarded(body: Statement) -> Statement:
    """Return a body in which places that are read from memory lie inside of the buffers.

    On the device nobody can say that an index is wrong before it is used: what it would read is the nearest element,
    and what it would write is left out.
    """

    def expression(node: Expression) -> Expression:
        if isinstance(node, Load) and any(_is_read(index) for index in node.indices):
            pairs = zip(node.indices, node.buffer.shape, strict=True)
            return replace(node, indices=tuple(b.clamp(i, b.counted(n)) if _is_read(i) else i for i, n in pairs))
        return node

    def statement(one: Statement) -> Statement:
        if isinstance(one, Store) and any(_is_read(index) for index in one.indices):
            pairs = list(zip(one.indices, one.buffer.shape, strict=True))
            conditions = [Binary("lt", index, extent) for index, extent in pairs if _is_read(index)]
            conditions += [Binary("ge", index, b.index(0)) for index, _ in pairs if _is_read(index)]
            condition = b.all_of(conditions)
            assert condition is not None, "a place that is read has a bound"
            return If(condition, one)
        return one

    return map_statement(body, ExpressionMap(expression), statement)


def _is_read(index: Expression) -> bool:
    return bool(loads(index))
