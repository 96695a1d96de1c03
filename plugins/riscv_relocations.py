"""Relocations of RISC-V objects (RISC-V ELF psABI, 8.4), of 64 bits and little endian.

An address relative to the program counter takes two instructions with a relocation each: the second names the first,
and has the low bits of what the first goes to.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from graft.errors import CompileError


class Kind(IntEnum):
    """The relocations that code without a linker's relaxation has."""

    BRANCH = 16
    JAL = 17
    CALL = 18
    CALL_PLT = 19
    PCREL_HI20 = 23
    PCREL_LO12_I = 24
    PCREL_LO12_S = 25
    ADD32 = 35
    ADD64 = 36
    SUB32 = 39
    SUB64 = 40
    RVC_BRANCH = 44
    RVC_JUMP = 45
    RELAX = 51
    PCREL_32 = 57


class Relocation(NamedTuple):
    """A place in the image, what is asked for there, and where the symbol it names lies."""

    place: int
    kind: int
    target: int
    addend: int
    name: str


def relocate_riscv64(image: bytearray, relocations: Sequence[Relocation]) -> None:
    """Apply the relocations of one object; raise CompileError for one that is not known."""
    upper = {one.place: one.target + one.addend - one.place for one in relocations if one.kind == Kind.PCREL_HI20}
    for one in relocations:
        distance = one.target + one.addend - one.place
        match one.kind:
            case Kind.RELAX:
                pass
            case Kind.ADD32 | Kind.ADD64 | Kind.SUB32 | Kind.SUB64:
                _add(image, one)
            case Kind.PCREL_32:
                struct.pack_into("<i", image, one.place, distance)
            case Kind.BRANCH:
                _patch(image, one.place, 0xFE000F80, _branch(distance))
            case Kind.JAL:
                _patch(image, one.place, 0xFFFFF000, _jump(distance))
            case Kind.CALL | Kind.CALL_PLT:
                _patch(image, one.place, 0xFFFFF000, _high(distance))
                _patch(image, one.place + 4, 0xFFF00000, (distance & 0xFFF) << 20)
            case Kind.PCREL_HI20:
                _patch(image, one.place, 0xFFFFF000, _high(distance))
            case Kind.PCREL_LO12_I:
                _patch(image, one.place, 0xFFF00000, (upper[one.target] & 0xFFF) << 20)
            case Kind.PCREL_LO12_S:
                low = upper[one.target]
                _patch(image, one.place, 0xFE000F80, (low >> 5 & 0x7F) << 25 | (low & 0x1F) << 7)
            case Kind.RVC_BRANCH:
                _patch(image, one.place, 0x1C7C, _short_branch(distance), "<H")
            case Kind.RVC_JUMP:
                _patch(image, one.place, 0x1FFC, _short_jump(distance), "<H")
            case _:
                raise CompileError(
                    f"riscv64 relocation {one.kind} against '{one.name}' is not supported", relocation=one.kind
                )


def _patch(image: bytearray, place: int, mask: int, bits: int, form: str = "<I") -> None:
    (word,) = struct.unpack_from(form, image, place)
    struct.pack_into(form, image, place, word & ~mask | bits & mask)


def _add(image: bytearray, one: Relocation) -> None:
    """Add the address to what is there, or subtract it."""
    form, size = ("<I", 32) if one.kind in (Kind.ADD32, Kind.SUB32) else ("<Q", 64)
    sign = 1 if one.kind in (Kind.ADD32, Kind.ADD64) else -1
    (value,) = struct.unpack_from(form, image, one.place)
    struct.pack_into(form, image, one.place, value + sign * (one.target + one.addend) & (1 << size) - 1)


def _high(distance: int) -> int:
    """The upper 20 bits of what the low 12, which are signed, are added to."""
    return distance + 0x800 & 0xFFFFF000


def _branch(distance: int) -> int:
    """The bits of a B-type instruction."""
    high = (distance >> 12 & 1) << 31 | (distance >> 5 & 0x3F) << 25
    return high | (distance >> 1 & 0xF) << 8 | (distance >> 11 & 1) << 7


def _jump(distance: int) -> int:
    """The bits of a J-type instruction."""
    high = (distance >> 20 & 1) << 31 | (distance >> 1 & 0x3FF) << 21
    return high | (distance >> 11 & 1) << 20 | (distance >> 12 & 0xFF) << 12


def _short_branch(distance: int) -> int:
    """The bits of a CB-type instruction."""
    high = (distance >> 8 & 1) << 12 | (distance >> 3 & 3) << 10 | (distance >> 6 & 3) << 5
    return high | (distance >> 1 & 3) << 3 | (distance >> 5 & 1) << 2


def _short_jump(distance: int) -> int:
    """The bits of a CJ-type instruction."""
    high = (distance >> 11 & 1) << 12 | (distance >> 4 & 1) << 11 | (distance >> 8 & 3) << 9
    middle = (distance >> 10 & 1) << 8 | (distance >> 6 & 1) << 7 | (distance >> 7 & 1) << 6
    return high | middle | (distance >> 1 & 7) << 3 | (distance >> 5 & 1) << 2
