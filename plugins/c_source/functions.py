"""Statements and functions of the tensor IR as C.

A kernel is a plain function of pointers and extents (`graft.runtime.c_source`). Its outermost parallel loops are
functions of their own, which the host calls with parts of the iterations; what they use of the enclosing function is
passed in a struct.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.fused import unfused
from graft.core.tensor_ir.arithmetic.small_floats import widening
from graft.core.tensor_ir.arithmetic.vector_math import expansion
from graft.core.tensor_ir.rewriting.rolling import rolled
from graft.core.tensor_ir.rewriting.scalar_lanes import without_vectors
from graft.core.tensor_ir.visit import (
    buffers_read,
    map_statement,
    statement_expressions,
    walk_expressions,
    walk_statements,
)
from graft.core.types import element_bits
from graft.plugins.c_source.vectors import VectorWriter, has_vector_types
from graft.plugins.c_source.wide_casts import casts_by_parts
from graft.plugins.codegen import emit_analysis
from graft.plugins.codegen.index_ranges import IndexRanges
from graft.plugins.codegen.kernel_source import KernelSource
from graft.runtime.c_operators import cast
from graft.runtime.c_source import VARIES, CFunction
from graft.runtime.export.c_names import TYPES

FILLED_BYTES = 256
"""Memory up to which compilers write zeros themselves, and call no memset."""
STACK_BYTES = 16 * 1024
"""Scratch buffers of a function live on the stack up to this sum; larger ones come from the runtime."""
ALIGNMENT = 64
"""Bytes that such a buffer is aligned to where there are vectors: a widest one."""

_WORD, _NOT_A_WORD = re.compile(r"\w+"), re.compile(r"\W")
_CONTEXT = re.compile(r"\bcontext\b")
_VARIABLE = re.compile(r"\s*const \w+ (\w+) = .*;$")


def function_source(
    function: ir.Function, *, vectors: bool = False, narrow: bool = False, threads: bool = True, rolls: bool = False
) -> KernelSource:
    """Return the C functions of a tensor IR function: its tasks, then itself; with vector types where they suffice.

    Indices are ``narrow``, of 32 bits, where that is wanted and extents allow. Without ``threads`` there are no tasks:
    parallel loops stand where they are. With ``rolls`` register tiles without vectors are loops: text that is read; a
    compiler may call ``memcpy`` for one, which code that is compiled here has not.

    Raises CompileError for a node that C cannot say, naming it.
    """
    rules = [expansion(), unfused(is_exact=function.is_exact), *([casts_by_parts()] if vectors else ()), widening()]
    for rule in rules:
        function = replace(function, body=map_statement(function.body, rule))
    if not (vectors and has_vector_types(function)):
        function = without_vectors(function, packed=True)
        function = replace(function, body=rolled(function.body)) if rolls else function
    function = replace(function, body=map_statement(function.body, lambda same: same, _without_unread))
    return _Program(function, narrow, threads).source()


class _Program:
    """The C functions that one function becomes."""

    def __init__(self, function: ir.Function, narrow: bool, threads: bool) -> None:
        self.function, self.threads = function, threads
        self.ranges = IndexRanges(function)
        self.narrow = narrow
        self.work = emit_analysis.Work()
        self.tasks: list[str] = []
        self.overlapping = emit_analysis.overlapping(function)
        self.has_vectors = any(
            one.type.lanes > 1 for inner in walk_statements(function.body) for one in statement_expressions(inner)
        )
        self.extents: dict[ir.Variable, tuple[int, int]] = {}
        """Of which parameter and axis an extent that varies is."""
        self.task_scratch = 0
        """The most bytes that one of the tasks asks for."""

    def source(self) -> KernelSource:
        """Return the tasks, then the function."""
        function = self.function
        writer = _Writer(self, function.name, in_parallel=False)
        inputs = len(function.parameters) - function.outputs
        parameters, shapes, strides = list[str](), list[bool](), list[bool]()
        for number, buffer in enumerate(function.parameters):
            name = writer.bind(buffer)
            parameters.append(f"{self.pointer(buffer, is_read=number < inputs)}{name}")
            given = buffer.outside
            strides.append(any(isinstance(stride, ir.Variable) for stride in given.strides or ()))
            shapes.append(strides[-1] or any(isinstance(extent, ir.Variable) for extent in given.shape))
            parameters += [f"const int64_t *{writer.reserve(f'{name}_shape')}"] if shapes[-1] else []
            parameters += [f"const int64_t *{writer.reserve(f'{name}_strides')}"] if strides[-1] else []
        for number, buffer in enumerate(function.parameters):
            self._bind_extents(writer, buffer, number)
        writer.statement(function.body)
        lines = writer.finished()
        needs_host = any(_CONTEXT.search(line) for line in lines)
        if needs_host:
            parameters, lines = ["GraftContext *context", *parameters], [*lines, "return GRAFT_OK;"]
        scratch = VARIES if VARIES in (writer.scratch, self.task_scratch) else writer.scratch + self.task_scratch
        own = CFunction(
            function.name, ", ".join(parameters), tuple(shapes), tuple(strides), scratch, tuple(writer.growing),
            needs_host=needs_host,
        )  # fmt: skip
        body = _indented(_unused(parameters, lines))
        return KernelSource("\n".join([*self.tasks, f"GRAFT_KERNEL {own.declaration} {{", *body, "}\n"]), own)

    def _bind_extents(self, writer: _Writer, buffer: ir.Buffer, number: int) -> None:
        """Read the extents and strides that vary of a parameter."""
        shape, strides = f"{writer.pointers[buffer]}_shape", f"{writer.pointers[buffer]}_strides"
        tensor = buffer.outside
        for axis, extent in enumerate(tensor.shape):
            if isinstance(extent, ir.Variable) and extent not in writer.variables:
                self.extents[extent] = number, axis
                writer.first.append(f"const int64_t {writer.bind(extent)} = {shape}[{axis}];")
        for axis, stride in enumerate(tensor.strides or ()):
            if isinstance(stride, ir.Variable) and stride not in writer.variables:
                inner = " * ".join(f"{shape}[{below}]" for below in range(axis + 1, len(tensor.shape))) or "1"
                given = f"{strides} ? {strides}[{axis}] : {inner}"
                writer.first.append(f"const int64_t {writer.bind(stride)} = {given};")

    def pointer(self, buffer: ir.Buffer, *, is_read: bool) -> str:
        """Return the declaration of a pointer, up to its name; all but those that share memory are ``restrict``."""
        restrict = "" if buffer in self.overlapping else "restrict "
        return f"{'const ' if is_read else ''}{TYPES[buffer.dtype]} *{restrict}"


class _Writer(VectorWriter):
    """Writes the body of one C function."""

    unroll: ClassVar[str] = "GRAFT_UNROLL({})"
    unrolled: ClassVar[int] = 16
    otherwise: ClassVar[tuple[str, ...]] = ("}", "else {")
    unwritable: ClassVar[str] = "threads in step or queues"

    def __init__(self, program: _Program, name: str, *, in_parallel: bool) -> None:
        super().__init__(name, program.ranges, narrow=program.narrow)
        self.program, self.in_parallel = program, in_parallel
        self.first: list[str] = []
        self.scratch = 0
        """The bytes asked for, or VARIES."""
        self.growing: list[tuple[int, ...]] = []
        self.has_vectors = program.has_vectors
        self._stack = 0

    def finished(self) -> list[str]:
        """Return the lines, parameters and memory first."""
        return [*self.first, *self.lines]

    def is_written_out(self, loop: ir.For) -> bool:
        """Copies of the body: vectors that a compiler is to keep in registers have constant places."""
        return self.has_vectors

    def loop(self, loop: ir.For) -> None:
        """Write a loop, a parallel one with work for several threads as a task."""
        if loop.binding:
            raise self.refused(f"a loop bound to '{loop.binding}'")
        is_shared = self.program.threads and loop.kind == "parallel" and not self.in_parallel
        if is_shared and emit_analysis.is_shared(loop, self.program.work, emit_analysis.SERIAL_WORK):
            self._parallel(loop)
        else:
            super().loop(loop)

    def call(self, call: ir.CallExtern) -> None:
        """Write a call for its effect."""
        match call:
            case ir.CallExtern("prefetch", (ir.Load(buffer, indices), ir.Constant(level))) if self.has_vectors:
                self.line(f"GRAFT_PREFETCH(&{self.place(buffer, indices)}, {level});")
            case ir.CallExtern("prefetch"):
                pass  # no effect but on time
            case ir.CallExtern(name, arguments) if name in emit_analysis.FAILURES:
                numbers = ", ".join(cast("long long", self.value(argument)) for argument in arguments)
                self.line(f'return graft_fail(context, "{emit_analysis.FAILURES[name]}", {numbers});')
            case _:
                raise self.refused(f"a call of '{call.name}'")

    def allocate(self, allocate: ir.Allocate) -> None:
        """Write memory of the function, or that comes from the runtime, and the body that uses it."""
        self._take(allocate.buffer, allocate.body)
        self.statement(allocate.body)

    def _take(self, buffer: ir.Buffer, body: ir.Statement) -> None:
        name, kind, count = self.bind(buffer), TYPES[buffer.dtype], emit_analysis.element_count(buffer)
        element = element_bits(buffer.dtype) // 8
        room = max(1, count or 1)
        if self.has_vectors and room > 1:
            # GCC takes an access that is wider than an array, if only by lanes that are off, for one of other memory.
            room = -(-room * element // ALIGNMENT) * ALIGNMENT // element
        if count is not None and (buffer.memory == "register" or self._stack + room * element <= STACK_BYTES):
            self._stack += room * element
            is_small = room * element <= FILLED_BYTES
            filled = " = {0}" if is_small and _is_read_first(buffer, body) else ""
            aligned = f"_Alignas({ALIGNMENT}) " if self.has_vectors else ""
            self.first.append(f"{aligned}{kind} {name}[{room}]{filled};")
            return
        total = " * ".join(["sizeof *" + name, *(cast("uint64_t", self.index(extent)) for extent in buffer.shape)])
        lines = [
            f"{kind} *restrict {name} = graft_scratch(context, {total});",
            f"if ({name} == NULL) return GRAFT_ERROR_MEMORY;",
        ]
        if count is not None:
            self.scratch += -(-count * element // ALIGNMENT) * ALIGNMENT if self.scratch != VARIES else 0
        elif (block := self._growing(buffer, element)) is not None:
            self.growing.append(block)
        else:
            self.scratch = VARIES
        if count is not None:  # blocks live until the function returns: not one for every iteration
            self.first += lines
        else:
            self.lines += _indented(lines, self.depth)

    def _growing(self, buffer: ir.Buffer, element: int) -> tuple[int, ...] | None:
        """Return the row of memory that grows with extents of parameters and is asked for once; None of any other."""
        varying = [one for one in buffer.shape if not isinstance(one, ir.Constant)]
        places = [self.program.extents.get(one) for one in varying if isinstance(one, ir.Variable)]
        if self.in_parallel or self.depth or len(places) < len(varying) or None in places:
            return None
        known = prod(int(one.value) for one in buffer.shape if isinstance(one, ir.Constant))
        return known * element, *(at for place in places if place is not None for at in place)

    def _parallel(self, loop: ir.For) -> None:
        """Write parallel loops as a function of a part of their iterations, and the call of the runtime."""
        variable, extent, body = emit_analysis.collapsed(loop)
        name = f"{self.program.function.name}_task{len(self.program.tasks) + 1}"
        task = _Writer(self.program, self.function, in_parallel=True)
        written = {one.buffer for one in walk_statements(body) if isinstance(one, ir.Store)}
        buffers, variables = emit_analysis.captured(body, self.pointers, self.variables.keys() - {variable})
        kinds = [self.program.pointer(one, is_read=one not in written) for one in buffers]
        kinds += [f"const {self.type_of(one)} " for one in variables]
        values = [*(self.pointers[one] for one in buffers), *(self.variables[one] for one in variables)]
        names = [*map(task.bind, buffers), *map(task.bind, variables)]
        fields = [f"  {kind.replace('restrict ', '')}{own};" for kind, own in zip(kinds, names, strict=True)]
        self.program.ranges.add_loop(variable, extent)
        index, kind = task.bind(variable), task.type_of(variable)
        first, last = (one if kind == "int64_t" else cast(kind, one) for one in ("begin", "end"))
        task.block(f"for ({kind} {index} = {first}; {index} < {last}; ++{index}) {{", body)
        task.line("}")
        if VARIES not in (task.scratch, self.program.task_scratch):
            self.program.task_scratch = max(task.scratch, self.program.task_scratch)
        else:
            self.program.task_scratch = VARIES
        taken = ["GraftContext *context", "int64_t begin", "int64_t end"]
        taken += [f"{kind}{own}" for kind, own in zip(kinds, names, strict=True)]
        given = ", ".join(["context", "begin", "end", *(f"closure->{own}" for own in names)])
        lines = [f"struct {name} {{", *(fields or ["  char none;"]), "};"]
        lines.append(f"static GRAFT_APART int32_t {name}_part({', '.join(taken)}) {{")
        lines += [*_indented(_unused(taken, [*task.finished(), "return GRAFT_OK;"])), "}"]
        lines.append(f"static int32_t {name}_run(GraftContext *context, void *data, int64_t begin, int64_t end) {{")
        lines += _indented([f"struct {name} *const closure = data;", "(void)closure;", f"return {name}_part({given});"])
        self.program.tasks.append("\n".join([*lines, "}\n"]))
        grain = emit_analysis.grain_of(body, self.program.work, emit_analysis.SERIAL_WORK, self.variables)
        closure, status = self.fresh("closure"), self.fresh("status")
        self.line(f"struct {name} {closure} = {{{', '.join(values) or '0'}}};")
        run = f"graft_parallel_for(context, {self.index(extent)}, {self.index(grain)}, {name}_run, &{closure})"
        self.line(f"const int32_t {status} = {run};")
        self.line(f"if ({status} != GRAFT_OK) return {status};")


def _without_unread(statement: ir.Statement) -> ir.Statement:
    """Drop memory that nothing reads, with what is stored there: compilers warn of it."""
    if not isinstance(statement, ir.Allocate) or statement.buffer in buffers_read(statement.body):
        return statement

    def without(inner: ir.Statement) -> ir.Statement:
        return ir.Block(()) if isinstance(inner, ir.Store) and inner.buffer is statement.buffer else inner

    return map_statement(statement.body, lambda same: same, without)


def _is_read_first(buffer: ir.Buffer, body: ir.Statement) -> bool:
    """Whether the first statement of a text that names memory reads it: compilers do not see that it was written."""
    for statement in walk_statements(body):
        if any(
            isinstance(one, ir.Load) and one.buffer is buffer
            for one in walk_expressions(*statement_expressions(statement))
        ):
            return True
        if isinstance(statement, ir.Store) and statement.buffer is buffer:
            return False
    return False


def _unused(parameters: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Return the lines without variables that none names, behind one that uses the parameters that none does."""
    kept = list(lines)
    while True:
        words = Counter(_WORD.findall("\n".join(kept)))
        used = [line for line in kept if (found := _VARIABLE.match(line)) is None or words[found[1]] > 1]
        if len(used) == len(kept):
            break
        kept = used
    names = [_NOT_A_WORD.split(parameter)[-1] for parameter in parameters]
    unused = [f"(void){name}" for name in names if name not in words]
    return [*([f"{', '.join(unused)};"] if unused else []), *kept]


def _indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["  " * depth + line for line in lines]
