"""Statements and functions of the tensor IR in LLVM IR.

A tensor IR function becomes ``@name``, which takes the tensors apart, and ``@name.body``, whose ``noalias`` pointers
let LLVM move loads out of loops. The outermost parallel loops become tasks of the same make, run by the runtime.

Where there is no runtime (`graft.plugins.codegen.llvm_ir.builder.PLAIN`), ``@name`` is that body: a function of the
context, a pointer for each tensor, and behind it its extents that vary; which these are, `@name.extents` says
(`graft.runtime.objects`). It runs its loops itself, and what it asks of its host are functions that whoever links it
gives: ``graft_scratch``, ``graft_fail_index`` and its like, and with threads ``graft_parallel_for``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.verifying.machine_check import machine_fault
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import INT64, Type, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.emit_analysis import (
    FAILURES,
    captured,
    collapsed,
    element_count,
    grain_of,
    has_intrinsic,
    has_tile,
    is_shared,
    overlapping,
    uses_any,
)
from graft.plugins.codegen.llvm_ir import addresses
from graft.plugins.codegen.llvm_ir.arithmetic import binary
from graft.plugins.codegen.llvm_ir.builder import Builder, ModuleText, Value, memory_type, register_type
from graft.plugins.codegen.llvm_ir.statement import StatementEmitter, identifier
from graft.runtime.objects import EXTENT, EXTENTS_SUFFIX, STRIDE, taken_extent

STACK_BYTES = 32 * 1024
"""Scratch buffers of one function live on the stack up to this sum; larger ones come from the runtime."""
APART_WORK = 256
"""A loop behind or beside a register tile of so much work is worth the call of a function."""
BRIEF_WORK = 512
"""A function of so few operations takes less than the call of a program; the better code is not worth LLVM's time."""
BRIEF = '"graft-brief"'
"""The attribute of what enters such a function."""
ERROR_MEMORY = 1
_API_PARALLEL_FOR, _API_SCRATCH, _API_FAIL = 8, 16, 32
_TENSOR_SHAPE, _TENSOR_STRIDES, _TENSOR_OFFSET = 24, 32, 40
ATTRIBUTES = 'nounwind "no-builtins" "prefer-vector-width"="512"'
OPENS = f"noinline optnone {ATTRIBUTES}"
"""Of functions that take their arguments apart and call another: nothing in them is worth LLVM's passes."""

_WORKS = re.compile(r" = phi |<\d+ x ")


@dataclass(frozen=True, slots=True)
class _Capture:
    """A buffer or variable of the enclosing function that a task uses: its operand there and how it is passed on."""

    binds: ir.Variable | ir.Buffer
    operand: Value
    llvm_type: str
    attributes: str = ""


class FunctionEmitter(StatementEmitter):
    """Emits the body of one LLVM function; ``%context`` is the runtime's context in every one of them."""

    def __init__(self, module: ModuleText, name: str, in_parallel: bool) -> None:
        super().__init__(module)
        self.name = name
        self.in_parallel = in_parallel
        self.tasks = 0
        self.prologue: list[str] = []
        self._registers: list[ir.Buffer] = []
        self._beside_tile = False
        """Whether a register tile stands beside what is emitted, in the same loop."""
        self._task = module.target.machine.costs.task
        """A parallel loop of less work (operations, see `Work`) runs serially, and no task gets less."""
        self._stack = 0

    # ---- Statements ----

    def allocation(self, allocate: ir.Allocate) -> None:
        """Emit what gives memory, and the body that uses it."""
        buffer = allocate.buffer
        self._check(allocate)
        self.pointers[buffer] = self._allocate(buffer)
        self._registers += [buffer] if buffer.memory == "register" else []
        self.statement(allocate.body)
        self._registers = [other for other in self._registers if other is not buffer]

    def in_step(self, statement: ir.Barrier | ir.Issue | ir.Push | ir.Pop) -> None:
        """Refuse what orders units: a processor has none."""
        self._check(statement)
        raise CompileError(f"function '{self.name}': no threads in step and no queues on a processor")

    def _check(self, statement: ir.Statement) -> None:
        """Refuse what the machine lacks."""
        fault = machine_fault(statement, self.module.target.machine)
        if fault is not None:
            raise CompileError(f"function '{self.name}': {fault}", function=self.name)

    def loop(self, loop: ir.For) -> None:
        """Emit a loop: as tasks of the runtime, as a function of its own, or in its place."""
        self._check(loop)
        if loop.kind == "parallel" and not self.in_parallel and is_shared(loop, self.module.work, self._task):
            self._parallel(loop)
            return
        if loop.kind == "serial" and self._leaves_registers(loop):
            self._apart(loop)
            return
        self.serial_loop(loop)

    def each(self, block: ir.Block) -> None:
        """Emit statements one after another, and know of each whether a register tile stands beside it."""
        before = self._beside_tile
        self._beside_tile = before or has_tile(block, outside_loops=True)
        super().each(block)
        self._beside_tile = before

    def called(self, call: ir.CallExtern) -> None:
        """Emit a prefetch or a failure; there is no other symbol to call.

        Raise CompileError for another.
        """
        match call:
            case ir.CallExtern("prefetch", (ir.Load() as place, ir.Constant(level))):
                address = ("ptr", addresses.address_of(self, place))
                self.intrinsic("prefetch", "void", [address, *(("i32", str(n)) for n in (0, level, 1))], ["ptr"])
                return
            case ir.CallExtern(name, arguments) if name in FAILURES:
                self._fail(name, [self.value(argument) for argument in arguments])
                return
        raise CompileError(
            f"function '{self.name}' calls the external symbol '{call.name}'; native code of the built-in compiler "
            "has no external symbols",
            symbol=call.name,
        )

    def _fail(self, name: str, arguments: list[Value]) -> None:
        """Return the status of the runtime's ``fail`` with the message of ``name`` for int64 numbers."""
        operands = ", ".join(f"i64 {argument.text}" for argument in arguments)
        status = self.fresh("failed")
        if self.module.is_plain:
            kinds = ", ".join("i64" for _ in arguments)
            self.module.declarations[name] = f"declare i32 @graft_{name}(ptr, {kinds})"
            self.emit(f"%{status} = call i32 @graft_{name}(ptr %context, {operands})")
        else:
            text = FAILURES[name]
            constant = f'@{name}_text = private constant [{len(text) + 1} x i8] c"{text}\\00"'
            self.module.declarations[name] = constant
            fail = self._of_runtime(_API_FAIL)
            self.emit(f"%{status} = call i32 (ptr, ptr, ...) {fail}(ptr %context, ptr @{name}_text, {operands})")
        self.emit(f"ret i32 %{status}")
        self.label(self.fresh("after"))

    def _of_runtime(self, offset: int) -> str:
        """Return one of the runtime's functions, by its place in the table that the context begins with."""
        return _field(self, self.let("load ptr, ptr %context, align 8"), offset, "ptr")

    # ---- Memory ----

    def _allocate(self, buffer: ir.Buffer) -> str:
        count = element_count(buffer)
        element = memory_type(Type(buffer.dtype))
        if count is None:
            return self._scratch(self._symbolic_bytes(buffer).text, at_entry=False)
        size = max(count, 1) * (element_bits(buffer.dtype) // 8)
        if buffer.memory != "register":
            if self._stack + size > STACK_BYTES:
                return self._scratch(str(size), at_entry=True)
            self._stack += size
        return self.let_entry(f"alloca [{max(count, 1)} x {element}], align 64")

    def _symbolic_bytes(self, buffer: ir.Buffer) -> Value:
        total = Value(str(element_bits(buffer.dtype) // 8), INT64)
        for extent in buffer.shape:
            total = binary(self, "mul", total, self.value(extent))
        return total

    def _scratch(self, size: str, at_entry: bool) -> str:
        """Ask the runtime; in the entry block where the size allows, since blocks live until the function returns."""
        name = self.fresh("scratch")
        if self.module.is_plain:
            self.module.declarations["graft_scratch"] = "declare noalias ptr @graft_scratch(ptr, i64)"
            function, lines = "@graft_scratch", []
        else:
            function = f"%{name}.function"
            lines = [
                f"  %{name}.api = load ptr, ptr %context, align 8",
                f"  %{name}.slot = getelementptr inbounds i8, ptr %{name}.api, i64 {_API_SCRATCH}",
                f"  {function} = load ptr, ptr %{name}.slot, align 8",
            ]
        lines += [
            f"  %{name} = call noalias align 64 ptr {function}(ptr %context, i64 {size})",
            f"  %{name}.none = icmp eq ptr %{name}, null",
            f"  br i1 %{name}.none, label %{name}.fail, label %{name}.ok",
            f"{name}.fail:",
            f"  ret i32 {ERROR_MEMORY}",
            f"{name}.ok:",
        ]
        if at_entry:
            self.prologue += lines
        else:
            self.lines += lines
            self.block = f"{name}.ok"
        return f"%{name}"

    # ---- Loops behind a tile ----

    def _leaves_registers(self, loop: ir.For) -> bool:
        """Whether a loop is much work and uses no sums of the register tile behind which, or beside which, it stands.

        Beside a tile, that is for the constants of intrinsics, which LLVM moves out of the loop around both.
        """
        if self.module.work(loop) < APART_WORK:
            return False
        if self._registers:
            return not uses_any(loop, self._registers)
        return self._beside_tile and has_intrinsic(loop) and not has_tile(loop)

    def _apart(self, loop: ir.For) -> None:
        """Call a loop as a function of its own, so that its constants take no registers from a tile beside it."""
        self.tasks += 1
        name = f"{self.name}.part{self.tasks}"
        captures = self._captures(loop)
        part = FunctionEmitter(self.module, name, self.in_parallel)
        part.variables = self._known_variables()
        parameters, arguments = ["ptr %context"], ["ptr %context"]
        for number, capture in enumerate(captures):
            parameters.append(part.parameter(capture, number))
            arguments.append(f"{capture.llvm_type} {capture.operand.text}")
        part.statement(loop)
        part.finish(name, parameters)
        self.return_unless_ok(self.let(f"call i32 @{name}({', '.join(arguments)})"))

    def _known_variables(self) -> dict[ir.Variable, Value]:
        """Return the variables that are numbers known at compile time."""
        return {variable: value for variable, value in self.variables.items() if not value.text.startswith("%")}

    def parameter(self, capture: _Capture, number: int) -> str:
        """Return the declaration of parameter ``%c{number}``, which stands for what was captured."""
        if isinstance(capture.binds, ir.Buffer):
            self.pointers[capture.binds] = f"%c{number}"
        else:
            self.variables[capture.binds] = Value(f"%c{number}", capture.operand.type)
        return " ".join(filter(None, (capture.llvm_type, capture.attributes, f"%c{number}")))

    # ---- Parallel loops ----

    def _parallel(self, loop: ir.For) -> None:
        """Outline a nest of parallel loops as one task over the product of their extents."""
        variable, extent, body = collapsed(loop)
        self.tasks += 1
        name = f"{self.name}.task{self.tasks}"
        captures = self._captures(body)
        task = FunctionEmitter(self.module, name, in_parallel=True)
        task.variables = self._known_variables()
        task.task(variable, body, captures)
        closure = self._closure(captures)
        grain = self.value(grain_of(body, self.module.work, self._task, self.variables))
        if self.module.is_plain:
            run = "@graft_parallel_for"
            self.module.declarations["graft_parallel_for"] = f"declare i32 {run}(ptr, i64, i64, ptr, ptr)"
        else:
            run = self._of_runtime(_API_PARALLEL_FOR)
        arguments = f"ptr %context, i64 {self.value(extent).text}, i64 {grain.text}, ptr @{name}, ptr {closure}"
        self.return_unless_ok(self.let(f"call i32 {run}({arguments})"))

    def return_unless_ok(self, status: str) -> None:
        """Return ``status`` from the LLVM function unless it is 0."""
        name = self.fresh("status")
        failed = self.let(f"icmp ne i32 {status}, 0")
        self.emit(f"br i1 {failed}, label %{name}.fail, label %{name}.ok")
        self.lines += [f"{name}.fail:", f"  ret i32 {status}"]
        self.label(f"{name}.ok")

    def _captures(self, body: ir.Statement) -> list[_Capture]:
        buffers, variables = captured(body, self.pointers, self.variables)
        captures = []
        for buffer in buffers:
            attributes = pointer_attributes(buffer, overlaps=buffer in self.module.overlapping)
            captures.append(_Capture(buffer, Value(self.pointers[buffer], INT64), "ptr", attributes))
        for value, variable in ((self.variables[one], one) for one in variables):
            if value.text.startswith("%"):
                captures.append(_Capture(variable, value, register_type(value.type)))
        return captures

    def _closure(self, captures: list[_Capture]) -> str:
        layout = _layout(captures)
        closure = self.let_entry(f"alloca {layout}")
        for number, capture in enumerate(captures):
            slot = self.let(f"getelementptr inbounds {layout}, ptr {closure}, i64 0, i32 {number}")
            self.emit(f"store {capture.llvm_type} {capture.operand.text}, ptr {slot}")
        return closure

    def task(self, variable: ir.Variable, body: ir.Statement, captures: list[_Capture]) -> None:
        """Add ``@name``, which opens the closure, and ``@name.body``, the loop from %begin to %end, to the module."""
        opening, layout = [], _layout(captures)
        parameters, arguments = ["ptr %context", "i64 %begin", "i64 %end"], ["ptr %context", "i64 %begin", "i64 %end"]
        for number, capture in enumerate(captures):
            opening.append(f"  %s{number} = getelementptr inbounds {layout}, ptr %closure, i64 0, i32 {number}")
            opening.append(f"  %c{number} = load {capture.llvm_type}, ptr %s{number}")
            parameters.append(self.parameter(capture, number))
            arguments.append(f"{capture.llvm_type} %c{number}")
        self.counted(variable, "%begin", "%end", body, guarded=True)
        self.module.functions.append(
            f"define internal i32 @{self.name}(ptr %context, ptr %closure, i64 %begin, i64 %end) {OPENS} {{\n"
            + "\n".join(opening)
            + f"\n  %status = call i32 @{self.name}.body({', '.join(arguments)})\n  ret i32 %status\n}}"
        )
        self.finish(f"{self.name}.body", parameters)

    def finish(self, name: str, parameters: list[str], linkage: str = "internal ") -> None:
        """Add ``define internal i32 @name(parameters)`` with everything emitted so far to the module."""
        attributes = OPENS if self._only_opens() else f"noinline {ATTRIBUTES}"
        head = f"define {linkage}i32 @{name}({', '.join(parameters)}) {attributes} {{"
        start = ["  br label %start", "start:"]
        lines = [head, "entry:", *self.entry, *self.prologue, *start, *self.lines, "  ret i32 0", "}"]
        self.module.functions.append("\n".join(lines))

    def _only_opens(self) -> bool:
        """Whether all that is done here is to hand out tasks: no loop, and nothing in vectors."""
        return self.tasks > 0 and not self.module.is_plain and not any(_WORKS.search(line) for line in self.lines)


def _layout(captures: list[_Capture]) -> str:
    return f"{{ {', '.join(capture.llvm_type for capture in captures)} }}"


def pointer_attributes(buffer: ir.Buffer, writes: bool = True, overlaps: bool = False) -> str:
    """Return the parameter attributes of a buffer: others do not overlap it, and a constant size is readable."""
    attributes = [*([] if overlaps else ["noalias"]), *([] if writes else ["readonly"])]
    if buffer.alignment > 1:
        attributes.append(f"align {buffer.alignment}")
    count = element_count(buffer)
    if count:
        attributes.append(f"dereferenceable({count * element_bits(buffer.dtype) // 8})")
    return " ".join(attributes)


def emit_function(module: ModuleText, function: ir.Function) -> None:
    """Add the LLVM functions of a tensor IR function to ``module``; ``@function.name`` has the ABI of GraftFunction."""
    emitter = FunctionEmitter(module, function.name, in_parallel=not module.has_threads)
    outer = Builder(module)
    module.overlapping.update(overlapping(function))
    parameters, arguments = ["ptr %context"], ["ptr %context"]
    passed = bytearray()
    for number, buffer in enumerate(function.parameters):
        is_output = number >= len(function.parameters) - function.outputs
        tensors = "%outputs" if is_output else "%inputs"
        position = number - (len(function.parameters) - function.outputs) if is_output else number
        tensor = _field(outer, tensors, position, "ptr", of="ptr")
        attributes = pointer_attributes(buffer, is_output, buffer in module.overlapping)
        emitter.pointers[buffer] = f"%p{number}"
        parameters.append(f"ptr {attributes} %p{number}")
        arguments.append(f"ptr {_data(outer, tensor)}")
        given = buffer.outside
        for axis, extent in enumerate(given.shape):
            if isinstance(extent, ir.Variable) and extent not in emitter.variables:
                emitter.variables[extent] = Value(f"%{identifier(extent.name)}.{number}.{axis}", INT64)
                parameters.append(f"i64 {emitter.variables[extent].text}")
                arguments.append(f"i64 {_extent(outer, tensor, axis)}")
                passed += taken_extent(number, axis, EXTENT)
        for axis, stride in enumerate(given.strides or ()):
            if isinstance(stride, ir.Variable) and stride not in emitter.variables:
                emitter.variables[stride] = Value(f"%{identifier(stride.name)}.{number}.{axis}.stride", INT64)
                parameters.append(f"i64 {emitter.variables[stride].text}")
                arguments.append(f"i64 {_stride(outer, tensor, axis, len(given.shape))}")
                passed += taken_extent(number, axis, STRIDE)
    emitter.statement(function.body)
    if module.is_plain:
        emitter.finish(function.name, parameters, linkage="")
        if passed:
            module.functions.append(extents_constant(function.name, passed))
        return
    attributes = f"{OPENS} {BRIEF}" if is_brief(module, function) else OPENS
    head = f"define i32 @{function.name}(ptr %context, ptr %state, ptr %inputs, ptr %outputs) {attributes} {{"
    call = f"  %status = call i32 @{function.name}.body({', '.join(arguments)})\n  ret i32 %status\n}}"
    module.functions.append("\n".join((head, *outer.lines, call)))
    emitter.finish(f"{function.name}.body", parameters)


def is_brief(module: ModuleText, function: ir.Function) -> bool:
    """Whether a function is known to be so little work that it need not be fast."""
    loops = (one.extent for one in walk_statements(function.body) if isinstance(one, ir.For))
    return all(isinstance(extent, ir.Constant) for extent in loops) and module.work(function.body) <= BRIEF_WORK


def extents_constant(name: str, passed: Sequence[int]) -> str:
    """Return the constant that says which extents a plain function takes."""
    content = "".join(f"\\{byte:02X}" for byte in passed)
    return f'@{name}{EXTENTS_SUFFIX} = constant [{len(passed)} x i8] c"{content}", align 1'


def _field(builder: Builder, structure: str, place: int, kind: str, of: str = "i8") -> str:
    """Load a pointer or 64-bit integer at a place in memory: in bytes, or in elements ``of`` a type."""
    slot = builder.let(f"getelementptr inbounds {of}, ptr {structure}, i64 {place}")
    return builder.let(f"load {kind}, ptr {slot}, align 8")


def _data(builder: Builder, tensor: str) -> str:
    """Return ``tensor->data + tensor->byte_offset``."""
    data = builder.let(f"load ptr, ptr {tensor}, align 8")
    offset = _field(builder, tensor, _TENSOR_OFFSET, "i64")
    return builder.let(f"getelementptr inbounds i8, ptr {data}, i64 {offset}")


def _extent(builder: Builder, tensor: str, axis: int) -> str:
    return _field(builder, _field(builder, tensor, _TENSOR_SHAPE, "ptr"), axis, "i64", of="i64")


def _stride(builder: Builder, tensor: str, axis: int, rank: int) -> str:
    """Return the stride of an axis in elements; without strides the tensor is contiguous."""
    product = "1"
    for inner in range(axis + 1, rank):
        product = builder.let(f"mul i64 {product}, {_extent(builder, tensor, inner)}")
    strides = _field(builder, tensor, _TENSOR_STRIDES, "ptr")
    none = builder.let(f"icmp eq ptr {strides}, null")
    extents = _field(builder, tensor, _TENSOR_SHAPE, "ptr")
    some = builder.let(f"select i1 {none}, ptr {extents}, ptr {strides}")  # something that can be read
    given = _field(builder, some, axis, "i64", of="i64")
    return builder.let(f"select i1 {none}, i64 {product}, i64 {given}")
