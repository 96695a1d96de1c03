"""The operations of the machine that runs scheduled functions: expressions without memory, and which lanes are on.

int64 and bool scalars are Python's own, all else is NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graft.core.tensor_ir import ir, numerics
from graft.core.tensor_ir.numerics import Array
from graft.core.types import BOOL, INT64, Type


def active_lanes(places: list[Any], mask: Any, lanes: int) -> tuple[list[Any] | None, Array | None]:
    """Return the indices of the lanes that are on (None if there are none), and which those are (None for all)."""
    if mask is True or (mask is not False and np.all(mask)):
        return ([np.broadcast_to(place, lanes) for place in places] if lanes > 1 else places), None
    if mask is False or not np.any(mask):
        return None, None
    return [np.broadcast_to(place, lanes)[mask] for place in places], mask


def elements(places: Sequence[Any], lanes: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the elements of an access."""
    if lanes == 1:
        yield tuple(int(np.reshape(place, ())) for place in places)
    else:
        yield from zip(*(np.asarray(place).tolist() for place in places), strict=True)


def _wrap(value: int) -> int:
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _truncating(left: int, right: int) -> int:
    if right == 0:  # divides as 1, as in generated code
        return left
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


INDEX_OPERATIONS: dict[str, Callable[[int, int], int | bool]] = {
    "add": lambda left, right: _wrap(left + right),
    "sub": lambda left, right: _wrap(left - right),
    "mul": lambda left, right: _wrap(left * right),
    "div": lambda left, right: _wrap(_truncating(left, right)),
    "mod": lambda left, right: left - _truncating(left, right) * right if right else 0,
    "min": min,
    "max": max,
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "le": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "ge": lambda left, right: left >= right,
}
"""The operations on int64 scalars."""


def pure(expression: ir.Expression) -> Callable[..., Array]:
    """Return the function on arrays behind an operation that touches no memory."""
    return _PURE[type(expression)](expression)


def _shuffled(node: ir.Shuffle) -> Callable[..., Array]:
    lanes, sizes = list(node.lanes), [vector.type.lanes for vector in node.vectors]
    shape = (len(lanes),) if len(lanes) > 1 else ()

    def shuffled(*arrays: Array) -> Array:
        whole = [np.broadcast_to(array, size) for array, size in zip(arrays, sizes, strict=True)]  # constants are one
        return np.asarray(np.concatenate(whole)[lanes].reshape(shape))

    return shuffled


_PURE: dict[type, Callable[..., Callable[..., Array]]] = {
    ir.Broadcast: lambda e: lambda value: np.repeat(np.reshape(value, 1), e.lanes),
    ir.Unary: lambda e: lambda array: numerics.unary(e.operator, array, e.type.dtype),
    ir.Binary: lambda e: lambda left, right: numerics.binary(e.operator, left, right),
    ir.Select: lambda e: lambda condition, on_true, on_false: np.asarray(np.where(condition, on_true, on_false)),
    ir.Cast: lambda e: lambda array: numerics.cast(array, e.value.type.dtype, e.dtype),
    ir.Bitcast: lambda e: lambda array: numerics.bitcast(array, e.dtype),
    ir.Intrinsic: lambda e: lambda *arrays: numerics.intrinsic(e.name, arrays, e.type.dtype),
    ir.Shuffle: _shuffled,
    ir.Horizontal: lambda e: lambda array: numerics.reduce(e.operator, array.reshape(-1), (0,)),
}
"""The function behind each operation; an access, a ramp, a constant and a variable are none."""


def as_array(value: Any, kind: Type) -> Array:
    """Return a scalar or vector as an array of its type."""
    return np.asarray(value, np.int64 if kind.dtype == "int64" else None)


def as_python(value: Array, kind: Type) -> Any:
    """Return int64 and bool scalars as Python's own, everything else as it is."""
    if kind == INT64:
        return int(value)
    return bool(value) if kind == BOOL else value
