"""Statements and functions of the tensor IR as C.

A function has the ABI of GraftFunction. Its outermost parallel loops are functions of their own, which the runtime
calls with parts of the iterations; what they use of the enclosing function is passed in a struct.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.fused import unfused
from graft.core.tensor_ir.scalar_lanes import without_vectors
from graft.core.tensor_ir.small_floats import widening
from graft.core.tensor_ir.vector_math import expansion
from graft.core.tensor_ir.visit import map_statement, walk_statements
from graft.core.types import element_bits
from graft.plugins.c_source.expressions import TYPES, ExpressionWriter
from graft.plugins.codegen import emit_analysis

STACK_BYTES = 16 * 1024
"""Scratch buffers of a function live on the stack up to this sum; larger ones come from the runtime."""
UNROLLED = 16
"""Iterations up to which the compiler is asked to unroll a loop that is to be."""
_NOT_IN_A_NAME = re.compile(r"\W+", re.ASCII)


def function_text(function: ir.Function) -> str:
    """Return the C functions of a tensor IR function: its tasks, then itself.

    Raises CompileError for a node that C cannot say, naming it.
    """
    body = without_vectors(function).body
    for rule in (expansion(), unfused(is_exact=function.is_exact), widening()):
        body = map_statement(body, rule)
    return _Program(replace(function, body=body)).text()


class _Program:
    """The C functions that one function becomes."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.work = emit_analysis.Work()
        self.tasks: list[str] = []
        self.overlapping = emit_analysis.overlapping(function)

    def text(self) -> str:
        """Return the tasks, then the function."""
        function = self.function
        writer = _Writer(self, function.name, in_parallel=False)
        inputs = len(function.parameters) - function.outputs
        for number, buffer in enumerate(function.parameters):
            tensor = f"inputs[{number}]" if number < inputs else f"outputs[{number - inputs}]"
            kind, name = self.pointer(buffer, is_read=number < inputs), writer.bind(buffer)
            writer.first.append(f"{kind}{name} = (void *)((char *){tensor}->data + {tensor}->byte_offset);")
            for axis, extent in enumerate(buffer.shape):
                if isinstance(extent, ir.Variable) and extent not in writer.variables:
                    writer.first.append(f"const int64_t {writer.bind(extent)} = {tensor}->shape[{axis}];")
            for axis, stride in enumerate(buffer.strides or ()):
                if isinstance(stride, ir.Variable) and stride not in writer.variables:
                    inner = (f"{tensor}->shape[{below}]" for below in range(axis + 1, len(buffer.shape)))
                    given = f"{tensor}->strides ? {tensor}->strides[{axis}] : {' * '.join(inner) or '1'}"
                    writer.first.append(f"const int64_t {writer.bind(stride)} = {given};")
        writer.statement(function.body)
        origin = f"/* {', '.join(function.origin).replace('*/', '* /')} */\n" if function.origin else ""
        head = f"{origin}int32_t {function.name}(GraftContext *context, void *state, const DLTensor *const *inputs,"
        lines = ["(void)context, (void)state, (void)inputs, (void)outputs;", *writer.finished()]
        return "\n".join([*self.tasks, head, "    DLTensor *const *outputs) {", *_indented(lines), "}\n"])

    def pointer(self, buffer: ir.Buffer, *, is_read: bool) -> str:
        """Return the declaration of a pointer, up to its name; all but those that share memory are ``restrict``."""
        restrict = "" if buffer in self.overlapping else "restrict "
        return f"{'const ' if is_read else ''}{TYPES[buffer.dtype]} *{restrict}"


class _Writer(ExpressionWriter):
    """Writes the body of one C function."""

    def __init__(self, program: _Program, name: str, *, in_parallel: bool) -> None:
        super().__init__(name)
        self.program, self.in_parallel = program, in_parallel
        self.first: list[str] = []
        self._stack = 0

    def bind(self, one: ir.Variable | ir.Buffer) -> str:
        """Give a variable or buffer a C identifier, and return that."""
        stem = _NOT_IN_A_NAME.sub("_", one.name)[:24]
        name = self.fresh(f"{stem if stem[:1].isalpha() else 'v'}_")
        if isinstance(one, ir.Buffer):
            self.pointers[one] = name
        else:
            self.variables[one] = name
        return name

    def finished(self) -> list[str]:
        """Return the lines, parameters and memory first."""
        return [*self.first, *self.lines, "return GRAFT_OK;"]

    def statement(self, statement: ir.Statement) -> None:
        """Write a statement and what is inside."""
        self.begin(statement)
        match statement:
            case ir.Store(buffer, indices, value, mask):
                on = "" if mask is None else f"if ({self.value(mask)}) "
                text = self.value(value)
                self.line(f"{on}{self.place(buffer, indices)} = {text};")
            case ir.For():
                self._for(statement)
            case ir.If(condition, then_body, else_body):
                self._block(f"if ({self.value(condition)}) {{", then_body)
                if else_body is not None:
                    self._block("else {", else_body)
            case ir.Let(variable, value, body):
                text = self.value(value)
                self.line(f"const {TYPES[variable.type.dtype]} {self.bind(variable)} = {text};")
                self.statement(body)
            case ir.Allocate(buffer, body):
                self._allocate(buffer)
                self.statement(body)
            case ir.Block(statements):
                for inner in statements:
                    self.statement(inner)
            case ir.CallExtern("prefetch"):
                pass  # no effect but on time
            case ir.CallExtern(name, arguments) if name in emit_analysis.FAILURES:
                numbers = ", ".join(f"(long long){self.value(argument)}" for argument in arguments)
                self.line(f'return context->api->fail(context, "{emit_analysis.FAILURES[name]}", {numbers});')
            case ir.CallExtern(name):
                raise self.refused(f"a call of '{name}'")
            case ir.Barrier() | ir.Issue() | ir.Push() | ir.Pop():
                raise self.refused("threads in step or queues")
            case _:
                assert_never(statement)

    def _block(self, head: str, body: ir.Statement) -> None:
        self.line(head)
        self.depth += 1
        self.statement(body)
        self.depth -= 1
        self.line("}")

    def _for(self, loop: ir.For) -> None:
        if loop.binding:
            raise self.refused(f"a loop bound to '{loop.binding}'")
        if loop.kind == "parallel" and not self.in_parallel and self.program.work(loop) >= emit_analysis.SERIAL_WORK:
            self._parallel(loop)
            return
        extent, name = self.index(loop.extent), self.bind(loop.variable)
        if loop.kind == "unrolled" and isinstance(loop.extent, ir.Constant) and 1 < loop.extent.value <= UNROLLED:
            self.line(f'_Pragma("GCC unroll {extent}")')
        self._block(f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{", loop.body)

    def _allocate(self, buffer: ir.Buffer) -> None:
        name, kind, count = self.bind(buffer), TYPES[buffer.dtype], emit_analysis.element_count(buffer)
        size = (count or 1) * element_bits(buffer.dtype) // 8
        if count is not None and (buffer.memory == "register" or self._stack + size <= STACK_BYTES):
            self._stack += size
            self.first.append(f"_Alignas(64) {kind} {name}[{max(1, count)}];")
            return
        total = " * ".join(["sizeof *" + name, *(f"(uint64_t){self.index(extent)}" for extent in buffer.shape)])
        lines = [
            f"{kind} *restrict {name} = context->api->scratch(context, {total});",
            f"if ({name} == NULL) return GRAFT_ERROR_MEMORY;",
        ]
        if count is not None:  # blocks live until the function returns: not one for every iteration
            self.first += lines
        else:
            self.lines += _indented(lines, self.depth)

    def _parallel(self, loop: ir.For) -> None:
        """Write parallel loops as a function of a part of their iterations, and the call of the runtime."""
        variable, extent, body = emit_analysis.collapsed(loop)
        name = f"{self.program.function.name}_task{len(self.program.tasks) + 1}"
        task = _Writer(self.program, self.function, in_parallel=True)
        written = {one.buffer for one in walk_statements(body) if isinstance(one, ir.Store)}
        buffers, variables = emit_analysis.captured(body, self.pointers, self.variables.keys() - {variable})
        kinds = [self.program.pointer(one, is_read=one not in written) for one in buffers]
        kinds += [f"const {TYPES[one.type.dtype]} " for one in variables]
        values = [*(self.pointers[one] for one in buffers), *(self.variables[one] for one in variables)]
        captures = list(zip(kinds, [*map(task.bind, buffers), *map(task.bind, variables)], strict=True))
        fields = [f"  {kind.replace('restrict ', '')}{own};" for kind, own in captures]
        opening = [f"{kind}{own} = closure->{own};" for kind, own in captures]
        index = task.bind(variable)
        task._block(f"for (int64_t {index} = begin; {index} < end; ++{index}) {{", body)
        head = f"static int32_t {name}_run(GraftContext *context, void *data, int64_t begin, int64_t end) {{"
        lines = [f"const struct {name} *closure = data;", "(void)context, (void)closure;", *opening, *task.finished()]
        struct = [f"struct {name} {{", *(fields or ["  char none;"]), "};"]
        self.program.tasks.append("\n".join([*struct, head, *_indented(lines), "}\n"]))
        grain = max(1, emit_analysis.SERIAL_WORK // self.program.work(body))
        closure, status = self.fresh("closure"), self.fresh("status")
        self.line(f"struct {name} {closure} = {{{', '.join(values) or '0'}}};")
        run = f"context->api->parallel_for(context, {self.index(extent)}, {grain}, {name}_run, &{closure})"
        self.line(f"const int32_t {status} = {run};")
        self.line(f"if ({status} != GRAFT_OK) return {status};")


def _indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["  " * depth + line for line in lines]
