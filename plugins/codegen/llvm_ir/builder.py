"""A builder of LLVM assembly text: types, literals, fresh names and blocks.

Text, not an object model: it is what LLVM parses anyway, several times faster to make in Python, and what golden
tests compare.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from graft.core.machine.target import Target
from graft.core.tensor_ir.arithmetic.small_floats import bits_of
from graft.core.tensor_ir.ir import Buffer
from graft.core.types import Type, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.emit_analysis import Work

TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
    "thumb": "thumbv7em-none-unknown-eabihf",
}
"""What code is generated for, by architecture."""
PLAIN = frozenset({"wasm32", "thumb"})
"""Where no runtime is: a kernel is a plain function of pointers there, and its object is linked by another linker."""
_IMPURE = ("load", "call")


class Value(NamedTuple):
    """An LLVM operand (``%v3``, ``7``, ``splat (i32 1)``) and its tensor IR type."""

    text: str
    type: Type

    @property
    def integer(self) -> int | None:
        """The number, if this is a literal scalar integer."""
        text = self.text
        if text[0] == "%" or self.type.lanes > 1:
            return None
        return int(text) if (text[1:] if text[0] == "-" else text).isdigit() else None


@cache
def register_type(type: Type) -> str:
    """Return the LLVM type of a value: bools are ``i1``, 16-bit floats and custom datatypes integers of their bits.

    Raise CompileError for complex64.
    """
    if type.lanes > 1:
        return f"<{type.lanes} x {register_type(type.with_lanes(1))}>"
    match type.dtype:
        case "float32":
            return "float"
        case "float64":
            return "double"
        case "bool":
            return "i1"
        case "complex64":
            raise CompileError("complex64 cannot be compiled by the built-in compiler", dtype=type.dtype)
    return f"i{element_bits(type.dtype)}"


@cache
def memory_type(type: Type) -> str:
    """Return the LLVM type of a value in memory: as in a register, but a bool takes a byte."""
    return register_type(Type("uint8", type.lanes) if type.dtype == "bool" else type)


def mangled(llvm_type: str) -> str:
    """Return the suffix of an overloaded intrinsic: ``v16f32`` for ``<16 x float>``."""
    if llvm_type.startswith("<"):
        lanes, _, element = llvm_type[1:-1].split(" ")
        return f"v{lanes}{mangled(element)}"
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(llvm_type, llvm_type)


def literal(value: int | float | bool, type: Type) -> str:
    """Return a constant of a scalar or (splat) vector type as LLVM writes it.

    Raise CompileError for a custom datatype, whose constants lowering writes.
    """
    if type.lanes > 1:
        scalar = type.with_lanes(1)
        return f"splat ({register_type(scalar)} {literal(value, scalar)})"
    match type.dtype:
        case "bool":
            return "true" if value else "false"
        case "float32" | "float64":
            number = float(value)
            if type.dtype == "float32":
                number = c_float(number).value
            return f"0x{struct.unpack('>Q', struct.pack('>d', number))[0]:016X}"
        case "float16" | "bfloat16":
            return str(bits_of(float(value), type.dtype))
    if not type.is_integer:
        raise CompileError(f"a constant of type {type} has no bits before its datatype is lowered", dtype=type.dtype)
    bits = element_bits(type.dtype)
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if type.dtype.startswith("int") and wrapped >> (bits - 1) else wrapped)


@dataclass(slots=True)
class ModuleText:
    """An LLVM module under construction: declarations of intrinsics and finished functions."""

    target: Target
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    is_exact: bool = False
    """Whether the function that is emitted `is_exact`."""
    overlapping: set[Buffer] = field(default_factory=set)
    """Parameters that may be the same memory: an output and what it may be written over."""
    is_plain: bool = field(init=False)
    """Whether kernels are plain functions of pointers (`PLAIN`)."""
    has_threads: bool = field(init=False)
    """Whether parallel loops are tasks: by the runtime, or where threads of WebAssembly share memory."""
    roundings: frozenset[str] = field(init=False)
    """The target's own instructions for 16-bit floats."""

    def __post_init__(self) -> None:
        self.is_plain = self.target.arch in PLAIN
        self.has_threads = not self.is_plain or "atomics" in self.target.features
        self.roundings = frozenset(name for name in ("round_f16", "round_bf16") if self.instruction(name))

    def instruction(self, name: str, lanes: int = 0) -> str | None:
        """Return LLVM's text of an instruction for a result of so many lanes, None if the target has none."""
        found = self.target.machine.instruction(name, lanes)
        return None if found is None else found.text.get("llvm")

    def text(self) -> str:
        """Return the whole module."""
        return "\n".join((*self.functions, *self.declarations.values(), ""))


class Builder:
    """The text of one LLVM function: straight-line instructions, blocks, and allocas of its entry block."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.block = "entry"
        self._names = 0
        self._known: dict[object, str] = {}
        self._scopes: list[list[object]] = [[]]

    def fresh(self, stem: str = "v") -> str:
        """Return a name that is new in this function, without its ``%``."""
        self._names += 1
        return f"{stem}{self._names}"

    def emit(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {line}")

    def let(self, instruction: str) -> str:
        """Append an instruction and return the name of its result.

        One that neither reads memory nor calls is not repeated where its result is known: Python writes and LLVM reads
        half as much then.
        """
        if instruction.startswith(_IMPURE):
            return self.let_anew(instruction)
        known = self.find(instruction)
        return self.keep(instruction, self.let_anew(instruction)) if known is None else known

    def let_anew(self, instruction: str) -> str:
        """Append an instruction even if there is an equal one, and return the name of its result."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def find(self, key: object) -> str | None:
        """Return what is kept under ``key`` in this block or one that encloses it."""
        return self._known.get(key)

    def keep(self, key: object, name: str) -> str:
        """Remember a name, until this block ends, and return it."""
        self._known[key] = name
        self._scopes[-1].append(key)
        return name

    def push_scope(self) -> None:
        """Enter a block: what was computed outside stays known, what is computed inside is forgotten at its end."""
        self._scopes.append([])

    def pop_scope(self) -> None:
        """Leave a block."""
        for key in self._scopes.pop():
            del self._known[key]

    def operate(self, instruction: str, left: Value, right: Value | float) -> Value:
        """Return ``left instruction right``; a number takes the type of the left operand."""
        return Value(self.let(f"{instruction} {_operands(left, right)}"), left.type)

    def compare(self, instruction: str, left: Value, right: Value | float) -> Value:
        """Return the bool of ``icmp`` or ``fcmp`` with a predicate; a number takes the type of the left operand."""
        return Value(self.let(f"{instruction} {_operands(left, right)}"), Type("bool", left.type.lanes))

    def select(self, condition: Value, on_true: Value, on_false: Value | float) -> Value:
        """Return ``on_true`` where the condition holds, else ``on_false``, which takes its type if it is a number."""
        kind = register_type(on_true.type)
        operands = f"{kind} {on_true.text}, {kind} {_text(on_false, on_true.type)}"
        return Value(self.let(f"select {register_type(condition.type)} {condition.text}, {operands}"), on_true.type)

    def convert(self, instruction: str, value: Value, to: Type) -> Value:
        """Return a value changed to another type by an instruction, ``bitcast`` for one."""
        return Value(self.let(f"{instruction} {register_type(value.type)} {value.text} to {register_type(to)}"), to)

    def call(self, name: str, first: Value, *others: Value | float) -> Value:
        """Return an intrinsic of operands and a result of one type; numbers take that of the first."""
        kind = register_type(first.type)
        operands = [(kind, _text(one, first.type)) for one in (first, *others)]
        return Value(self.intrinsic(name, kind, operands, [kind]), first.type)

    def element(self, vector: Value, lane: int) -> Value:
        """Return one lane of a vector; a scalar is its own only lane."""
        if vector.type.lanes == 1:
            return vector
        text = self.let(f"extractelement {register_type(vector.type)} {vector.text}, i64 {lane}")
        return Value(text, vector.type.with_lanes(1))

    def in_lanes(self, lanes: int, element: Callable[[int], Value]) -> Value:
        """Return the vector of ``element(lane)`` of every lane, made one after another; a scalar of one."""
        if lanes == 1:
            return element(0)
        text = "poison"
        for lane in range(lanes):
            one = element(lane)
            type = one.type.with_lanes(lanes)
            text = self.let(
                f"insertelement {register_type(type)} {text}, {register_type(one.type)} {one.text}, i64 {lane}"
            )
        return Value(text, type)

    def let_entry(self, instruction: str) -> str:
        """Append an instruction to the entry block (allocas) and return the name of its result."""
        name = f"%{self.fresh()}"
        self.entry.append(f"  {name} = {instruction}")
        return name

    def label(self, name: str) -> None:
        """Begin the block ``name``."""
        self.lines.append(f"{name}:")
        self.block = name

    def intrinsic(self, name: str, result: str, arguments: list[tuple[str, str]], overloads: list[str]) -> str:
        """Call ``llvm.<name>`` with (type, operand) pairs; declare it; return the result ("" for void)."""
        full = ".".join(("llvm", name, *(mangled(overload) for overload in overloads)))
        parameters = ", ".join(kind for kind, _ in arguments)
        self.module.declarations.setdefault(full, f"declare {result} @{full}({parameters})")
        call = f"call {result} @{full}({', '.join(f'{kind} {operand}' for kind, operand in arguments)})"
        if result == "void":
            self.emit(call)
            return ""
        if name.startswith("masked"):
            return self.let_anew(call)
        known = self.find(call)
        return self.keep(call, self.let_anew(call)) if known is None else known

    def splat(self, value: Value, lanes: int) -> Value:
        """Return ``value`` in every one of ``lanes`` lanes."""
        if lanes == 1 or value.type.lanes == lanes:
            return value
        scalar, vector = register_type(value.type), register_type(value.type.with_lanes(lanes))
        if not value.text.startswith("%"):
            return Value(f"splat ({scalar} {value.text})", value.type.with_lanes(lanes))
        first = self.let(f"insertelement {vector} poison, {scalar} {value.text}, i64 0")
        text = self.let(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")
        return Value(text, value.type.with_lanes(lanes))


def _text(value: Value | float, type: Type) -> str:
    return value.text if isinstance(value, Value) else literal(value, type)


def _operands(left: Value, right: Value | float) -> str:
    return f"{register_type(left.type)} {left.text}, {_text(right, left.type)}"
