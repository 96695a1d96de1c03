"""A launch as an LLVM function: what each of its threads does."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.machine.machine import Instruction, Machine
from graft.core.machine.target import Target
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.fused import unfused
from graft.core.tensor_ir.arithmetic.vector_math import expansion
from graft.core.tensor_ir.verifying.machine_check import machine_fault
from graft.core.tensor_ir.visit import map_statement, statement_expressions, walk_expressions, walk_statements
from graft.core.types import INT64, Type, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.emit_analysis import FAILURES, element_count
from graft.plugins.codegen.index_forms import Form
from graft.plugins.codegen.llvm_ir import addresses
from graft.plugins.codegen.llvm_ir.builder import ModuleText, Value, memory_type
from graft.plugins.codegen.llvm_ir.statement import StatementEmitter
from graft.plugins.cuda.alignment import ALIGNED, Multiples
from graft.plugins.cuda.device_text import DeviceText
from graft.plugins.cuda.launches import REPORT, Launch
from graft.plugins.cuda.warpgroups import LINE_BYTES, STEP_BYTES, GroupProduct, descriptor

DESCRIBED = 0x3FFFF
"""Bits of an address in shared memory that a matrix descriptor has."""


class KernelEmitter(StatementEmitter):
    """Emits the body of one thread."""

    def __init__(self, module: ModuleText, launch: Launch, machine: Machine) -> None:
        super().__init__(module)
        self.launch, self.machine, self.device = launch, machine, DeviceText()
        self.is_aligned = False
        self.shared_bytes = 0
        self.blocks = 1
        """For which ptxas leaves registers, at the least."""
        self._shared_now = 0
        self.multiples = Multiples()
        self._units: dict[tuple[str, str], Value] = {}
        self._words: dict[tuple[str, ...], list[str]] = {}
        self._private: set[ir.Buffer] = set()

    # ---- Statements ----

    def loop(self, loop: ir.For) -> None:
        """Emit a loop of units as this unit's iteration, any other in its place."""
        if not loop.binding:
            if loop.kind != "unrolled":
                self._words.clear()
            self.serial_loop(loop)
            if loop.kind != "unrolled":
                self._words.clear()
            return
        self._check(loop)
        level, axis = ir.level_of(loop.binding), loop.binding.partition(".")[2] or "x"
        number = "xyz".index(axis)
        most = (self.launch.grid if level == "block" else self.launch.block)[number]
        self.variables[loop.variable] = self._unit(level, axis, most)
        if level == "thread" and isinstance(loop.extent, ir.Constant) and loop.extent.value != most:
            inside = self.compare("icmp slt", self.variables[loop.variable], loop.extent.value)
            self.branch(inside, loop.body, None)
        else:
            self.statement(loop.body)

    def counted(self, variable: ir.Variable, begin: str, end: str, body: ir.Statement, guarded: bool) -> None:
        """Emit a loop; one of stages stays one, of which ptxas would spill the copies that it makes."""
        if waits(body):
            body = ir.Block((ir.CallExtern("stay_loop", ()), body))
        super().counted(variable, begin, end, body, guarded)

    def _unit(self, level: str, axis: str, most: ir.Expression | int) -> Value:
        count = most if isinstance(most, int) else int(most.value) if isinstance(most, ir.Constant) else None
        if count == 1:
            return Value("0", INT64)
        if (level, axis) not in self._units:
            number = self.device.unit(self, level, axis, count)
            self._units[level, axis] = Value(self.let_entry(f"zext nneg i32 {number} to i64"), INT64)
        return self._units[level, axis]

    def branch(self, condition: Value, then_body: ir.Statement, else_body: ir.Statement | None) -> None:
        """Emit a branch, behind which nothing is known of what is in registers."""
        self._words.clear()
        super().branch(condition, then_body, else_body)
        self._words.clear()

    def allocation(self, allocate: ir.Allocate) -> None:
        """Emit memory: a part of the block's shared memory, or of the thread's own."""
        self._check(allocate)
        buffer, outside = allocate.buffer, self._shared_now
        before = outside
        size = element_count(buffer)
        if size is None:
            raise self._refused(f"'{buffer.name}' in memory '{buffer.memory}' has a size that varies")
        bytes_ = max(size, 1) * element_bits(buffer.dtype) // 8
        if buffer.memory == "shared":
            before = -(-before // buffer.alignment) * buffer.alignment
            self.pointers[buffer] = self.device.shared(self, before, buffer.alignment)
            self._shared_now = before + -(-bytes_ // ALIGNED) * ALIGNED
            self.shared_bytes = max(self.shared_bytes, self._shared_now)
        else:
            element = memory_type(Type(buffer.dtype))
            self.pointers[buffer] = self.let_entry(f"alloca [{max(size, 1)} x {element}], align {ALIGNED}")
            self._private.add(buffer)
        self.statement(allocate.body)
        self._shared_now = outside

    def in_step(self, statement: ir.Barrier | ir.Issue | ir.Push | ir.Pop) -> None:
        """Emit a barrier; a device has no queues that a kernel could fill."""
        if not isinstance(statement, ir.Barrier):
            raise self._refused("queues")
        self._words.clear()
        self.device.barrier(self, statement.scope)

    def called(self, call: ir.CallExtern) -> None:
        """Emit an instruction of the device."""
        match call:
            case ir.CallExtern("prefetch"):
                return
            case ir.CallExtern("copy_async", (ir.Load() as target, ir.Load() as source, ir.Constant(size))):
                self._copy(target, source, int(size))
            case ir.CallExtern("exchange", (ir.Load() as target, own, ir.Constant(mask))):
                other = self.device.exchange(self, self.value(own).text, int(mask))
                self.emit(f"store float {other}, ptr {self._address(target)}, align 4")
            case ir.CallExtern("power_of_2", (ir.Load() as target, exponent)):
                power = self.device.power_of_2(self, self.value(exponent).text)
                self.emit(f"store float {power}, ptr {self._address(target)}, align 4")
            case ir.CallExtern("leave_room", (ir.Constant(blocks),)):
                self.blocks = int(blocks)
            case ir.CallExtern("stay_loop"):
                self.device.stay_loop(self)
            case ir.CallExtern("commit_copies"):
                self.device.commit(self)
            case ir.CallExtern("wait_copies", (ir.Constant(pending),)):
                self.device.wait(self, int(pending))
            case ir.CallExtern("open_bulk", (ir.Load() as arrived,)):
                self.device.open_bulk(self, self._address(arrived))
            case ir.CallExtern(
                "copy_bulk", (ir.Load() as target, ir.Load() as source, ir.Constant(size), ir.Load() as arrived)
            ):
                self._instruction("copy_bulk")
                places = self._address(target), self._address(source), self._address(arrived)
                self.device.copy_bulk(self, *places, int(size))
            case ir.CallExtern("wait_bulk", (turn, ir.Load() as arrived)):
                parity = self.let(f"trunc i64 {self.value(turn).text} to i32")
                self.device.wait_bulk(self, self._address(arrived), parity)
            case ir.CallExtern(name, arguments) if name in FAILURES:
                numbers = [self.value(one).text for one in arguments]
                self.device.report(self, self.pointers[REPORT], 1 + list(FAILURES).index(name), numbers)
            case ir.CallExtern("fence_async"):
                self.device.fence_async(self)
            case ir.CallExtern(name, (ir.Load() as sums, ir.Load() as left, ir.Load() as right, *how)):
                known = [int(one.value) for one in how if isinstance(one, ir.Constant)]
                transposed = [*map(bool, known[-2:])]
                if name.startswith("wgmma_"):
                    self._multiply_group(name, sums, (left, right), (known[0], known[1]), transposed)
                    return
                factors = self._matrices(left, 4, transposed[0]), self._matrices(right, 2, transposed[1])
                self._multiply(name, sums, *factors)
            case _:
                raise self._refused(f"a call of '{call.name}'")

    def _copy(self, target: ir.Load, source: ir.Load, size: int) -> None:
        """Begin to copy; where the source is not aligned, copy at once, element by element."""
        element = element_bits(source.buffer.dtype) // 8
        if size == element or self.is_aligned:
            self.device.copy(self, self._address(target), self._address(source), size)
            return
        kind = memory_type(Type(source.buffer.dtype))
        to, near = self._address(target), self._address(source)
        for number in range(size // element):
            place = self.let(f"getelementptr inbounds {kind}, ptr {near}, i64 {number}")
            value = self.let(f"load {kind}, ptr {place}, align {element}")
            place = self.let(f"getelementptr inbounds {kind}, ptr {to}, i64 {number}")
            self.emit(f"store {kind} {value}, ptr {place}, align {element}")

    def _instruction(self, name: str) -> Instruction:
        instruction = self.machine.instruction(name)
        if instruction is None:
            raise self._refused(f"the instruction '{name}', which '{self.machine.name}' lacks")
        return instruction

    def _multiply(self, name: str, sums: ir.Load, left: Sequence[str], right: Sequence[str]) -> None:
        instruction = self._instruction(name)
        kind = memory_type(Type(sums.buffer.dtype))
        first = self._address(sums)
        places = [self.let(f"getelementptr inbounds {kind}, ptr {first}, i64 {number}") for number in range(4)]
        c = [self.let_anew(f"load {kind}, ptr {place}, align 4, !private !{{}}") for place in places]
        results = self.device.multiply(self, name, instruction.text["llvm"], left, right, c)
        for place, result in zip(places, results, strict=True):
            self.emit(f"store {kind} {result}, ptr {place}, align 4, !private !{{}}")

    def _multiply_group(
        self, name: str, sums: ir.Load, factors: Sequence[ir.Load], extents: tuple[int, int], transposed: Sequence[bool]
    ) -> None:
        """Multiply by a warpgroup; ``extents`` are the columns of the sums and the terms."""
        instruction = self._instruction(name)
        described = []
        for factor, is_transposed in zip(factors, transposed, strict=True):
            lines = _number(factor.buffer.shape[-2]) if is_transposed else 0
            address = self.device.shared_address(self, self._address(factor))
            start = self.let(f"lshr i32 {self.let(f'and i32 {address}, {DESCRIBED}')}, 4")
            rest = descriptor(lines * LINE_BYTES if is_transposed else ALIGNED, 8 * LINE_BYTES)
            described.append(self.let(f"or i64 {self.let(f'zext i32 {start} to i64')}, {rest}"))
        kind, first = memory_type(Type(sums.buffer.dtype)), self._address(sums)
        count = extents[0] // 8 * 4
        places = [self.let(f"getelementptr inbounds {kind}, ptr {first}, i64 {number}") for number in range(count)]
        c = [self.let_anew(f"load {kind}, ptr {place}, align 4, !private !{{}}") for place in places]
        steps = extents[1] * element_bits(factors[0].buffer.dtype) // 8 // STEP_BYTES
        text = instruction.text["llvm"].format(columns=extents[0])
        results = self.device.multiply_group(
            self, GroupProduct(name, text, extents[0], steps, tuple(transposed)), described, c
        )
        for place, result in zip(places, results, strict=True):
            self.emit(f"store {kind} {result}, ptr {place}, align 4, !private !{{}}")

    def _matrices(self, place: ir.Load, count: int, is_transposed: bool) -> list[str]:
        """Return this thread's words of a factor: of 16 rows of 32 bytes (four matrices), or of 8 (two).

        Transposed, the rows in memory are the terms, and the factor's own rows are 16 bits wide.
        """
        first = self._address(place)
        if place.buffer.memory == "register":  # the words of a product's sums are those of a factor
            words = [self.let(f"getelementptr inbounds i32, ptr {first}, i64 {number}") for number in range(count)]
            return [self.let_anew(f"load i32, ptr {word}, align 4, !private !{{}}") for word in words]
        key = (first, str(count))
        if key not in self._words:
            lane = self._lane()
            pitch = element_bits(place.buffer.dtype) // 8 * _number(place.buffer.shape[-1])
            if is_transposed:  # lanes of a matrix: its terms; of the next one of four: 8 more rows, then 8 more terms
                row, high = self._bits(lane, 0, 7), self._bits(lane, 4 if count == 4 else 3, 1)
                row = self.let(f"add nuw nsw i64 {row}, {self.let(f'shl nuw nsw i64 {high}, 3')}")
                half = self._bits(lane, 3, 1) if count == 4 else "0"
            else:
                row = self._bits(lane, 0, 15 if count == 4 else 7)
                half = self._bits(lane, 4 if count == 4 else 3, 1)
            ahead = self.let(f"mul nuw nsw i64 {row}, {pitch}")
            offset = self.let(f"add nuw nsw i64 {ahead}, {self.let(f'shl nuw nsw i64 {half}, 4')}")
            near = self.let(f"getelementptr i8, ptr {first}, i64 {offset}")
            self._words[key] = self.device.load_matrices(self, near, count, is_transposed=is_transposed)
        return self._words[key]

    def _bits(self, number: str, shift: int, mask: int) -> str:
        moved = self.let(f"lshr i64 {number}, {shift}") if shift else number
        return self.let(f"and i64 {moved}, {mask}")

    def _lane(self) -> str:
        thread = self._unit("thread", "x", self.launch.block[0])
        return self.let(f"and i64 {thread.text}, 31")

    def _address(self, place: ir.Load) -> str:
        return addresses.address_of(self, place)

    # ---- Memory ----

    def load_if(self, condition: str, memory: str, address: str, align: int) -> str:
        """Branch around the load, which becomes one under a predicate: pointers stay in the space that they are in."""
        name, before = self.fresh("some"), self.block
        self.emit(f"br i1 {condition}, label %{name}, label %{name}.end")
        self.label(name)
        loaded = self.let_anew(f"load {memory}, ptr {address}, align {align}")
        self.emit(f"br label %{name}.end")
        self.label(f"{name}.end")
        return self.let_anew(f"phi {memory} [ {loaded}, %{name} ], [ zeroinitializer, %{before} ]")

    def store_if(self, condition: str, memory: str, value: str, address: str, align: int) -> None:
        """Branch around the store."""
        name = self.fresh("some")
        self.emit(f"br i1 {condition}, label %{name}, label %{name}.end")
        self.label(name)
        self.emit(f"store {memory} {value}, ptr {address}, align {align}")
        self.emit(f"br label %{name}.end")
        self.label(f"{name}.end")

    # ---- What is known ----

    def alignment(self, buffer: ir.Buffer, offset: Form) -> int:
        """Return the alignment of an element: of own memory, and of parameters where their pointers were looked at."""
        size = element_bits(buffer.dtype) // 8
        is_known = buffer.memory != "host" or self.is_aligned
        return self.multiples.alignment(size, offset.terms, offset.constant) if is_known else size

    def bound(self, variable: ir.Variable, value: ir.Expression) -> None:
        """Bind a variable, and remember what an index is a multiple of."""
        super().bound(variable, value)
        if value.type == INT64 and (form := addresses.linear(self, value)) is not None:
            self.multiples.bind(self.variables[variable].text, form.terms, form.constant)

    def _check(self, statement: ir.Statement) -> None:
        fault = machine_fault(statement, self.machine)
        if fault is not None:
            raise self._refused(fault)

    def _refused(self, what: str) -> CompileError:
        return CompileError(f"function '{self.launch.name}': {what}", function=self.launch.name)


def waits(body: ir.Statement) -> bool:
    """Whether a body waits for copies, so that its iterations are stages."""
    return any(isinstance(one, ir.CallExtern) and one.name == "wait_copies" for one in walk_statements(body))


def _is_wide(copy: ir.CallExtern) -> bool:
    """Whether more than an element is copied."""
    _, source, size = copy.arguments
    assert isinstance(source, ir.Load) and isinstance(size, ir.Constant), "a copy of bytes from a place"
    return int(size.value) > element_bits(source.buffer.dtype) // 8


def _number(extent: ir.Expression) -> int:
    assert isinstance(extent, ir.Constant), extent
    return int(extent.value)


def expanded(body: ir.Statement, target: Target, *, is_exact: bool) -> ir.Statement:
    """Return a body with transcendental functions as arithmetic."""
    body = map_statement(body, expansion())
    return body if target.machine.has("fma") else map_statement(body, unfused(is_exact=is_exact))


def has_vectors(launch: Launch) -> bool:
    """Whether several elements of a parameter are read or written at one time."""
    known = set(launch.buffers)
    for statement in walk_statements(launch.body):
        target = getattr(statement, "buffer", None)
        nodes = list(walk_expressions(*statement_expressions(statement)))
        if target in known and any(node.type.lanes > 1 for node in nodes):
            return True
        if any(isinstance(node, ir.Load) and node.buffer in known and node.type.lanes > 1 for node in nodes):
            return True
        if isinstance(statement, ir.CallExtern) and statement.name == "copy_async" and _is_wide(statement):
            return True
    return False
