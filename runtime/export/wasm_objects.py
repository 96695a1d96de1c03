"""Relocatable WebAssembly objects, as LLVM writes them (tool-conventions, Linking.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

from graft.errors import CompileError
from graft.runtime.export import wasm_binary as wasm
from graft.runtime.export.wasm_binary import Reader

UNDEFINED, EXPLICIT_NAME = 0x10, 0x40
_SEGMENTS, _SYMBOLS = 5, 8
_WITH_ADDEND = frozenset({3, 4, 5})
FUNCTION_LEB, TABLE_SLEB, MEMORY_LEB, MEMORY_SLEB, MEMORY_I32, TYPE_LEB, GLOBAL_LEB = 0, 1, 3, 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol. ``index`` is of a function or global of the object, or of a segment, where ``offset`` is its place."""

    kind: int
    name: str
    is_defined: bool
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in the content of a section that depends on where something lies."""

    kind: int
    offset: int
    index: int
    """Of a symbol; of a type where the kind says so."""
    addend: int


@dataclass(frozen=True, slots=True)
class Part:
    """The body of a function or a data segment, and where in the content of its section it begins."""

    data: bytes
    offset: int
    alignment: int = 1


@dataclass(slots=True)
class WasmObject:
    """What an object has that a linker asks for."""

    types: list[bytes] = field(default_factory=list)
    imported: list[tuple[str, int]] = field(default_factory=list)
    """Names and types of the functions that it imports; its own are numbered behind them."""
    functions: list[int] = field(default_factory=list)
    """The types of its own functions."""
    bodies: list[Part] = field(default_factory=list)
    segments: list[Part] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    relocations: dict[int, list[Relocation]] = field(default_factory=dict)
    """By section: `CODE` and `DATA`."""


def parse(data: bytes) -> WasmObject:
    """Return a WebAssembly object; raise CompileError if it is none."""
    if data[: len(wasm.HEADER)] != wasm.HEADER:
        raise CompileError("not a WebAssembly object")
    found, reader, order = WasmObject(), Reader(data, len(wasm.HEADER)), []
    while not reader.is_done:
        number = reader.byte()
        part = reader.part()
        order.append(number)
        match number:
            case wasm.TYPES:
                found.types = [_type(part) for _ in range(part.number())]
            case wasm.IMPORTS:
                _imports(part, found)
            case wasm.FUNCTIONS:
                found.functions = [part.number() for _ in range(part.number())]
            case wasm.CODE:
                found.bodies = _bodies(part)
            case wasm.DATA:
                found.segments = _segments(part)
            case wasm.CUSTOM:
                _custom(part, found, order)
    return found


def _type(part: Reader) -> bytes:
    begin = part.offset
    part.byte()
    for _ in range(2):
        part.bytes(part.number())
    return part.data[begin : part.offset]


def _imports(part: Reader, found: WasmObject) -> None:
    for _ in range(part.number()):
        part.name()
        name, kind = part.name(), part.byte()
        match kind:
            case 0:
                found.imported.append((name, part.number()))
            case 1 | 2:  # a table or a memory: its limits
                if kind == 1:
                    part.byte()
                for _ in range(1 + (part.byte() & 1)):
                    part.number()
            case 3:
                part.bytes(2)
            case _:
                raise CompileError(f"a WebAssembly object imports '{name}', which is of unknown kind {kind}")


def _bodies(part: Reader) -> list[Part]:
    begin, bodies = part.offset, []
    for _ in range(part.number()):
        body = part.part()
        bodies.append(Part(body.data[body.offset : body.end], body.offset - begin))
    return bodies


def _segments(part: Reader) -> list[Part]:
    begin, segments = part.offset, []
    for _ in range(part.number()):
        if part.number() == 0:  # active: i32.const, where it would lie; end
            part.byte()
            part.signed()
            part.byte()
        segment = part.part()
        segments.append(Part(segment.data[segment.offset : segment.end], segment.offset - begin))
    return segments


def _custom(part: Reader, found: WasmObject, order: list[int]) -> None:
    name = part.name()
    if name.startswith("reloc."):
        section = order[part.number()]
        found.relocations[section] = [_relocation(part) for _ in range(part.number())]
    elif name == "linking":
        part.number()
        while not part.is_done:
            kind = part.byte()
            inner = part.part()
            if kind == _SYMBOLS:
                found.symbols = [_symbol(inner, found) for _ in range(inner.number())]
            elif kind == _SEGMENTS:
                found.segments = [_aligned(inner, segment) for segment in found.segments[: inner.number()]]


def _aligned(part: Reader, segment: Part) -> Part:
    part.name()
    alignment = 1 << part.number()
    part.number()
    return Part(segment.data, segment.offset, alignment)


def _relocation(part: Reader) -> Relocation:
    kind, offset, index = part.byte(), part.number(), part.number()
    return Relocation(kind, offset, index, part.signed() if kind in _WITH_ADDEND else 0)


def _symbol(part: Reader, found: WasmObject) -> Symbol:
    kind, flags = part.byte(), part.number()
    is_defined = not flags & UNDEFINED
    match kind:
        case 0:
            index = part.number()
            has_name = is_defined or flags & EXPLICIT_NAME
            return Symbol(kind, part.name() if has_name else found.imported[index][0], is_defined, index)
        case 1:
            name = part.name()
            if not is_defined:
                return Symbol(kind, name, False, -1)
            index, offset, _ = part.number(), part.number(), part.number()
            return Symbol(kind, name, True, index, offset)
        case 3:
            return Symbol(kind, "", True, part.number())
        case _:  # a global, a tag or a table
            index = part.number()
            return Symbol(kind, part.name() if is_defined or flags & EXPLICIT_NAME else "", is_defined, index)
