"""From a scheduled function to launches: what runs on the device at one time, and the memory between them.

A function's outermost loops that are bound to blocks and threads are a launch each. Parallel loops that are bound to
nothing, as strategies for processors leave them, become one thread for each iteration. A serial loop around parallel
ones is one block whose threads share these and meet behind each of them; what is neither is done by one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Bind
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.units import Spmd
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.statements import loops_over
from graft.core.types import element_bits
from graft.errors import CompileError
from graft.plugins.codegen.emit_analysis import FAILURES, collapsed, used

THREADS = 256
"""Threads of a block where no strategy says how many."""
REPORT = ir.Buffer("report", "int64", (b.index(8),), alignment=64)
"""Where a kernel says that it found something wrong: 1 + its number in `FAILURES`, then the numbers of the message."""
LOCAL = 1024
"""Bytes that a thread may have for itself in memory that is not its registers."""
AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and its geometry: blocks, threads of a block, and what it reads and writes."""

    name: str
    grid: tuple[ir.Expression, ir.Expression, ir.Expression]
    block: tuple[int, int, int]
    body: ir.Statement
    buffers: tuple[ir.Buffer, ...]
    extents: tuple[ir.Variable, ...]

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return prod(self.block)


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a function in order, and the buffers that live between them."""

    function: ir.Function
    launches: tuple[Launch, ...]
    workspaces: tuple[ir.Buffer, ...]


def launches_of(function: ir.Function) -> Launches:
    """Return the launches of a function; raise CompileError where memory or loops have extents that are computed."""
    splitter = _Splitter(function)
    splitter.statement(guarded(function.body), ())
    return Launches(function, tuple(splitter.launches), tuple(splitter.workspaces))


_Around = tuple[ir.Let | ir.Expression, ...]
"""What is around a statement: bindings, and conditions under which it is done."""


@dataclass(slots=True)
class _Splitter:
    function: ir.Function
    launches: list[Launch] = field(default_factory=list)
    workspaces: list[ir.Buffer] = field(default_factory=list)

    def statement(self, statement: ir.Statement, around: _Around) -> None:
        match statement:
            case ir.Block(statements):
                for inner in statements:
                    self.statement(inner, around)
            case ir.Allocate(buffer, body):
                self.statement(self._kept(buffer, body, around), around)
            case ir.Let(_, value, body) if not visit.loads(value):
                self.statement(body, (*around, statement))
            case ir.If(condition, then_body, else_body) if not visit.loads(condition):
                self.statement(then_body, (*around, condition))
                if else_body is not None:
                    self.statement(else_body, (*around, ir.Unary("not", condition)))
            case ir.For(binding=binding) if binding:
                self._launch(statement, around)
            case ir.For(kind="parallel"):
                self._launch(self._bound(statement, around), around)
            case _ if _has_parallel(statement):
                self._launch(self._together(statement, around), around)
            case _:
                block, thread = _names(statement, "block", "thread")
                alone = loops_over([(ir.Variable(block), b.index(1)), (ir.Variable(thread), b.index(1))], statement)
                self._launch(taken(alone, [Bind(block, "block.x"), Bind(thread, "thread.x")]), around)

    def _kept(self, buffer: ir.Buffer, body: ir.Statement, around: _Around) -> ir.Statement:
        """Make a buffer memory of the device, and return the body that uses it."""
        shape = tuple(self._outside(extent, around) for extent in buffer.shape)
        kept = replace(buffer, shape=shape, memory="host", alignment=max(16, buffer.alignment))
        self.workspaces.append(kept)
        return with_buffer(body, buffer, kept)

    def _outside(self, extent: ir.Expression, around: _Around) -> ir.Expression:
        """Return an extent over those of the function's parameters."""
        values = {one.variable: one.value for one in around if isinstance(one, ir.Let)}
        while visit.free_variables(extent) & values.keys():
            extent = visit.substitute(extent, values)
        if visit.loads(extent) or not visit.free_variables(extent) <= set(extents_of(self.function)):
            raise CompileError(
                f"function '{self.function.name}': the size of what lies between its loops is computed on the device",
                function=self.function.name,
            )
        return extent

    def _launch(self, statement: ir.Statement, around: _Around) -> None:
        grid: dict[str, ir.Expression] = {axis: b.index(1) for axis in AXES}
        block = dict.fromkeys(AXES, 1)
        for one in visit.walk_statements(statement):
            if not isinstance(one, ir.For) or not one.binding:
                continue
            axis = one.binding.partition(".")[2] or "x"
            if ir.level_of(one.binding) == "block":
                grid[axis] = self._outside(one.extent, around)
            elif isinstance(one.extent, ir.Constant):
                block[axis] = max(block[axis], int(one.extent.value))
            else:
                raise CompileError(
                    f"function '{self.function.name}': a block has a number of threads, not '{one.extent}'"
                )
        body: ir.Statement = statement
        for outer in reversed(around):
            body = replace(outer, body=body) if isinstance(outer, ir.Let) else ir.If(outer, body)
        body = simplify_statement(body)
        variables, buffers = used(body)
        known = [*self.function.parameters, *self.workspaces]
        read = {variable for one in known if one in buffers for extent in (*one.shape, *(one.strides or ()))
                for variable in visit.free_variables(extent)}  # fmt: skip
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

    def _bound(self, loop: ir.For, around: _Around) -> ir.Statement:
        """Return parallel loops with a thread for each iteration."""
        index, extent, body = collapsed(loop)
        body = self._without_local(body, index, extent, around)
        known = int(extent.value) if isinstance(extent, ir.Constant) else None
        threads = THREADS if known is None else max(32, min(THREADS, -(-known // 32) * 32))
        name, block, thread = _names(body, index.name, f"{index.name}.block", f"{index.name}.thread")
        own = ir.Variable(name)
        nest = loops_over([(own, extent)], visit.map_statement(body, visit.substitution({index: own})))
        return taken(nest, [Split(name, threads, block, thread), Bind(block, "block.x"), Bind(thread, "thread.x")])

    def _without_local(
        self, body: ir.Statement, index: ir.Variable, extent: ir.Expression, around: _Around
    ) -> ir.Statement:
        """Return the body of a thread with what is large of its memory a part of one buffer for all threads."""
        for allocate in [one for one in visit.walk_statements(body) if isinstance(one, ir.Allocate)]:
            buffer = allocate.buffer
            known = [int(one.value) for one in buffer.shape if isinstance(one, ir.Constant)]
            if len(known) == len(buffer.shape) and prod(known) * element_bits(buffer.dtype) // 8 <= LOCAL:
                continue
            shape = (self._outside(extent, around), *(self._outside(one, around) for one in buffer.shape))
            whole = ir.Buffer(buffer.name, buffer.dtype, shape, alignment=16)
            self.workspaces.append(whole)
            body = _without_allocation(body, buffer)
            body = with_buffer(body, buffer, whole, (index,))
        return body

    def _together(self, statement: ir.Statement, around: _Around) -> ir.Statement:
        """Return a statement around parallel loops as what one block does."""
        block, thread = _names(statement, "block", "thread")
        body = loops_over([(ir.Variable(block), b.index(1))], self._prepared(statement, around))
        return taken(body, [Bind(block, "block.x"), Spmd(block, THREADS, "thread.x", thread)])

    def _prepared(self, statement: ir.Statement, around: _Around) -> ir.Statement:
        """Return a statement whose parallel loops are one each, and between which lies memory of the device."""
        match statement:
            case ir.Allocate(buffer, body):
                return self._prepared(self._kept(buffer, body, around), around)
            case ir.Let(_, value) if not visit.loads(value):
                around = (*around, statement)
            case ir.For(kind="parallel"):
                index, extent, body = collapsed(statement)
                body = self._without_local(body, index, extent, around)
                return loops_over([(index, extent)], body, "parallel")
        return visit.with_parts(statement, lambda expression: expression, lambda one: self._prepared(one, around))


def _names(body: ir.Statement, *names: str) -> list[str]:
    """Return names that no loop of a statement has."""
    taken_names = {one.variable.name for one in visit.walk_statements(body) if isinstance(one, ir.For)}
    return [name if name not in taken_names else f"{name}.{len(taken_names)}" for name in names]


def extents_of(function: ir.Function) -> tuple[ir.Variable, ...]:
    """Return the extents and strides of a function's parameters that vary, each once."""
    found: dict[ir.Variable, None] = {}
    for buffer in function.parameters:
        for extent in (*buffer.outside.shape, *(buffer.outside.strides or ())):
            if isinstance(extent, ir.Variable):
                found[extent] = None
    return tuple(found)


def reports(body: ir.Statement) -> bool:
    """Whether a body may say that it found something wrong."""
    return any(isinstance(one, ir.CallExtern) and one.name in FAILURES for one in visit.walk_statements(body))


def _has_parallel(statement: ir.Statement) -> bool:
    return any(isinstance(one, ir.For) and one.kind == "parallel" for one in visit.walk_statements(statement))


def _without_allocation(body: ir.Statement, buffer: ir.Buffer) -> ir.Statement:
    def rule(statement: ir.Statement) -> ir.Statement:
        return statement.body if isinstance(statement, ir.Allocate) and statement.buffer is buffer else statement

    return visit.map_nested(body, rule)


def with_buffer(
    body: ir.Statement, old: ir.Buffer, new: ir.Buffer, leading: tuple[ir.Expression, ...] = ()
) -> ir.Statement:
    """Return a body with accesses of a buffer made accesses of another one, at ``leading`` indices before its own."""
    return visit.map_accesses(body, {old}, lambda _, indices: (new, (*leading, *indices)))


def guarded(body: ir.Statement) -> ir.Statement:
    """Return a body in which places that are read from memory lie inside of the buffers.

    On the device nobody can say that an index is wrong before it is used: what it would read is the nearest element,
    and what it would write is left out.
    """

    def expression(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Load) and any(_is_read(index) for index in node.indices):
            pairs = zip(node.indices, node.buffer.shape, strict=True)
            return replace(node, indices=tuple(b.clamp(i, b.counted(n)) if _is_read(i) else i for i, n in pairs))
        return node

    def statement(one: ir.Statement) -> ir.Statement:
        if isinstance(one, ir.Store) and any(_is_read(index) for index in one.indices):
            pairs = list(zip(one.indices, one.buffer.shape, strict=True))
            conditions = [ir.Binary("lt", index, extent) for index, extent in pairs if _is_read(index)]
            conditions += [ir.Binary("ge", index, b.index(0)) for index, _ in pairs if _is_read(index)]
            condition = b.all_of(conditions)
            assert condition is not None, "a place that is read has a bound"
            return ir.If(condition, one)
        return one

    return visit.map_statement(body, visit.ExpressionMap(expression), statement)


def _is_read(index: ir.Expression) -> bool:
    return bool(visit.loads(index))
