"""Names of element types, their storage, and the text of types."""

from __future__ import annotations

import pytest

from graft.core.types import FLOAT32, INT64, Type, element_bits, parse_custom, parse_type, storage_dtype
from graft.errors import GraftError


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("bool", 8), ("float16", 16), ("float64", 64), ("complex64", 64), ("int4", 8), ("string", 8),
        ("custom[posit]1", 8), ("custom[posit]8", 8), ("custom[posit]9", 16), ("custom[a_1]33", 64),
        ("custom[a]64", 64),
    ],
)  # fmt: skip
def test_an_element_takes_whole_bytes(dtype: str, bits: int) -> None:
    assert element_bits(dtype) == bits


def test_custom_elements_lie_in_unsigned_integers_and_others_in_themselves() -> None:
    assert [storage_dtype(one) for one in ("custom[posit]12", "float16", "int4")] == ["uint16", "float16", "int4"]
    assert parse_custom("custom[posit]12") == ("posit", 12)


@pytest.mark.parametrize("dtype", ["custom[posit]", "custom[]8", "custom[1a]8", "custom[posit]8x4", "float32"])
def test_what_is_no_custom_datatype_is_refused(dtype: str) -> None:
    with pytest.raises(GraftError, match=r"write custom\[name\]bits"):
        parse_custom(dtype)


@pytest.mark.parametrize(("dtype", "said"), [("custom[wide]65", "at most 64"), ("float33", "unknown element type")])
def test_a_type_without_storage_is_refused(dtype: str, said: str) -> None:
    with pytest.raises(GraftError, match=said):
        element_bits(dtype)


@pytest.mark.parametrize(
    "type", [FLOAT32, Type("float32", 16), Type("custom[posit]16"), Type("custom[posit]16", 4), INT64]
)
def test_the_text_of_a_type_is_read_back(type: Type) -> None:
    assert parse_type(str(type)) == type


@pytest.mark.parametrize("text", ["float33x4", "float32x", "float32xa", ""])
def test_the_text_of_no_type_is_refused(text: str) -> None:
    with pytest.raises(GraftError):
        parse_type(text)


def test_a_type_with_its_own_lanes_is_itself() -> None:
    vector = FLOAT32.with_lanes(8)
    assert vector == Type("float32", 8)
    assert vector.with_lanes(8) is vector
    assert (FLOAT32.is_float, INT64.is_float, INT64.is_integer, Type("bool").is_integer) == (True, False, True, False)
    assert (Type("custom[posit]16").is_custom, FLOAT32.is_custom) == (True, False)
