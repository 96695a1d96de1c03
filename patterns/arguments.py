"""Arguments of demands, checked where a pattern is built: a mistake here would never match, and say nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import EllipsisType
from typing import TypeAlias

from graft.errors import PatternError

DTYPES = (
    "bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64", "int2", "uint2",
    "float16", "bfloat16", "float32", "float64", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "float8e8m0", "float4e2m1", "complex64", "complex128", "string",
)  # fmt: skip
"""ONNX's element types as Graft names them; kept here so that this module stays cheap to import."""
OTHER_NAMES = {"float": "float32", "double": "float64", "half": "float16"}

Extent: TypeAlias = "int | str | EllipsisType | None"


def require_dtypes(dtypes: tuple[str, ...]) -> tuple[str, ...]:
    """Return element types; raise PatternError for what is none."""
    if not dtypes:
        raise PatternError("has_dtype takes one or more element types, as in has_dtype('float32')")
    for dtype in dtypes:
        if not isinstance(dtype, str) or (dtype not in DTYPES and not dtype.startswith("custom[")):
            text = str(dtype).lower()
            near = [OTHER_NAMES[text]] if text in OTHER_NAMES else difflib.get_close_matches(text, DTYPES, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"the types are {', '.join(DTYPES)} and custom ones"
            raise PatternError(f"has_dtype: {dtype!r} is not an element type; {hint}", dtype=dtype)
    return dtypes


def require_dimensions(shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """Return the dimensions of a shape; raise PatternError for what is none."""
    if len(shape) == 1 and isinstance(shape[0], list | tuple):
        inner = ", ".join("..." if one is ... else repr(one) for one in shape[0])
        raise PatternError(f"has_shape takes the dimensions one by one; write has_shape({inner})")
    for one in shape:
        is_said = isinstance(one, str) and _is_dimension(one)
        if not (one is None or one is ... or is_said or (isinstance(one, int) and one >= 0)):
            raise PatternError(
                f"has_shape: {one!r} is not a dimension; write a number, a name, an expression of names, None for any "
                "or ... for several"
            )
    if shape.count(...) > 1:
        raise PatternError("a shape has at most one '...'")
    return shape


def listed(values: Iterable[object]) -> str:
    """Return values as a message prints them."""
    return ", ".join(repr(value) for value in values) or "nothing"


def _is_dimension(text: str) -> bool:
    # Imported here: a plugin's patterns are built where a program is deployed without the compiler, too.
    from graft.core.affine.text import parsed

    return parsed(text) is not None
