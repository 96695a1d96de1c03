"""Statements of the tensor IR in a language like C; what a language says otherwise, its writer overrides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, TypeVar

from graft.core.tensor_ir import ir
from graft.plugins.codegen.c_expressions import ExpressionWriter
from graft.plugins.codegen.index_ranges import IndexRanges
from graft.runtime.c_operators import infix

_Form = TypeVar("_Form")


class StatementWriter(ExpressionWriter, Generic[_Form]):
    """Writes statements; `Allocate` and `CallExtern` are each language's own."""

    unroll: ClassVar[str]
    """The line that asks the compiler to unroll the loop below it."""
    unrolled: ClassVar[int]
    """Iterations up to which it is asked to unroll a loop that is to be."""
    otherwise: ClassVar[tuple[str, ...]] = ("} else {",)
    """The lines between the bodies of a branch."""
    unwritable: ClassVar[str] = "queues"
    """What statements without a row are."""

    def __init__(self, function: str, ranges: IndexRanges | None = None, *, narrow: bool = False) -> None:
        super().__init__(function, ranges, narrow=narrow)
        self.forms: dict[ir.Variable, _Form | None] = {}
        """Of bound vectors of indices, where the lanes are."""

    @abstractmethod
    def form(self, expression: ir.Expression) -> _Form | None:
        """Return where the lanes of an index are; None where these have no constant step."""

    @abstractmethod
    def store_lanes(self, store: ir.Store, lanes: int) -> None:
        """Write a store of several lanes."""

    @abstractmethod
    def allocate(self, allocate: ir.Allocate) -> None:
        """Write what gives memory, and the body that uses it."""

    @abstractmethod
    def call(self, call: ir.CallExtern) -> None:
        """Write a call for its effect."""

    @abstractmethod
    def is_written_out(self, loop: ir.For) -> bool:
        """Whether an unrolled loop of constant extent is written as copies of its body."""

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write what waits for other threads."""
        raise self.refused(self.unwritable)

    def statement(self, statement: ir.Statement) -> None:
        """Write a statement and what is inside."""
        while isinstance(statement, ir.Let):  # not by recursion: unrolled loops make chains of hundreds
            self.begin(statement)
            self.let(statement)
            statement = statement.body
        self.begin(statement)
        row = _ROWS.get(type(statement))
        if row is None:
            raise self.refused(self.unwritable)
        row(self, statement)

    def let(self, let: ir.Let) -> None:
        """Write a variable and its value."""
        if let.value.type.lanes > 1 and let.value.type.dtype == "int64":
            self.forms[let.variable] = self.form(let.value)
        self.declare(let.variable, self.value(let.value))

    def declare(self, variable: ir.Variable, text: str) -> str:
        """Write a variable with a value and return its name."""
        name = self.bind(variable)
        self.line(f"const {self.type_of(variable)} {name} = {text};")
        return name

    def store(self, store: ir.Store) -> None:
        """Write a store."""
        lanes = ir.access_lanes(store.indices, store.mask)
        if lanes > 1:
            self.store_lanes(store, lanes)
            return
        on = "" if store.mask is None else f"if ({self.value(store.mask)}) "
        text = self.value(store.value)
        self.line(f"{on}{self.place(store.buffer, store.indices)} = {text};")

    def loop(self, loop: ir.For) -> None:
        """Write a loop that runs where it stands."""
        extent = self.index(loop.extent)
        fixed = loop.kind == "unrolled" and isinstance(loop.extent, ir.Constant)
        if fixed and self.is_written_out(loop):
            for number in range(int(extent)):
                self.variables[loop.variable] = str(number)
                self.statement(loop.body)
            return
        name = self.bind(loop.variable)
        if fixed and 1 < int(extent) <= self.unrolled:
            self.line(self.unroll.format(extent))
        head = f"for ({self.type_of(loop.variable)} {name} = 0; {infix(name, '<', extent)}; ++{name}) {{"
        self.block(head, loop.body)
        self.line("}")

    def branch(self, branch: ir.If) -> None:
        """Write a branch."""
        self.block(f"if ({self.value(branch.condition)}) {{", branch.then_body)
        if branch.else_body is not None:
            for line in self.otherwise[:-1]:
                self.line(line)
            self.block(self.otherwise[-1], branch.else_body)
        self.line("}")

    def block(self, head: str, body: ir.Statement) -> None:
        """Write a statement behind a head, up to the brace that closes it."""
        self.line(head)
        self.depth += 1
        self.statement(body)
        self.depth -= 1

    def each(self, block: ir.Block) -> None:
        """Write statements one after another."""
        for inner in block.statements:
            self.statement(inner)


_ROWS: Mapping[type, Callable[..., None]] = {
    ir.Store: lambda writer, statement: writer.store(statement),
    ir.For: lambda writer, statement: writer.loop(statement),
    ir.If: lambda writer, statement: writer.branch(statement),
    ir.Allocate: lambda writer, statement: writer.allocate(statement),
    ir.Block: lambda writer, statement: writer.each(statement),
    ir.CallExtern: lambda writer, statement: writer.call(statement),
    ir.Barrier: lambda writer, statement: writer.barrier(statement),
}
