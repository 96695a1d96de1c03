"""What functions of libraries take of the stack, counted in the code that a linker brings in for a project.

A function takes what its instructions subtract from the stack pointer, whichever of them run, and the most of what the
functions take that it calls, jumps to or falls through to. Little-endian Arm (32 and 64 bits) and RISC-V are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_FORMAT = re.compile(r"file format elf(?:32-littlearm|64-littleaarch64|(?:32|64)-littleriscv)$", re.MULTILINE)
_FUNCTION = re.compile(r"^([0-9a-f]+) <([^>]+)>:\n((?:.+\n?)*)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t(?!\.|nop|c\.nop)(.+)$", re.MULTILINE)
_SYMBOL = re.compile(r"^([0-9a-f]+) [tTwW] (\S+)$", re.MULTILINE)
_REGISTERS = re.compile(r"^(?:v?push\s+|v?stmdb\s+sp!,\s*){([^}]+)}")
_BYTES = re.compile(
    r"^(?:str\S*|stp)\s.*\[sp, #-(\d+)\]!"
    r"|^subw?(?:\.w)?\s+sp,(?: sp,)? #(0x[0-9a-f]+|\d+)"
    r"|^(?:addi?\s+sp,sp,|cm\.push\s+{[^}]+},\s*)-(\d+)"
)
_VARIES = re.compile(
    r"^(?:sub\S*\s+sp,(?!.*#)|(?:add|sub)\s+sp,sp,[a-z]"
    r"|blx\s+[ril]|bx\s+(?!lr)|blr?\s+x|br\s|jr\s+(?!t0)|jalr\s(?!.*<))"
)
"""A register says how much of the stack is taken, or what is called or jumped to."""
_TARGET = re.compile(r"<([^>+]+)(?:\+0x[0-9a-f]+)?>")
_END = re.compile(r"^(?:bx\s+lr|b(?:\.[nw])?\s|br\s|(?:pop|ldm|ldr).*\bpc\b|ret\b|j\s|jr\s|tail\s|udf|ebreak|unimp)")
"""Instructions that do not go on to the next."""


@dataclass(frozen=True, slots=True)
class _Code:
    """The instructions of a function, and the function behind it."""

    instructions: tuple[str, ...]
    next: str


def library_frames(listing: str, symbols: str) -> dict[str, int]:
    """Return the bytes of the stack that each function in an image takes, with those that it calls.

    ``listing`` is of ``objdump -d --no-show-raw-insn``, ``symbols`` of ``nm``. Functions whose bytes no number in the
    code says are left out: where they depend on data, where a register has what is called, where functions call
    themselves.
    """
    if not _FORMAT.search(listing):
        return {}
    found = _FUNCTION.findall(listing)
    behind = [label for _, label, _ in found[1:]] + [""]
    codes = {
        label: _Code(tuple(_INSTRUCTION.findall(text)), after)
        for (_, label, text), after in zip(found, behind, strict=True)
    }
    labels = {int(address, 16): label for address, label, _ in found}
    known: dict[str, int | None] = {}
    names = {name: labels.get(int(address, 16), "") for address, name in _SYMBOL.findall(symbols)}
    taken = {name: _taken(label, codes, known) for name, label in names.items() if label}
    return {name: size for name, size in taken.items() if size is not None}


def _taken(label: str, codes: Mapping[str, _Code], known: dict[str, int | None]) -> int | None:
    if label not in known:
        known[label] = None  # while it is looked at: for a function that calls itself
        code = codes[label]
        called = {name for one in code.instructions for name in _TARGET.findall(one)} - {label}
        if code.instructions and not _END.match(code.instructions[-1]):
            called.add(code.next)
        below = [_taken(one, codes, known) for one in sorted(called & codes.keys())]
        if not any(_VARIES.match(one) for one in code.instructions) and None not in below:
            known[label] = sum(map(_subtracted, code.instructions)) + max((one or 0 for one in below), default=0)
    return known[label]


def _subtracted(instruction: str) -> int:
    """Return how many bytes an instruction takes of the stack."""
    if registers := _REGISTERS.match(instruction):
        return sum(map(_width, registers[1].split(",")))
    number = _BYTES.match(instruction)
    return int(next(one for one in number.groups() if one), 0) if number else 0


def _width(registers: str) -> int:
    """Return the bytes of a register or of a range of them: `r4`, `lr`, `d8-d15`."""
    first, _, last = registers.strip().partition("-")
    count = int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (8 if first.startswith("d") else 4)
