"""Launches as CUDA C: what each thread does, as a kernel that can be read, edited and compiled again.

The text has the loops, names and structure of the scheduled function; where several elements are read or written at one
time it is a template, for pointers that are aligned and for others, of which the kernel takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.small_floats import in_float32
from graft.core.tensor_ir.verifying.machine_check import machine_fault
from graft.core.tensor_ir.visit import ExpressionMap, map_statement, walk_statements
from graft.core.types import element_bits
from graft.plugins.codegen.emit_analysis import FAILURES, element_count
from graft.plugins.codegen.kernel_source import comment
from graft.plugins.cuda.alignment import ALIGNED
from graft.plugins.cuda.kernel_emitter import expanded, has_vectors, waits
from graft.plugins.cuda.kernel_text import check_shared
from graft.plugins.cuda.launches import REPORT, Launch
from graft.plugins.cuda.source.expressions import PRELUDE, CudaExpressions, form_text
from graft.runtime.c_operators import cast, infix
from graft.runtime.export.c_names import TYPES

NATIVE = frozenset({"round_f16", "round_bf16"})
"""Roundings that are instructions."""
MMA = frozenset({"mma_float16", "mma_bfloat16", "mma_tf32", "mma_int8", "mma_uint8_int8", "mma_int8_uint8"})
"""The products by warps that the prelude has."""


@dataclass(frozen=True, slots=True)
class KernelC:
    """The text of a launch, and the bytes of shared memory that it asks for."""

    text: str
    shared: int


def kernel_c(launch: Launch, function: ir.Function, target: Target) -> KernelC:
    """Return one launch as CUDA C; raise CompileError for what cannot be said, or asks for more than a block has."""
    body = expanded(launch.body, target, is_exact=function.is_exact)
    body = map_statement(body, ExpressionMap(lambda node: in_float32(node, NATIVE)))
    writer = _KernelWriter(launch, function, target.machine)
    text = writer.kernel(body)
    check_shared(writer.shared_bytes, launch, function, target.machine)
    return KernelC(text, writer.shared_bytes)


def source_text(texts: Sequence[KernelC]) -> str:
    """Return kernels as one file."""
    return "\n".join([f'#include "{PRELUDE.name}"\n', *(one.text for one in texts)])


class _KernelWriter(CudaExpressions):
    """Writes the body of one kernel."""

    unroll: ClassVar[str] = "#pragma unroll"
    unrolled: ClassVar[int] = 64

    def __init__(self, launch: Launch, function: ir.Function, machine: Machine) -> None:
        super().__init__(launch.name)
        self.launch, self.of, self.machine = launch, function, machine
        self.is_exact = function.is_exact
        self.may_align = has_vectors(launch)
        self.shared_bytes, self.blocks = 0, 1
        self._shared_now = 0
        self._words: dict[tuple[str, ...], str] = {}

    def kernel(self, body: ir.Statement) -> str:
        """Return the text of the kernel."""
        parameters, names, pointers = [], [], []
        for buffer in self.launch.buffers:
            readonly = buffer in self.of.input_buffers
            shared = bool(self.of.in_place) and (buffer in self.of.output_buffers or readonly)
            name = self.bind(buffer)
            kind = f"{'const ' if readonly else ''}{TYPES[buffer.dtype]} *{'' if shared else '__restrict__ '}"
            parameters.append(f"{kind}{name}")
            names.append(name)
            pointers.append(name)
        for extent in self.launch.extents:
            name = self.bind(extent)
            parameters.append(f"const int32_t {name}")
            names.append(name)
            self.variables[extent] = cast("int64_t", name)
        self.depth = 1
        self.statement(body)
        given = ", ".join(parameters)
        threads, title = self.launch.threads, comment(self.of.origin)
        kind = f"KERNEL({threads})" if self.blocks == 1 else f"KERNEL_BESIDE({threads}, {self.blocks})"
        if not self.may_align:
            return "\n".join([f"{title}{kind} void {self.launch.name}({given}) {{", *self.lines, "}\n"])
        own = self.reserve(f"{self.launch.name}_thread")
        together = " | ".join(f"(uintptr_t){name}" for name in pointers)
        call = f"{own}<{{}}>({', '.join(names)});"
        return "\n".join([
            f"{title}template <bool ALIGNED> GRAFT_INLINE void {own}({given}) {{", *self.lines, "}",
            f"{kind} void {self.launch.name}({given}) {{",
            f"  if (({together}) % {ALIGNED} == 0) {{", f"    {call.format('true')}", "  } else {",
            f"    {call.format('false')}", "  }", "}\n",
        ])  # fmt: skip

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write what waits for the other threads of a warp or block."""
        self._words.clear()
        self.line(f"wait_for_{'warp' if barrier.scope == 'warp' else 'block'}();")

    def let(self, let: ir.Let) -> None:
        """Write a variable and its value; of an index, what is known of its multiples is noted."""
        if let.variable.type.lanes > 1 or not _is_index(let.value):
            super().let(let)
            return
        name = self.declare(let.variable, self.index(let.value))
        if (place := self.form(let.value)) is not None:
            self.multiples.bind(name, place.terms, place.constant)

    def block(self, head: str, body: ir.Statement) -> None:
        """Write a statement behind a head; words that are loaded in it, or before it, are known only there."""
        self._words.clear()
        super().block(head, body)
        self._words.clear()

    def store_lanes(self, store: ir.Store, lanes: int) -> None:
        """Write a store of several lanes."""
        buffer, indices, value, mask = store.buffer, store.indices, store.value, store.mask
        text = self.value(value)
        if value.type.lanes == 1:
            text = f"splat<{lanes}, {TYPES[buffer.dtype]}>({text})"
        offset, pointer = self.offset(buffer, indices), self.pointers[buffer]
        if offset is None or offset.lane != 1:
            self.line(f"scatter({pointer}, {self.places(buffer, indices, lanes)}, {text}, {self.on(mask, lanes)});")
        elif mask is None:
            self.line(f"store<{self.align(buffer, offset)}>(&{pointer}[{form_text(offset)}], {text});")
        else:
            self.line(f"store_where(&{pointer}[{form_text(offset)}], {text}, {self.on(mask, lanes)});")

    # ---- Loops and memory ----

    def is_written_out(self, loop: ir.For) -> bool:
        """Whether warps multiply in a body, so that words are loaded once for all products."""
        return any(isinstance(one, ir.CallExtern) and one.name in MMA for one in walk_statements(loop.body))

    def loop(self, loop: ir.For) -> None:
        """Write a loop; one of units is this unit's iteration."""
        if loop.binding:
            self._unit(loop)
        else:
            if loop.kind == "serial" and waits(loop.body):
                self.line("#pragma unroll 1")
            super().loop(loop)

    def _unit(self, loop: ir.For) -> None:
        """Write a loop of units as this unit's iteration."""
        self._check(loop)
        level, axis = ir.level_of(loop.binding), loop.binding.partition(".")[2] or "x"
        most: ir.Expression | int = (self.launch.grid if level == "block" else self.launch.block)["xyz".index(axis)]
        count = most if isinstance(most, int) else int(most.value) if isinstance(most, ir.Constant) else None
        if count == 1:
            self.variables[loop.variable] = "0"
        else:
            name = self.bind(loop.variable)
            self.line(f"const int64_t {name} = {'BLOCK' if level == 'block' else 'THREAD'}({axis});")
        if level == "thread" and isinstance(loop.extent, ir.Constant) and loop.extent.value != most:
            self.block(f"if ({infix(self.variables[loop.variable], '<', str(int(loop.extent.value)))}) {{", loop.body)
            self.line("}")
        else:
            self.statement(loop.body)

    def allocate(self, allocate: ir.Allocate) -> None:
        """Write memory of the block or of the thread, and the body that uses it."""
        self._check(allocate)
        buffer = allocate.buffer
        count, before, kind = element_count(buffer), self._shared_now, TYPES[buffer.dtype]
        if count is None:
            raise self.refused(f"'{buffer.name}' in memory '{buffer.memory}' of a size that varies")
        name = self.bind(buffer)
        if buffer.memory == "shared":
            self.line(f"{kind} *const {name} = ({kind} *)SHARED({before}); // {max(count, 1)} elements")
            size = max(count, 1) * element_bits(buffer.dtype) // 8
            self._shared_now = before + -(-size // ALIGNED) * ALIGNED
            self.shared_bytes = max(self.shared_bytes, self._shared_now)
        else:
            self.line(f"alignas({ALIGNED}) {kind} {name}[{max(count, 1)}];")
        self.statement(allocate.body)
        self._shared_now = before

    def _check(self, statement: ir.Statement) -> None:
        fault = machine_fault(statement, self.machine)
        if fault is not None:
            raise self.refused(fault)

    # ---- Instructions ----

    def call(self, call: ir.CallExtern) -> None:
        """Write a call for its effect."""
        match call:
            case ir.CallExtern("prefetch"):
                return
            case ir.CallExtern("copy_async", (ir.Load() as target, ir.Load() as source, ir.Constant(size))):
                element = element_bits(source.buffer.dtype) // 8
                aligned = "true" if size == element or not self.may_align else "ALIGNED"
                to, near = self.place(target.buffer, target.indices), self.place(source.buffer, source.indices)
                self.line(f"copy_async<{int(size)}, {aligned}>(&{to}, &{near});")
            case ir.CallExtern(name, arguments) if name in FAILURES:
                numbers = [cast("int64_t", self.value(one)) for one in arguments]
                code = 1 + list(FAILURES).index(name)
                self.line(f"report({self.pointers[REPORT]}, {', '.join([str(code), *numbers])});")
            case ir.CallExtern("exchange", (ir.Load() as target, own, ir.Constant(mask))):
                self.line(f"{self.place(target.buffer, target.indices)} = exchange({self.value(own)}, {int(mask)});")
            case ir.CallExtern("power_of_2", (ir.Load() as target, exponent)):
                self.line(f"{self.place(target.buffer, target.indices)} = power_of_2({self.value(exponent)});")
            case ir.CallExtern("leave_room", (ir.Constant(blocks),)):
                self.blocks = int(blocks)
            case ir.CallExtern("commit_copies"):
                self.line("commit_copies();")
            case ir.CallExtern("wait_copies", (ir.Constant(pending),)):
                self.line(f"wait_copies({int(pending)});")
            case ir.CallExtern(
                name, (ir.Load() as sums, ir.Load() as left, ir.Load() as right, ir.Constant(one), ir.Constant(other))
            ) if name in MMA:
                a, b = self._matrices(left, 4, bool(one)), self._matrices(right, 2, bool(other))
                self.line(f"{name}(&{self.place(sums.buffer, sums.indices)}, {a}, {b});")
            case _:
                raise self.refused(f"a call of '{call.name}'")

    def _matrices(self, place: ir.Load, count: int, is_transposed: bool) -> str:
        """Return the name of this thread's words of a factor, which are loaded once."""
        at = self.place(place.buffer, place.indices)
        if place.buffer.memory == "register":
            return f"words_of<{count}>(&{at})"
        key = (at, str(count))
        if key not in self._words:
            last = place.buffer.shape[-1]
            assert isinstance(last, ir.Constant), last
            pitch = element_bits(place.buffer.dtype) // 8 * int(last.value)
            name = self.fresh("words")
            self.line(f"const Lanes<uint32_t, {count}> {name} = "
                      f"matrices<{count}, {str(is_transposed).lower()}>(&{at}, {pitch});")  # fmt: skip
            self._words[key] = name
        return self._words[key]


def _is_index(value: ir.Expression) -> bool:
    """Whether a value is arithmetic of loop indices, which does not overflow."""
    match value:
        case ir.Variable() | ir.Constant():
            return value.type.dtype == "int64"
        case ir.Binary("add" | "sub" | "mul", left, right):
            return _is_index(left) and _is_index(right)
        case ir.Binary("div" | "mod", left, ir.Constant(number)) if number > 0:
            return _is_index(left)
    return False
