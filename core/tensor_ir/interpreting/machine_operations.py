"""The operations of the machine that runs scheduled functions: expressions without memory, and which lanes are on.

int64 and bool scalars are Python's own, all else is NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import numpy as np

from graft.core.tensor_ir import numerics
from graft.core.tensor_ir.ir import (
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Constant,
    Expression,
    Horizontal,
    Intrinsic,
    Load,
    Ramp,
    Select,
    Shuffle,
    Unary,
    Variable,
)
from graft.core.tensor_ir.numerics import Array
from graft.core.types import BOOL, INT64, Type


def active_lanes(places: list[Any], mask: Any, lanes: int) -> tuple[list[Any] | None, Array | None]:
    """Return the indices of the lanes that are on (None if there are none), and which those are (None for all)."""
    if mask is True or (mask is not False and np.all(mask)):
        return ([np.broadcast_to(place, lanes) for place in places] if lanes > 1 else places), None
    if not np.any(mask):
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
    if right == 0:
        return 0
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


def pure(expression: Expression) -> Callable[..., Array]:
    """Return the function on arrays behind an operation that touches no memory."""
    match expression:
        case Broadcast(_, lanes):
            return lambda value: np.repeat(np.reshape(value, 1), lanes)
        case Unary():
            return lambda array: numerics.unary(expression.operator, array, expression.type.dtype)
        case Binary():
            return lambda left, right: numerics.binary(expression.operator, left, right)
        case Select():
            return lambda condition, on_true, on_false: np.asarray(np.where(condition, on_true, on_false))
        case Cast(value, dtype):
            return lambda array: numerics.cast(array, value.type.dtype, dtype)
        case Bitcast(_, dtype):
            return lambda array: numerics.bitcast(array, dtype)
        case Intrinsic(name, _, kind):
            return lambda *arrays: numerics.intrinsic(name, arrays, kind.dtype)
        case Shuffle(_, lanes):
            return lambda *arrays: np.concatenate([array.reshape(-1) for array in arrays])[list(lanes)].reshape(
                (len(lanes),) if len(lanes) > 1 else ()
            )
        case Horizontal():
            return lambda array: numerics.reduce(expression.operator, array.reshape(-1), (0,))
        case Constant() | Variable() | Load() | Ramp():
            raise AssertionError(f"{type(expression).__name__} is not a pure operation")
        case _:
            assert_never(expression)


def as_array(value: Any, kind: Type) -> Array:
    """Return a scalar or vector as an array of its type."""
    return np.asarray(value, np.int64 if kind.dtype == "int64" else None)


def as_python(value: Array, kind: Type) -> Any:
    """Return int64 and bool scalars as Python's own, everything else as it is."""
    if kind == INT64:
        return int(value)
    return bool(value) if kind == BOOL else value
