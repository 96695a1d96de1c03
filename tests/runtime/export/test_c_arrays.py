"""Arrays as C initialisers, none of whose elements is rounded."""

from __future__ import annotations

import numpy as np
import pytest

from graft.runtime.dtypes import numpy_dtype
from graft.runtime.export.c_arrays import array_text, blob_text


def elements(text: str) -> list[str]:
    assert text.startswith("{\n  ")
    assert text.endswith("}")
    return text[4:-1].replace(",\n  ", ", ").split(", ")


@pytest.mark.parametrize(
    ("dtype", "values", "wanted"),
    [
        ("bool", [True, False], ["1", "0"]),
        ("int8", [-128, 127], ["-128", "127"]),
        ("uint32", [0, 2**32 - 1], ["0U", "4294967295U"]),
        ("int32", [-(2**31), 7], ["INT32_MIN", "7"]),
        ("int64", [-(2**63), -(2**63) + 1, 5], ["INT64_MIN", "INT64_C(-9223372036854775807)", "INT64_C(5)"]),
        ("uint64", [2**64 - 1], ["UINT64_C(18446744073709551615)"]),
        ("float32", [1.5, -0.0, np.nan], ["0x1.8p+0f", "-0x0p+0f", "NAN"]),
        ("float32", [np.inf, -np.inf], ["INFINITY", "-INFINITY"]),
        ("float64", [0.1], ["0x1.999999999999ap-4"]),
        ("float16", [1.0, -2.0], ["15360", "49152"]),
        ("bfloat16", [1.0], ["16256"]),
        ("float8e4m3fn", [1.0], ["56"]),
    ],
)  # fmt: skip
def test_elements_are_literals_of_their_type(dtype: str, values: list[float], wanted: list[str]) -> None:
    assert elements(array_text(dtype, np.array(values, numpy_dtype(dtype)))) == wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_read_back_bit_for_bit(dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal(50).astype(dtype)
    found = [float.fromhex(one.removesuffix("f")) for one in elements(array_text(dtype, array))]
    np.testing.assert_array_equal(np.array(found, dtype), array)


def test_arrays_are_in_row_major_order_with_some_elements_a_line() -> None:
    array = np.arange(70, dtype=np.int32).reshape(2, -1)
    text = array_text("int32", array.T.copy().T)
    assert elements(text) == list(map(str, range(70)))
    assert [line.count(",") for line in text.splitlines()] == [0, 29, 29, 11]


def test_an_empty_array_has_one_element_for_c() -> None:
    assert array_text("float32", np.zeros((0, 3), np.float32)) == "{\n  0}"


def test_the_blob_is_brought_in_under_the_programs_name() -> None:
    text = blob_text("net")
    assert ".globl net_weights\nnet_weights:\n" in text
    assert '.incbin "net_weights.bin"' in text
    assert ".balign 64" in text
