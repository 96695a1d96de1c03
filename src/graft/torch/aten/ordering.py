"""Rows of ATen operators that put the elements of an axis in order, or pick one by its rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graft.torch.aten.builder import HALVES, Builder, Extent, Tensor, axis_of, numbers, onnx_type, require

aten = torch.ops.aten
Row = Callable[..., Any]


def _best(b: Builder, x: Tensor, count: Extent, axis: int, largest: bool) -> list[Tensor]:
    """Return the best elements of an axis in order, and their places, the first of equals first; NaN is the largest."""
    kind = torch.uint8 if x.dtype == torch.bool else torch.float32 if x.dtype in HALVES else x.dtype
    given = b.cast(x, kind)
    key = _rank_of_floats(b, given) if x.is_float else given
    extents = list(x.extents)
    extents[axis] = count
    values, places = b.many(
        "TopK", [key, b.extent(count)], [key.dtype, torch.int64], axis=axis, largest=int(largest), sorted=1
    )
    if x.is_float:
        values = b.op("GatherElements", given, places, axis=axis)
    return [
        b.cast(Tensor(values.value, kind, tuple(extents)), x.dtype),
        Tensor(places.value, torch.int64, tuple(extents)),
    ]


def _rank_of_floats(b: Builder, x: Tensor) -> Tensor:
    """Return integers in the order of floats, both zeros the same, NaN the largest: ONNX leaves its order open."""
    kind = torch.int64 if x.dtype == torch.float64 else torch.int32
    most = b.constant(torch.iinfo(kind).max, kind)
    bits = b.op("BitCast", x, dtype=kind, to=onnx_type(kind).value)
    size = b.op("BitwiseAnd", bits, most)
    signed = b.where(b.compare("Less", bits, b.constant(0, kind)), b.op("Neg", size), size)
    return b.where(b.op("IsNaN", x, dtype=torch.bool), most, signed)


def best(
    b: Builder, out: Any, x: Tensor, count: Any, axis: int = -1, largest: bool = True, is_sorted: bool = True
) -> list[Tensor]:
    require(x.rank, "the best of a scalar")
    return _best(b, x, count, axis_of(axis, x.rank), largest)


def ordered(b: Builder, out: Any, x: Tensor, axis: int = -1, descending: bool = False) -> list[Tensor]:
    if not x.rank:
        return [b.op("Identity", x), b.op("Identity", b.constant(0, torch.int64))]
    axis = axis_of(axis, x.rank)
    return _best(b, x, x.extents[axis], axis, descending)


def ordered_stably(
    b: Builder, out: Any, x: Tensor, *, stable: Any = None, dim: int = -1, descending: bool = False
) -> list[Tensor]:
    return ordered(b, out, x, dim, descending)


def _last(b: Builder, x: Tensor, rank: int, axis: int, keep: bool) -> list[Tensor]:
    """Return the element of an axis with so many that are not larger, and its place."""
    found = []
    for one in _best(b, x, rank, axis, False):
        cut = b.op("Slice", one, b.integers([rank - 1]), b.integers([rank]), b.integers([axis]))
        found.append(cut if keep else b.squeezed(Tensor(cut.value, cut.dtype, None), [axis]))
    return found


def with_rank(b: Builder, out: Any, x: Tensor, rank: Any, axis: int = -1, keep: bool = False) -> list[Tensor]:
    require(x.rank, "an element of a scalar")
    numbers([rank], "which element is wanted")
    return _last(b, x, rank, axis_of(axis, x.rank), keep)


def median(b: Builder, out: Any, x: Tensor) -> Tensor:
    (count,) = numbers([torch.Size(x.extents).numel()], "how many elements have a median")
    require(count, "the median of no elements")
    flat = b.reshaped(x, [count])
    found = _last(b, flat, (count + 1) // 2, 0, False)[0]
    if not x.is_float:
        return found
    holes = b.op("ReduceMax", b.cast(b.op("IsNaN", flat, dtype=torch.bool), torch.uint8), b.integers([0]), keepdims=0)
    return b.where(b.cast(holes, torch.bool), b.constant(float("nan"), x.dtype), found)


ROWS: dict[Any, Row] = {
    aten.kthvalue.default: with_rank,
    aten.median.default: median,
    aten.sort.default: ordered,
    aten.sort.stable: ordered_stably,
    aten.topk.default: best,
}
"""Operators by overload."""
