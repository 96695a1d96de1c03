"""Scalar and vector types of the tensor IR, and the names of all element types.

An element type is a name: an ONNX type in lower case (``float32``) or a custom one (``custom[posit]16``), whose
storage type is the unsigned integer of that many bits, rounded up to 8, 16, 32 or 64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from graft.errors import GraftError
from graft.runtime.dtypes import ELEMENT_TYPES

_CUSTOM = re.compile(r"custom\[([A-Za-z_][A-Za-z0-9_]*)\]([0-9]+)")

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
SIGNED = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTEGERS = SIGNED | UNSIGNED


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression: an element type and a number of lanes (1 for a scalar)."""

    dtype: str
    lanes: int = 1

    def __str__(self) -> str:
        return self.dtype if self.lanes == 1 else f"{self.dtype}x{self.lanes}"

    def with_lanes(self, lanes: int) -> Type:
        """Return the type of the same element type with ``lanes`` lanes."""
        return self if lanes == self.lanes else type_of(self.dtype, lanes)

    @property
    def is_float(self) -> bool:
        """Whether elements are IEEE or brain floats."""
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether elements are signed or unsigned integers."""
        return self.dtype in INTEGERS

    @property
    def is_custom(self) -> bool:
        """Whether elements are of a custom datatype."""
        return is_custom(self.dtype)


@cache
def type_of(dtype: str, lanes: int) -> Type:
    """Return the type of an element type and a number of lanes: each is made once, for expressions ask often."""
    return Type(dtype, lanes)


BOOL, INT32, INT64, FLOAT32, FLOAT64 = Type("bool"), Type("int32"), Type("int64"), Type("float32"), Type("float64")


CUSTOM_DOMAIN = "graft.custom"
"""The domain of ONNX's operators on custom datatypes: same names, attributes and lowerings, storage types in ONNX."""
ONNX_DOMAINS = frozenset({"", "ai.onnx", CUSTOM_DOMAIN})
"""The domains where a name means what it means in ONNX's own."""


PACKED_TYPES = frozenset({"string", "int4", "uint4", "int2", "uint2", "float4e2m1", "float8e8m0"})
"""ONNX's element types that no kernel computes with; elements take a byte or more (`graft.runtime.packed_values`)."""


def is_custom(dtype: str) -> bool:
    """Whether ``dtype`` names a custom datatype."""
    return dtype.startswith("custom[")


@cache
def parse_custom(dtype: str) -> tuple[str, int]:
    """Return name and bits of a custom datatype: ``custom[posit]16`` gives ``("posit", 16)``.

    Raise GraftError for the name of another type.
    """
    match = _CUSTOM.fullmatch(dtype)
    if match is None:
        raise GraftError(f"'{dtype}' is not a custom datatype; write custom[name]bits, as in custom[posit]16")
    return match[1], int(match[2])


@cache
def element_bits(dtype: str) -> int:
    """Return the bits of one element as stored; raise GraftError for an unknown type."""
    if is_custom(dtype):
        bits = parse_custom(dtype)[1]
        for storage in (8, 16, 32, 64):
            if bits <= storage:
                return storage
        raise GraftError(f"'{dtype}' is wider than 64 bits; custom datatypes have at most 64")
    if dtype in PACKED_TYPES:
        return 8
    if dtype not in ELEMENT_TYPES:
        raise GraftError(f"unknown element type '{dtype}'; known types are {', '.join(ELEMENT_TYPES)}")
    return ELEMENT_TYPES[dtype].bits


def storage_dtype(dtype: str) -> str:
    """Return the element type that carries ``dtype`` in memory: itself, or uint8/16/32/64 for a custom one."""
    return f"uint{element_bits(dtype)}" if is_custom(dtype) else dtype


def parse_type(text: str) -> Type:
    """Return the type that ``str(type)`` printed: ``float32x16``, ``custom[posit]16x4``."""
    dtype, separator, lanes = text.rpartition("x")
    if separator and lanes.isdigit() and (dtype in ELEMENT_TYPES or _CUSTOM.fullmatch(dtype)):
        return Type(dtype, int(lanes))
    element_bits(text)
    return Type(text)
