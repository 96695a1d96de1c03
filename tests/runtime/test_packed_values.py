"""Values that are no tensors of numbers, as bytes and back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graft
from graft.errors import InputError
from graft.runtime.packed_values import pack, unpack

ARRAYS = st.sampled_from(
    [
        np.arange(6, dtype=np.int64).reshape(2, 3), np.zeros((0, 2), np.float32), np.float64(2.5),
        np.array([True, False]), np.array([1, -2], ml_dtypes.int4), np.array(["a", "äß", ""], object).reshape(3, 1),
        np.array("scalar", object), np.array([1.5], ml_dtypes.float4_e2m1fn), np.zeros((2, 0), object),
    ]
)  # fmt: skip
VALUES = st.recursive(st.none() | ARRAYS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one is other
    array = np.asarray(one)
    return bool(array.dtype == other.dtype and array.shape == other.shape and array.tolist() == other.tolist())


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(value, unpack(pack(value)))


@given(VALUES, st.data())
def test_damaged_bytes_are_an_error_or_another_value(value: Any, data: st.DataObject) -> None:
    packed = pack(value)
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(InputError):
        unpack(packed[: data.draw(st.integers(0, len(packed)))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a packed value ends after 0 bytes: it tells of 1 more at 0"),
        (b"\x00\x00", "a packed value has 1 bytes behind its end"),
        (b"\x07", "a packed value has tag 7 at depth 0; known are 0 to 2, down to 16"),
        (b"\x01\x03abc\x00", "a packed tensor is of 'abc', which neither NumPy nor ml_dtypes knows here"),
        (b"\x01\x05i4,f4\x00", "a packed tensor is of 'i4,f4', which neither NumPy nor ml_dtypes knows here"),
        (b"\x01\x06object\x00", "a packed tensor is of objects ('object')"),
        (b"\x01\x04int8\x01" + b"\xff" * 8, f"a packed value ends after 15 bytes: it tells of {2**64 - 1} more at 15"),
        (
            b"\x01\x04int8\x02" + b"\0" * 8 + b"\xff" * 8,
            f"a packed value has the shape [0, {2**64 - 1}], which no array can have",
        ),
        (b"\x01\x04int8\x41" + b"\0" * 520, f"a packed value has the shape {[0] * 65}, which no array can have"),
    ],
)
def test_what_is_damaged_is_told(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        unpack(np.frombuffer(data, np.uint8))
    assert str(caught.value) == message


def test_objects_that_are_no_texts_are_told() -> None:
    with pytest.raises(InputError, match="an array of objects holds 5; give texts alone"):
        pack(np.array([5], object))


def program_of(text: str) -> Any:
    return graft.compile(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 25]> {text}'), threads=1)


def test_strings_and_numbers_pass_through_one_program() -> None:
    program = program_of(
        "g (string[2] s, float[2] x) => (string[2] t, float[2] y) { t = StringConcat(s, s) y = Neg(x) }"
    )
    texts, numbers = program(np.array(["a", "b"], object), np.ones(2, np.float32))
    assert (texts.tolist(), numbers.tolist()) == (["aa", "bb"], [-1, -1])
    assert [str(one) for one in (*program.inputs, *program.outputs)] == ["string", "float32[2]", "string", "float32[2]"]


def test_sequences_and_absent_optionals_are_lists_and_none() -> None:
    program = program_of(
        """g (seq(float[2]) s, optional(float[2]) o) => (seq(float[2]) t, bool b) {
          n = Constant <value = float[2] {5, 6}> ()
          t = SequenceInsert(s, n)
          b = OptionalHasElement(o)
        }"""
    )
    rows, there = program([np.zeros(2, np.float32)], None)
    assert ([row.tolist() for row in rows], bool(there)) == ([[0, 0], [5, 6]], False)
    assert bool(program.run({"s": [], "o": np.ones(2, np.float32)})["b"])
    assert str(program.inputs[0]) == "seq(float32)"


def test_a_saved_program_knows_what_is_packed(tmp_path: Path) -> None:
    program = program_of("g (int4[3] x) => (int4[3] y, float[3] z) { y = Identity(x) z = Cast <to = 1> (x) }")
    program.save(tmp_path / "m.graft")
    same, wide = graft.runtime.load(tmp_path / "m.graft")(np.array([1, -2, 3], ml_dtypes.int4))
    assert (same.dtype, same.tolist(), wide.tolist()) == (np.dtype(ml_dtypes.int4), [1, -2, 3], [1, -2, 3])


def test_the_extent_of_strings_may_vary() -> None:
    program = program_of("g (string[n] s) => (string[n] t, int64[1] c) { t = StringConcat(s, s) c = Shape(s) }")
    texts, count = program(np.array(["a", "b", "c"], object))
    assert (texts.tolist(), count.tolist()) == (["aa", "bb", "cc"], [3])


def test_strings_go_through_control_flow() -> None:
    program = program_of(
        """g (bool c, string[2] s) => (string[2] t) {
          t = If(c) <then_branch = a () => (string[2] u) { u = StringConcat(s, s) },
                     else_branch = b () => (string[2] v) { v = Identity(s) }>
        }"""
    )
    texts = np.array(["x", "y"], object)
    assert program(np.array(True), texts).tolist() == ["xx", "yy"]
    assert program(np.array(False), texts).tolist() == ["x", "y"]
