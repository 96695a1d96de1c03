"""Names of element types with their NumPy and DLPack counterparts."""

from __future__ import annotations

import numpy as np
import pytest

from graft.errors import GraftError
from graft.runtime.dtypes import ELEMENT_TYPES, dtype_name, element_type, numpy_dtype


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_type_has_a_numpy_dtype_of_its_width_and_name(name: str) -> None:
    row, dtype = element_type(name), numpy_dtype(name)
    assert dtype.itemsize == row.bytes == row.bits // 8
    assert dtype_name(dtype) == row.name == name


@pytest.mark.parametrize("name", [name for name, row in ELEMENT_TYPES.items() if row.dlpack_code in (0, 1, 2, 5, 6)])
def test_numpy_tells_the_same_dlpack_kind(name: str) -> None:
    kinds = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
    assert element_type(name).dlpack_code == kinds[numpy_dtype(name).kind]


def test_names_for_safetensors_are_all_different() -> None:
    assert len({row.safetensors for row in ELEMENT_TYPES.values()}) == len(ELEMENT_TYPES)
    assert (element_type("bool").safetensors, element_type("bfloat16").safetensors) == ("BOOL", "BF16")


def test_an_unknown_type_is_refused_with_those_that_are_known() -> None:
    message = f"unknown element type 'float8'; known types are {', '.join(ELEMENT_TYPES)}"
    for refused in (lambda: element_type("float8"), lambda: numpy_dtype("float8")):
        with pytest.raises(GraftError) as caught:
            refused()
        assert str(caught.value) == message
    with pytest.raises(GraftError, match="unknown element type 'datetime64"):
        dtype_name(np.dtype("datetime64[s]"))
