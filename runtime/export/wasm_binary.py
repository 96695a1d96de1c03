"""The binary format of WebAssembly: numbers, sections, and a reader of both (WebAssembly Core Specification 2.0, 5)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from graft.errors import CompileError

HEADER = b"\0asm\1\0\0\0"
I32, I64, FUNCTION = 0x7F, 0x7E, 0x60
CUSTOM, TYPES, IMPORTS, FUNCTIONS, TABLES, MEMORIES, GLOBALS, EXPORTS = 0, 1, 2, 3, 4, 5, 6, 7
ELEMENTS, CODE, DATA, DATA_COUNT = 9, 10, 11, 12
PAGE = 65536


def unsigned(value: int) -> bytes:
    """Return a number in LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def signed(value: int) -> bytes:
    """Return a signed number in LEB128."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value & 0x7F))


def address(value: int) -> bytes:
    """Return ``i32.const``: addresses from 2 GiB on are negative there."""
    return b"\x41" + signed(value - (1 << 32) if value >> 31 else value)


def padded(value: int) -> bytes:
    """Return 32 bits in five bytes of LEB128, as relocations have room for; it is read as unsigned."""
    return bytes((*(value >> 7 * place & 0x7F | 0x80 for place in range(4)), value >> 28 & 0xF))


def padded_signed(value: int) -> bytes:
    """Return 32 bits in five bytes of LEB128, read as signed."""
    last = value >> 28 & 0xF
    return padded(value)[:4] + bytes((last | (0x70 if last & 8 else 0),))


def name(text: str) -> bytes:
    """Return a name with its length."""
    data = text.encode()
    return unsigned(len(data)) + data


def section(number: int, content: bytes) -> bytes:
    """Return a section with its length; nothing for one without content."""
    return bytes((number,)) + unsigned(len(content)) + content


def vector(rows: Sequence[bytes]) -> bytes:
    """Return a number of entries, and these."""
    return unsigned(len(rows)) + b"".join(rows)


class Reader:
    """Reads a WebAssembly binary from front to end; raises CompileError where it ends too early."""

    def __init__(self, data: bytes, offset: int = 0, end: int | None = None) -> None:
        self.data, self.offset = data, offset
        self.end = len(data) if end is None else end

    def bytes(self, count: int) -> bytes:
        """Return the next bytes; raise CompileError where there are fewer."""
        if count > self.end - self.offset:
            raise CompileError(f"the WebAssembly object ends at byte {self.end}, and {count} more are to come")
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def byte(self) -> int:
        """Return the next byte."""
        return self.bytes(1)[0]

    def number(self) -> int:
        """Return an unsigned number in LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        """Return a signed number in LEB128."""
        begin = self.offset
        value = self.number()
        bits = 7 * (self.offset - begin)
        return value - (1 << bits) if value >> (bits - 1) else value

    def word(self) -> int:
        """Return four bytes as a number."""
        return int(struct.unpack("<I", self.bytes(4))[0])

    def name(self) -> str:
        """Return a text."""
        return self.bytes(self.number()).decode()

    def part(self) -> Reader:
        """Return a reader of the next part, which its length stands before, and skip it."""
        size = self.number()
        begin = self.offset
        self.bytes(size)
        return Reader(self.data, begin, self.offset)

    @property
    def is_done(self) -> bool:
        """Whether all is read."""
        return self.offset >= self.end
