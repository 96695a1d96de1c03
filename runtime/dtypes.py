"""The names of the tensor element types, with their NumPy and DLPack counterparts.

One name everywhere: the ONNX name in lower case (``float32``, ``bfloat16``, ``float8e4m3fn``, ``bool``). A custom
datatype travels as its storage type (``uint8``, ``uint16``, ``uint32``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from graft.errors import GraftError

DLPACK_INT, DLPACK_UINT, DLPACK_FLOAT, DLPACK_BFLOAT, DLPACK_COMPLEX, DLPACK_BOOL = 0, 1, 2, 4, 5, 6


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type: its name, width, DLPack type code and the name that safetensors gives it."""

    name: str
    bits: int
    dlpack_code: int
    safetensors: str

    @property
    def bytes(self) -> int:
        """The size of one element in bytes."""
        return self.bits // 8


ELEMENT_TYPES = {
    row.name: row
    for row in (
        ElementType("bool", 8, DLPACK_BOOL, "BOOL"),
        ElementType("int8", 8, DLPACK_INT, "I8"),
        ElementType("int16", 16, DLPACK_INT, "I16"),
        ElementType("int32", 32, DLPACK_INT, "I32"),
        ElementType("int64", 64, DLPACK_INT, "I64"),
        ElementType("uint8", 8, DLPACK_UINT, "U8"),
        ElementType("uint16", 16, DLPACK_UINT, "U16"),
        ElementType("uint32", 32, DLPACK_UINT, "U32"),
        ElementType("uint64", 64, DLPACK_UINT, "U64"),
        ElementType("float16", 16, DLPACK_FLOAT, "F16"),
        ElementType("bfloat16", 16, DLPACK_BFLOAT, "BF16"),
        ElementType("float32", 32, DLPACK_FLOAT, "F32"),
        ElementType("float64", 64, DLPACK_FLOAT, "F64"),
        ElementType("float8e4m3fn", 8, 10, "F8_E4M3"),
        ElementType("float8e4m3fnuz", 8, 11, "F8_E4M3FNUZ"),
        ElementType("float8e5m2", 8, 12, "F8_E5M2"),
        ElementType("float8e5m2fnuz", 8, 13, "F8_E5M2FNUZ"),
        ElementType("complex64", 64, DLPACK_COMPLEX, "C64"),
    )
}

_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}


def element_type(name: str) -> ElementType:
    """Return the element type called ``name``; raise GraftError naming the known ones."""
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        known = ", ".join(ELEMENT_TYPES)
        raise GraftError(f"unknown element type '{name}'; known types are {known}", dtype=name) from None


@cache
def numpy_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype of the element type ``name`` (the small floats come from ml_dtypes).

    Raise GraftError where these are not installed.
    """
    element_type(name)
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError as error:
            raise GraftError(f"element type '{name}' needs ml_dtypes; pip install ml_dtypes", dtype=name) from error
        small: np.dtype = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return small
    return np.dtype(name)


def dtype_name(dtype: np.dtype) -> str:
    """Return the element type name of a NumPy dtype; raise GraftError if it has none."""
    name = dtype.name
    for ours, theirs in _ML_DTYPES.items():
        if name == theirs:
            return ours
    element_type(name)
    return name
