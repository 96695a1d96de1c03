"""Decoded types: a custom datatype's numbers as floats, while a kernel computes with them.

``custom[posit__16]32`` is posit16 held in the 32 bits of a float32. It exists only inside a kernel: schedules see an
element type of 32 bits whose arithmetic is not regrouped, and `lower_function` makes it float32 with roundings.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from graft.core.tensor_ir.ir import Bitcast, Cast, Expression
from graft.core.types import is_custom, parse_custom
from graft.datatypes.formats import Format
from graft.datatypes.registry import DatatypeRegistry


def decoded(dtype: str, format: Format) -> str:
    """Return the decoded type of a custom type."""
    name, bits = parse_custom(dtype)
    return f"custom[{name}__{bits}]{32 if format.carrier == 'float32' else 64}"


@cache
def encoded(dtype: str) -> str | None:
    """Return the custom type that a decoded type stands for, None if ``dtype`` is no decoded type."""
    if not is_custom(dtype):
        return None
    name, separator, bits = parse_custom(dtype)[0].partition("__")
    return f"custom[{name}]{bits}" if separator else None


def converted(value: Expression, dtype: str) -> Expression:
    """Return a cast; decoding and encoding again is nothing, and decoding to the carrier itself keeps the bits."""
    if value.type.dtype == dtype:
        return value
    if isinstance(value, Cast) and value.value.type.dtype == dtype and "__" in value.dtype and is_custom(dtype):
        return value.value
    if encoded(value.type.dtype) is not None and dtype in ("float32", "float64"):
        # A decoded number's bits are its carrier's.
        value = Bitcast(value, "float32" if parse_custom(value.type.dtype)[1] == 32 else "float64")
        return value if value.dtype == dtype else Cast(value, dtype)
    return Cast(value, dtype)


def format_of(registry: DatatypeRegistry, dtype: str) -> Format | None:
    """Return the format of a decoded type; None for every other type."""
    custom = encoded(dtype)
    return None if custom is None else registry.format(custom)


def carried(registry: DatatypeRegistry, dtype: str, contents: np.ndarray) -> np.ndarray:
    """Return a constant as programs have it: of a decoded type, whose contents are bits, as numbers of the carrier."""
    format = format_of(registry, dtype)
    return contents if format is None else contents.view(format.carrier)
