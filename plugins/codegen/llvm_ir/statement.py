"""Statements of the tensor IR in LLVM IR: what is alike for processors and devices.

What runs a parallel loop, where memory comes from and which calls there are is said by who emits functions for a kind
of machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import get_args

from graft.core.tensor_ir import ir
from graft.core.types import INT64
from graft.plugins.codegen.llvm_ir import addresses, memory
from graft.plugins.codegen.llvm_ir.builder import ModuleText, Value, literal
from graft.plugins.codegen.llvm_ir.expression import ExpressionEmitter


class StatementEmitter(ExpressionEmitter):
    """Emits statements of one LLVM function."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.block = "start"

    @abstractmethod
    def loop(self, loop: ir.For) -> None:
        """Emit a loop of any kind."""

    @abstractmethod
    def allocation(self, allocate: ir.Allocate) -> None:
        """Emit what gives memory, and the body that uses it."""

    @abstractmethod
    def called(self, call: ir.CallExtern) -> None:
        """Emit a call for its effect."""

    @abstractmethod
    def in_step(self, statement: ir.Barrier | ir.Issue | ir.Push | ir.Pop) -> None:
        """Emit what orders units and queues."""

    def statement(self, statement: ir.Statement) -> None:
        """Emit a statement and what is inside."""
        while isinstance(statement, ir.Let):  # not by recursion: unrolled loops make chains of hundreds
            self.begin_statement()
            self.bound(statement.variable, statement.value)
            statement = statement.body
        self.begin_statement()
        _ROWS[type(statement)](self, statement)
        self.begin_statement()

    def each(self, block: ir.Block) -> None:
        """Emit statements one after another."""
        for inner in block.statements:
            self.statement(inner)

    def bound(self, variable: ir.Variable, value: ir.Expression) -> None:
        """Bind a variable to a value."""
        if value.type.dtype == "int64" and value.type.lanes > 1:
            self.forms[variable] = addresses.linear(self, value)
        self.variables[variable] = self.value(value)

    def serial_loop(self, loop: ir.For) -> None:
        """Emit a loop that runs where it stands: copies of its body, or branches."""
        extent = self.value(loop.extent)
        count = extent.integer
        if loop.kind == "unrolled" and count is not None:
            for number in range(count):
                self.variables[loop.variable] = Value(literal(number, loop.variable.type), loop.variable.type)
                self.statement(loop.body)
        elif count == 1:
            self.variables[loop.variable] = Value("0", INT64)
            self.statement(loop.body)
        elif count is None or count > 0:
            self.counted(loop.variable, "0", extent.text, loop.body, guarded=count is None)

    def counted(self, variable: ir.Variable, begin: str, end: str, body: ir.Statement, guarded: bool) -> None:
        """Emit a loop from ``begin`` to ``end``, which runs at least once unless it is ``guarded``."""
        name, before = self.fresh("loop"), self.block
        after = f"{name}.end"
        if guarded:
            some = self.let(f"icmp slt i64 {begin}, {end}")
            self.emit(f"br i1 {some}, label %{name}, label %{after}")
        else:
            self.emit(f"br label %{name}")
        self.label(name)
        phi = len(self.lines)
        index = f"%{name}.{identifier(variable.name)}"
        self.variables[variable] = Value(index, INT64)
        self.push_scope()
        self.statement(body)
        self.pop_scope()
        self.lines.insert(phi, f"  {index} = phi i64 [ {begin}, %{before} ], [ {index}.next, %{self.block} ]")
        self.emit(f"{index}.next = add nuw nsw i64 {index}, 1")
        more = self.let(f"icmp slt i64 {index}.next, {end}")
        self.emit(f"br i1 {more}, label %{name}, label %{after}")
        self.label(after)

    def branch(self, condition: Value, then_body: ir.Statement, else_body: ir.Statement | None) -> None:
        """Emit a branch, or the body of a condition that is known."""
        if condition.text in ("true", "false"):
            chosen = then_body if condition.text == "true" else else_body
            if chosen is not None:
                self.statement(chosen)
            return
        name = self.fresh("if")
        otherwise = f"{name}.end" if else_body is None else f"{name}.else"
        self.emit(f"br i1 {condition.text}, label %{name}, label %{otherwise}")
        for label, body in ((name, then_body), (otherwise, else_body)):
            if body is not None:
                self.label(label)
                self.push_scope()
                self.statement(body)
                self.pop_scope()
                self.emit(f"br label %{name}.end")
        self.label(f"{name}.end")


_ROWS: dict[type, Callable[..., None]] = {
    ir.Store: lambda self, one: memory.store(self, one.buffer, one.indices, self.value(one.value), one.mask),
    ir.For: lambda self, one: self.loop(one),
    ir.If: lambda self, one: self.branch(self.value(one.condition), one.then_body, one.else_body),
    ir.Allocate: lambda self, one: self.allocation(one),
    ir.Block: lambda self, one: self.each(one),
    ir.CallExtern: lambda self, one: self.called(one),
    **dict.fromkeys((ir.Barrier, ir.Issue, ir.Push, ir.Pop), lambda self, one: self.in_step(one)),
}
assert {ir.Let, *_ROWS} == set(get_args(ir.Statement)), "a statement without a row"


def identifier(name: str) -> str:
    """Return ``name`` with every character that LLVM does not allow bare in a name replaced."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._") else "_" for letter in name)
