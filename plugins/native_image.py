"""Relocatable ELF objects linked into one position-independent image.

Native code of Graft has no external symbols and no writable data, so linking is: lay out code, then constants, and
apply the relocations between them. What cannot be resolved here is an error here, not at load.

The image format (little endian): ``GRAFTIMG``; u32 version 1; u32 ELF machine; u64 image offset; u64 image size; u64
text size; u64 symbol count; per symbol u64 offset in the image, u64 offset of its name in the file, u64 length of its
name; the names; the image. Sizes are multiples of 4096: ``[0, text size)`` is executable, the rest read-only.

An image of version 2 calls functions of shared libraries, through places among its constants that the runtime fills
with their addresses: besides symbols it has rows of libraries, whose offset is 2**64 - 1, and behind them rows of such
places, whose name is the function's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from graft.errors import CompileError
from graft.plugins.riscv_relocations import Relocation, relocate_riscv64

MAGIC, VERSION, IMPORTS_VERSION, PAGE = b"GRAFTIMG", 1, 2, 4096
LIBRARY_ROW = 2**64 - 1
X86_64, AARCH64, RISCV64 = 62, 183, 243
_HEADER, _SYMBOL = struct.Struct("<8sIIQQQQ"), struct.Struct("<QQQ")

_SECTION, _ELF_SYMBOL, _RELA = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_SYMTAB, _RELA_TYPE, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_PLACE = 8
"""Bytes of an address."""
_BY_PLACE = {62: (9, 41, 42), 183: (311, 312)}
"""The relocations against a place that holds an address, by machine: x86-64's GOTPCREL and its relaxable kin, aarch64's
ADR_GOT_PAGE and LD64_GOT_LO12_NC."""


@dataclass(slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    address: int = -1
    """Where it lies in the image; -1 if it is left out."""


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int


@dataclass(slots=True)
class _Object:
    data: bytes
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]


def link(
    objects: Sequence[bytes],
    exported: Sequence[str],
    symbols: Sequence[str] | None = None,
    libraries: Sequence[str] | None = None,
) -> bytes:
    """Return the image of some ELF64 relocatable objects with the symbols ``exported``.

    With ``symbols`` those are exported as ``exported``: ``symbols[i]`` of ``objects[i]``, or all of one object.
    With ``libraries``, by soname, what no object defines is a function of one of them, which objects that were compiled
    with ``-fno-plt`` call. Raises CompileError for an unknown relocation, another undefined symbol, writable data or a
    missing export.
    """
    parsed = [_parse(data) for data in objects]
    machines = {item.machine for item in parsed}
    if len(machines) != 1 or not machines <= set(_RELOCATE):
        raise CompileError(f"objects must be of one machine, {_KNOWN}; got {sorted(machines)}")
    machine = machines.pop()
    image, text_size = _lay_out(parsed)
    addresses = _defined(parsed)
    places = {} if libraries is None else _places(image, [name for one in parsed for name in _imports(one, addresses)])
    for item in parsed:
        relocations: list[Relocation] = []
        for place, kind, symbol, addend in _relocations(item):
            if symbol.name in places and kind in _BY_PLACE.get(machine, ()) and symbol.section == _UNDEFINED:
                _BY_ADDRESS[machine](image, place, kind, places[symbol.name], addend)
            else:
                address = _address(item, symbol, addresses)
                relocations.append(Relocation(place, kind, address, addend, symbol.name))
        _RELOCATE[machine](image, relocations)
    if symbols is not None:
        homes = parsed * len(symbols) if len(parsed) == 1 else parsed
        owned = [_defined([item]).get(symbol) for item, symbol in zip(homes, symbols, strict=True)]
        pairs = zip(exported, owned, strict=True)
        addresses = {name: address for name, address in pairs if address is not None}
    missing = [name for name in exported if name not in addresses]
    if missing:
        raise CompileError(f"no object defines {', '.join(repr(name) for name in missing)}")
    rows = [(name, addresses[name]) for name in exported]
    if libraries is not None:
        rows += [*((name, LIBRARY_ROW) for name in libraries), *places.items()]
    return _write(machine, bytes(image), text_size, rows, VERSION if libraries is None else IMPORTS_VERSION)


def imported(objects: Sequence[bytes]) -> tuple[str, ...]:
    """Return the functions that objects call and none of them defines, each once, in order."""
    parsed = [_parse(data) for data in objects]
    inside = {symbol.name for item in parsed for symbol in item.symbols if symbol.section != _UNDEFINED}
    return tuple(dict.fromkeys(name for item in parsed for name in _imports(item, inside)))


def _imports(item: _Object, defined: Container[str]) -> list[str]:
    named = (symbol.name for symbol in item.symbols if symbol.name and symbol.section == _UNDEFINED)
    return [name for name in named if name not in defined and name != "_GLOBAL_OFFSET_TABLE_"]


def _places(image: bytearray, names: Iterable[str]) -> dict[str, int]:
    """Add a place for the address of each function to the constants."""
    places = {name: len(image) + _PLACE * number for number, name in enumerate(dict.fromkeys(names))}
    image.extend(bytes(_align(_PLACE * len(places), PAGE)))
    return places


def _write(machine: int, image: bytes, text_size: int, named: Sequence[tuple[str, int]], version: int) -> bytes:
    names = [name.encode() for name, _ in named]
    name_offset = _HEADER.size + _SYMBOL.size * len(names)
    image_offset = _align(name_offset + sum(len(name) for name in names), 64)
    rows = []
    for name, (_, address) in zip(names, named, strict=True):
        rows.append(_SYMBOL.pack(address, name_offset, len(name)))
        name_offset += len(name)
    head = _HEADER.pack(MAGIC, version, machine, image_offset, len(image), text_size, len(names))
    return b"".join((head, *rows, *names)).ljust(image_offset, b"\0") + image


def _parse(data: bytes) -> _Object:
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 16)[0] != 1:
        raise CompileError("not a little-endian ELF64 relocatable object")
    machine = struct.unpack_from("<H", data, 18)[0]
    table = struct.unpack_from("<Q", data, 40)[0]
    count, names_index = struct.unpack_from("<HH", data, 60)
    rows = [_SECTION.unpack_from(data, table + number * _SECTION.size) for number in range(count)]
    strings = rows[names_index][4]
    sections = [
        _Section(_string(data, strings + name), kind, flags, offset, size, link, info, max(alignment, 1))
        for name, kind, flags, _, offset, size, link, info, alignment, _ in rows
    ]
    symbols: list[_Symbol] = []
    for section in sections:
        if section.kind == _SYMTAB:
            base = sections[section.link].offset
            for number in range(section.size // _ELF_SYMBOL.size):
                name, _, _, index, value, _ = _ELF_SYMBOL.unpack_from(data, section.offset + number * _ELF_SYMBOL.size)
                symbols.append(_Symbol(_string(data, base + name), index, value))
    return _Object(data, machine, sections, symbols)


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def _lay_out(objects: Sequence[_Object]) -> tuple[bytearray, int]:
    """Place code, then constants on a new page; return the image and the size of the code."""
    for item in objects:
        for section in item.sections:
            if section.flags & _ALLOC and section.flags & _WRITE and section.size:
                raise CompileError(f"section '{section.name}' is writable data; native code must have none")
    image = bytearray()
    for executable in (True, False):
        for item in objects:
            for section in item.sections:
                if _is_placed(section) and bool(section.flags & _EXECUTE) == executable:
                    image.extend(bytes(_align(len(image), section.alignment) - len(image)))
                    section.address = len(image)
                    image.extend(item.data[section.offset : section.offset + section.size])
        image.extend(bytes(_align(len(image), PAGE) - len(image)))
        if executable:
            text_size = len(image)
    return image, text_size


def _is_placed(section: _Section) -> bool:
    unwind = section.name.startswith((".eh_frame", ".note"))
    return bool(section.flags & _ALLOC) and section.size > 0 and section.kind != _NOBITS and not unwind


def _defined(objects: Sequence[_Object]) -> dict[str, int]:
    """Return the addresses of named symbols. Names of local symbols may repeat: they are found by their object."""
    return {
        symbol.name: item.sections[symbol.section].address + symbol.value
        for item in objects
        for symbol in item.symbols
        if symbol.name and 0 < symbol.section < len(item.sections) and item.sections[symbol.section].address >= 0
    }


def _address(item: _Object, symbol: _Symbol, addresses: dict[str, int]) -> int:
    if 0 < symbol.section < len(item.sections) and item.sections[symbol.section].address >= 0:
        return item.sections[symbol.section].address + symbol.value
    if symbol.section == _UNDEFINED and symbol.name in addresses:
        return addresses[symbol.name]
    raise CompileError(
        f"native code needs the external symbol '{symbol.name}'; native code of the built-in compiler has no "
        "external symbols",
        symbol=symbol.name,
    )


def _relocations(item: _Object) -> Iterator[tuple[int, int, _Symbol, int]]:
    """Yield (address in the image, type, symbol, addend) of every relocation in a placed section."""
    for section in item.sections:
        if section.kind != _RELA_TYPE or item.sections[section.info].address < 0:
            continue
        for number in range(section.size // _RELA.size):
            offset, info, addend = _RELA.unpack_from(item.data, section.offset + number * _RELA.size)
            yield item.sections[section.info].address + offset, info & 0xFFFFFFFF, item.symbols[info >> 32], addend


def _relocate_x86_64(image: bytearray, place: int, kind: int, target: int, addend: int, name: str) -> None:
    match kind:
        case 2 | 4:  # PC32, PLT32
            struct.pack_into("<i", image, place, target + addend - place)
        case 24:  # PC64
            struct.pack_into("<q", image, place, target + addend - place)
        case 41 | 42 if image[place - 2] == 0x8B:  # GOTPCRELX: mov from the table becomes lea
            image[place - 2] = 0x8D
            struct.pack_into("<i", image, place, target + addend - place)
        case _:
            raise CompileError(f"x86-64 relocation {kind} against '{name}' is not supported", relocation=kind)


def _place_x86_64(image: bytearray, place: int, kind: int, target: int, addend: int) -> None:
    struct.pack_into("<i", image, place, target + addend - place)


def _place_aarch64(image: bytearray, place: int, kind: int, target: int, addend: int) -> None:
    _relocate_aarch64(image, place, {311: 275, 312: 286}[kind], target, addend, "")


_LOAD_STORE_SHIFT = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


def _relocate_aarch64(image: bytearray, place: int, kind: int, target: int, addend: int, name: str) -> None:
    value = target + addend
    if kind in (260, 261):  # PREL64, PREL32
        struct.pack_into("<q" if kind == 260 else "<i", image, place, value - place)
        return
    word = struct.unpack_from("<I", image, place)[0]
    match kind:
        case 282 | 283:  # JUMP26, CALL26
            word = word & ~0x3FFFFFF | (value - place >> 2 & 0x3FFFFFF)
        case 275:  # ADR_PREL_PG_HI21
            pages = (value >> 12) - (place >> 12)
            word = word & ~0x60FFFFE0 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        case 277:  # ADD_ABS_LO12_NC
            word = word & ~0x3FFC00 | (value & 0xFFF) << 10
        case 278 | 284 | 285 | 286 | 299:  # LDST*_ABS_LO12_NC
            word = word & ~0x3FFC00 | (value & 0xFFF) >> _LOAD_STORE_SHIFT[kind] << 10
        case _:
            raise CompileError(f"aarch64 relocation {kind} against '{name}' is not supported", relocation=kind)
    struct.pack_into("<I", image, place, word)


def _each(
    relocate: Callable[[bytearray, int, int, int, int, str], None],
) -> Callable[[bytearray, Sequence[Relocation]], None]:
    """Return what applies relocations that have nothing to do with each other."""

    def every(image: bytearray, relocations: Sequence[Relocation]) -> None:
        for one in relocations:
            relocate(image, *one)

    return every


_RELOCATE: dict[int, Callable[[bytearray, Sequence[Relocation]], None]] = {
    X86_64: _each(_relocate_x86_64),
    AARCH64: _each(_relocate_aarch64),
    RISCV64: relocate_riscv64,
}
_KNOWN = "x86-64 (62), aarch64 (183) or riscv64 (243)"

_BY_ADDRESS: dict[int, Callable[[bytearray, int, int, int, int], None]] = {
    X86_64: _place_x86_64,
    AARCH64: _place_aarch64,
}


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment
