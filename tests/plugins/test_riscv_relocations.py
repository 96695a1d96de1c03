"""Relocations of RISC-V objects: what the patched instructions go to, decoded as a processor does."""

from __future__ import annotations

import struct

import pytest

from graft.errors import CompileError
from graft.plugins.riscv_relocations import Kind, Relocation, relocate_riscv64


def patched(kind: int, distance: int, before: int = 0, form: str = "<I") -> int:
    """Return the instruction at place 8 that is to go ``distance`` away, all its other bits as they were."""
    image = bytearray(64)
    struct.pack_into(form, image, 8, before)
    relocate_riscv64(image, [Relocation(8, kind, 8 + distance - 4, 4, "f")])
    (word,) = struct.unpack_from(form, image, 8)
    assert image[:8] == bytes(8)
    return int(word)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("distance", [0, 2, -2, 30, 32, 2046, 2048, 4094, -2048, -4096])
def test_a_branch_goes_where_its_thirteen_bits_say(distance: int) -> None:
    word = patched(Kind.BRANCH, distance, before=0x00B50063)
    assert word & ~0xFE000F80 == 0x00B50063 & ~0xFE000F80
    found = (word >> 31) << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 0x3F) << 5 | (word >> 8 & 0xF) << 1
    assert signed(found, 13) == distance


@pytest.mark.parametrize("distance", [0, 2, -2, 2046, 2048, 4096, 0xFFFFE, -0x100000])
def test_a_jump_goes_where_its_twenty_one_bits_say(distance: int) -> None:
    word = patched(Kind.JAL, distance, before=0xEF)
    assert word & 0xFFF == 0xEF
    found = (word >> 31) << 20 | (word >> 12 & 0xFF) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 0x3FF) << 1
    assert signed(found, 21) == distance


@pytest.mark.parametrize("kind", [Kind.CALL, Kind.CALL_PLT])
@pytest.mark.parametrize("distance", [0, 2046, 2048, -2048, -2050, 0x12345678, -0x7FFFF000])
def test_a_call_goes_where_both_its_instructions_say(kind: Kind, distance: int) -> None:
    image = bytearray(16)
    struct.pack_into("<II", image, 0, 0x97, 0x000080E7)
    relocate_riscv64(image, [Relocation(0, kind, distance, 0, "f")])
    upper, lower = struct.unpack_from("<II", image, 0)
    assert (upper & 0xFFF, lower & 0xFFFFF) == (0x97, 0x080E7)
    assert signed((upper & 0xFFFFF000) + signed(lower >> 20, 12) & 0xFFFFFFFF, 32) == distance


@pytest.mark.parametrize("kind", [Kind.PCREL_LO12_I, Kind.PCREL_LO12_S])
@pytest.mark.parametrize("distance", [0, 4, 2047, 2048, 4095, -4, -2049, 0x54321])
def test_the_low_bits_are_those_of_the_instruction_that_has_the_high_ones(kind: Kind, distance: int) -> None:
    image = bytearray(16)
    relocations = [Relocation(0, Kind.PCREL_HI20, distance, 0, "data"), Relocation(8, kind, 0, 0, ".L0")]
    relocate_riscv64(image, relocations)
    upper, lower = struct.unpack_from("<I", image, 0)[0], struct.unpack_from("<I", image, 8)[0]
    low = lower >> 20 if kind == Kind.PCREL_LO12_I else lower >> 25 << 5 | lower >> 7 & 0x1F
    assert signed(upper + signed(low, 12) & 0xFFFFFFFF, 32) == distance


@pytest.mark.parametrize("distance", [0, 2, -2, 30, 32, 64, 254, -256])
def test_a_short_branch_goes_where_its_nine_bits_say(distance: int) -> None:
    word = patched(Kind.RVC_BRANCH, distance, before=0xC101, form="<H")
    assert word & ~0x1C7C == 0xC101 & ~0x1C7C
    found = (
        (word >> 12 & 1) << 8
        | (word >> 5 & 3) << 6
        | (word >> 2 & 1) << 5
        | (word >> 10 & 3) << 3
        | (word >> 3 & 3) << 1
    )
    assert signed(found, 9) == distance


@pytest.mark.parametrize("distance", [0, 2, -2, 16, 32, 64, 128, 256, 512, 1024, 2046, -2048])
def test_a_short_jump_goes_where_its_twelve_bits_say(distance: int) -> None:
    word = patched(Kind.RVC_JUMP, distance, before=0xA001, form="<H")
    assert word & 0xE003 == 0xA001
    places = {11: 12, 4: 11, 9: 10, 8: 9, 10: 8, 6: 7, 7: 6, 3: 5, 2: 4, 1: 3, 5: 2}
    assert signed(sum((word >> place & 1) << bit for bit, place in places.items()), 12) == distance


@pytest.mark.parametrize(
    ("kind", "form", "wanted"),
    [
        (Kind.ADD32, "<I", 0x10000003),
        (Kind.SUB32, "<I", 0x0FFFFFFD + 2**32 - 2**32),
        (Kind.ADD64, "<Q", 0x10000003),
        (Kind.SUB64, "<Q", 0x0FFFFFFD),
    ],
)
def test_sums_and_differences_are_of_what_is_there(kind: Kind, form: str, wanted: int) -> None:
    image = bytearray(16)
    struct.pack_into(form, image, 0, 0x10000000)
    relocate_riscv64(image, [Relocation(0, kind, 1, 2, "f")])
    assert struct.unpack_from(form, image, 0) == (wanted,)


@pytest.mark.parametrize(("kind", "form", "size"), [(Kind.SUB32, "<I", 32), (Kind.SUB64, "<Q", 64)])
def test_a_difference_below_zero_wraps(kind: Kind, form: str, size: int) -> None:
    image = bytearray(16)
    relocate_riscv64(image, [Relocation(4, kind, 1, 0, "f")])
    assert struct.unpack_from(form, image, 4) == ((1 << size) - 1,)


def test_an_address_relative_to_its_place_is_a_signed_word_and_relaxing_changes_nothing() -> None:
    image = bytearray(16)
    relocate_riscv64(image, [Relocation(8, Kind.PCREL_32, 2, 1, "f"), Relocation(0, Kind.RELAX, 99, 0, "f")])
    assert struct.unpack_from("<i", image, 8) == (-5,)
    assert image[:8] == bytes(8)


def test_a_relocation_that_is_not_known_is_named() -> None:
    with pytest.raises(CompileError) as caught:
        relocate_riscv64(bytearray(8), [Relocation(0, 20, 0, 0, "puts")])
    assert str(caught.value) == "riscv64 relocation 20 against 'puts' is not supported"
