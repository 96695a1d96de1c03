"""Numbers and sections of WebAssembly's binary format, written and read."""

from __future__ import annotations

import pytest

from graft.errors import CompileError
from graft.runtime.export.wasm_binary import (
    Reader,
    address,
    name,
    padded,
    padded_signed,
    section,
    signed,
    unsigned,
    vector,
)

UNSIGNED = [0, 1, 63, 64, 127, 128, 300, 16383, 16384, 2**31, 2**32 - 1, 2**40]
SIGNED = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31 - 1, -(2**31), 2**40]


@pytest.mark.parametrize("value", UNSIGNED)
def test_an_unsigned_number_is_read_back_and_as_short_as_it_can_be(value: int) -> None:
    data = unsigned(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    reader = Reader(data)
    assert reader.number() == value
    assert reader.is_done


@pytest.mark.parametrize("value", SIGNED)
def test_a_signed_number_is_read_back_and_as_short_as_it_can_be(value: int) -> None:
    data = signed(value)
    bits = (value if value >= 0 else ~value).bit_length() + 1
    assert len(data) == -(-bits // 7)
    assert Reader(data).signed() == value


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**27, 2**28 - 1, 2**31, 2**32 - 1])
def test_a_padded_number_has_five_bytes_and_is_read_back(value: int) -> None:
    assert len(padded(value)) == len(padded_signed(value)) == 5
    assert Reader(padded(value)).number() == value
    assert Reader(padded_signed(value)).signed() == (value - 2**32 if value >= 2**31 else value)


@pytest.mark.parametrize(("value", "read"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 - 16, -16)])
def test_an_address_from_two_gibibytes_on_is_negative(value: int, read: int) -> None:
    data = address(value)
    assert data[0] == 0x41
    assert Reader(data, 1).signed() == read


def test_known_bytes_are_those_of_the_specification() -> None:
    assert unsigned(624485) == b"\xe5\x8e\x26"
    assert signed(-123456) == b"\xc0\xbb\x78"
    assert name("a\u00e9") == b"\x03a\xc3\xa9"
    assert section(3, b"xy") == b"\x03\x02xy"
    assert vector([b"a", b"bc"]) == b"\x02abc"


def test_a_reader_reads_its_part_alone_and_skips_it() -> None:
    reader = Reader(b"\xff" + unsigned(3) + b"\x01\x02\x03" + b"\x04\0\0\x80" + name("end"), 1)
    part = reader.part()
    assert (part.byte(), part.bytes(2), part.is_done) == (1, b"\x02\x03", True)
    assert reader.word() == 0x80000004
    assert reader.name() == "end"
    assert reader.is_done


@pytest.mark.parametrize(
    ("data", "end", "message"),
    [
        (b"\x80", None, "the WebAssembly object ends at byte 1, and 1 more are to come"),
        (b"\x04ab", None, "the WebAssembly object ends at byte 3, and 4 more are to come"),
        (b"\x02ab", 2, "the WebAssembly object ends at byte 2, and 2 more are to come"),
    ],
)
def test_what_ends_too_early_is_refused(data: bytes, end: int | None, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        Reader(data, 0, end).name()
    assert str(caught.value) == message
