"""Rows of ATen operators that pick elements by indices, and put or add them there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graft.torch.aten.builder import HALVES, Builder, Extent, Tensor, axis_of, numbers, require
from graft.torch.aten.movement import Row, cut

aten = torch.ops.aten
FEW = 64
"""How many times as many rows a table has as are added to it, from where on a kernel that reads all is slower."""
WIDE = {torch.bool: torch.uint8, **dict.fromkeys(HALVES, torch.float32)}
"""What is computed with in place of a type where elements meet at one place."""


def gathered(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if not x.rank or not index.rank:
        require(x.rank == index.rank == 0, "a scalar with indices of another rank")
        return b.op("Identity", x)
    return b.from_front(b.op("GatherElements", x, index, axis=axis_of(axis, x.rank)))


def rows_of(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor) -> Tensor:
    if not x.rank:
        return b.op("Identity", x)
    if not index.rank:
        index = b.unsqueezed(index, [0])
    return b.from_front(b.op("Gather", x, index, axis=axis_of(axis, x.rank)))


def embedding(b: Builder, out: Any, weight: Tensor, index: Tensor, *_: Any, **named: Any) -> Tensor:
    return b.from_front(b.op("Gather", weight, index, axis=0))


def scattered(reduction: str) -> Row:
    """Return the row of elements that are put to places, or added there."""

    def row(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, source: Any, **named: Any) -> Tensor:
        how = {None: reduction, "add": "add", "multiply": "mul"}[named.get("reduce")]
        if how != "none" and x.dtype in (torch.bool, *HALVES):
            wide = b.cast(x, WIDE[x.dtype])
            given = b.cast(source, wide.dtype) if isinstance(source, Tensor) else source
            if x.dtype == torch.bool:  # a sum is whether any is true, a product whether all are
                how = {"add": "max", "mul": "min"}.get(how, how)
            return b.cast(scattered(how)(b, out, wide, axis, index, given), x.dtype)
        if isinstance(source, Tensor):
            require(source.rank == index.rank, "a source of another rank")
            if source.extents != index.extents:
                for place in range(index.rank):
                    shape = (*index.extents[: place + 1], *source.extents[place + 1 :])
                    source = Tensor(cut(b, source, place, 0, index.extents[place]).value, source.dtype, shape)
        else:
            source = b.expanded(b.constant(source, x.dtype), index.shape or ())
        if not x.rank or not index.rank:
            require(x.rank == index.rank == 0, "a scalar with indices of another rank")
            found = b.op(
                "ScatterElements", b.unsqueezed(x, [0]), b.unsqueezed(index, [0]), b.unsqueezed(source, [0]),
                axis=0, reduction=how,
            )  # fmt: skip
            return b.squeezed(b.from_front(found))
        found = b.op("ScatterElements", x, index, source, axis=axis_of(axis, x.rank), reduction=how)
        return b.from_front(found)

    return row


def scatter_reduced(
    b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Sums, products, means and extremes at places; what was there counts unless ``include_self`` is False."""
    require(x.rank and index.rank and source.rank, "a scalar")
    if x.dtype in (torch.bool, *HALVES):
        wide, given = b.cast(x, WIDE[x.dtype]), b.cast(source, WIDE[x.dtype])
        if x.dtype == torch.bool:
            reduce = {"sum": "amax", "prod": "amin"}.get(reduce, reduce)
            require(reduce != "mean", "means of bools")
        return b.cast(scatter_reduced(b, out, wide, axis, index, given, reduce, include_self=include_self), x.dtype)
    add = scattered("add")
    one = b.constant(1, x.dtype)
    start = x
    if not include_self:
        kind = (torch.finfo if x.is_float else torch.iinfo)(x.dtype)
        low, high = (-math.inf, math.inf) if x.is_float else (kind.min, kind.max)
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]
        start = Tensor(scattered("none")(b, out, x, axis, index, neutral).value, x.dtype, x.shape)
    how = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    found = scattered(how)(b, out, start, axis, index, source)
    if reduce != "mean":
        return found  # type: ignore[no-any-return]
    nothing = Tensor(b.expanded(one if include_self else b.constant(0, x.dtype), x.extents).value, x.dtype, x.shape)
    count = b.op("Max", add(b, out, nothing, axis, index, 1), one)
    if x.is_float:
        return b.op("Div", found, count)
    return b.op("Div", b.op("Sub", found, b.op("Mod", found, count)), count)  # rounded down


def index_reduced(
    b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    require(x.rank and index.rank == 1, "a scalar")
    axis = axis_of(axis, x.rank)
    wide = b.unsqueezed(index, [place for place in range(x.rank) if place != axis])
    places = Tensor(b.expanded(wide, source.extents).value, index.dtype, source.shape)
    return scatter_reduced(b, out, x, axis, places, source, reduce, include_self=include_self)


def _masked_places(b: Builder, mask: Tensor, shape: Sequence[Extent]) -> tuple[Tensor, Tensor]:
    """Return a mask of a shape, and of the flattened how many elements before each it has."""
    wide = b.expanded(mask, shape)
    flat = b.reshaped(b.cast(wide, torch.int64), [-1])
    return wide, b.op("Sub", b.op("CumSum", flat, b.squeezed(b.integers([0]))), b.constant(1, torch.int64))


def put_masked_backward(b: Builder, out: Any, grad: Tensor, mask: Tensor, sizes: Sequence[Extent]) -> Tensor:
    """The gradients where the mask says so, at the front; one place more takes those where it does not."""
    (count,) = numbers([math.prod(out.shape)], "how many elements there are")
    wide, places = _masked_places(b, mask, grad.extents)
    zero = b.constant(0, grad.dtype)
    kept = b.reshaped(Tensor(b.where(wide, grad, zero).value, grad.dtype, None), [math.prod(grad.extents)])
    there = b.where(b.reshaped(wide, [-1]), places, b.constant(count, torch.int64))
    nothing = b.expanded(zero, [count + 1])
    found = scattered("add")(b, out, nothing, 0, Tensor(there.value, torch.int64, kept.shape), kept)
    return b.reshaped(cut(b, found, 0, 0, count), out.shape)


def put_masked(b: Builder, out: Any, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of the source in turn where the mask says so."""
    wide, places = _masked_places(b, mask, out.shape)
    found = b.op("Gather", b.reshaped(source, [-1]), b.op("Max", places, b.constant(0, torch.int64)), axis=0)
    return b.where(wide, b.reshaped(Tensor(found.value, x.dtype, None), out.shape), b.expanded(x, out.shape))


def _index_parts(b: Builder, x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], list[int], Tensor]:
    """Return the axes that are indexed, the others, and the indices broadcast and joined along a new last axis."""
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    require(given, "no axis is indexed")
    require(all(one.dtype in (torch.int64, torch.int32) for _, one in given), "a mask as an index")
    axes = [axis for axis, _ in given]
    common = torch.broadcast_shapes(*(one.extents for _, one in given))
    parts = [b.unsqueezed(b.expanded(b.cast(one, torch.int64), common), [len(common)]) for _, one in given]
    joined_parts = b.concatenated(parts, len(common))
    rest = [axis for axis in range(x.rank) if axis not in axes]
    return axes, rest, Tensor(joined_parts.value, torch.int64, (*common, len(axes)))


def indexed(b: Builder, out: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if len(given) == 1 and given[0][1].dtype in (torch.int64, torch.int32):
        return b.op("Gather", x, given[0][1], axis=given[0][0])
    axes, rest, places = _index_parts(b, x, indices)
    found = b.op("GatherND", b.transposed(x, [*axes, *rest]), places)
    count = places.rank - 1
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0] > 0:  # adjacent: the result stands in their place
        order = [*range(count, count + axes[0]), *range(count), *range(count + axes[0], count + len(rest))]
        return b.op("Transpose", found, perm=order)
    return found


def put_indexed(
    b: Builder, out: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False,
    from_front: bool = False,
) -> Tensor:  # fmt: skip
    given = [one for one in indices if one is not None]
    if len(given) == 1 and given[0].dtype == torch.bool and not accumulate and values.rank == 0:
        require(indices[0] is given[0], "a mask behind other axes")
        mask = b.unsqueezed(given[0], list(range(given[0].rank, x.rank)))
        return b.where(mask, b.cast(values, x.dtype), x)
    count = math.prod(one for given_one in given for one in given_one.extents)
    are_few = isinstance(count, int) and isinstance(x.extents[0], int) and x.extents[0] > FEW * count
    require(not (accumulate and are_few), "few rows are added to many: PyTorch writes those alone")
    if accumulate and x.dtype in HALVES:
        wide, given_values = b.cast(x, torch.float32), b.cast(values, torch.float32)
        return b.cast(put_indexed(b, out, wide, indices, given_values, True, from_front), x.dtype)
    require(not accumulate or x.dtype != torch.bool, "sums at one place of bools")
    axes, rest, places = _index_parts(b, x, indices)
    common = places.extents[:-1]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    order = [*axes, *rest]
    shape = [*common, *(x.extents[axis] for axis in rest)]
    if adjacent and axes[0] > 0:
        front = [x.extents[axis] for axis in rest[: axes[0]]]
        wide = b.expanded(b.cast(values, x.dtype), [*front, *common, *(x.extents[axis] for axis in rest[axes[0] :])])
        ranks = list(range(len(shape)))
        moved = ranks[len(front) : len(front) + len(common)] + ranks[: len(front)] + ranks[len(front) + len(common) :]
        updates = b.transposed(wide, moved)
    else:
        updates = b.expanded(b.cast(values, x.dtype), shape)
    reduction = "add" if accumulate else "none"
    found = b.op("ScatterND", b.transposed(x, order), places, updates, reduction=reduction)
    found = b.from_front(found) if from_front else found
    return b.transposed(Tensor(found.value, x.dtype, None), np.argsort(order).tolist())


def put_rows(accumulate: bool) -> Row:
    """Return the row of rows of an axis that are put to places of it, or added there."""

    def row(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
        axis, shape = axis_of(axis, x.rank), x.extents
        x, index, source = (one if one.rank else b.unsqueezed(one, [0]) for one in (x, index, source))
        if alpha != 1:
            source = Tensor(b.op("Mul", source, b.constant(alpha, x.dtype)).value, x.dtype, source.shape)
        return b.reshaped(put_indexed(b, out, x, [*[None] * axis, index], source, accumulate, True), shape)

    return row


def unpooled(b: Builder, out: Any, x: Tensor, index: Tensor, size: Sequence[Extent], *_: Any) -> Tensor:
    """The elements of each channel at the places of an image of zeros that their indices say."""
    front = x.extents[: x.rank - len(size)]
    flat, places = (b.reshaped(one, [*front, math.prod(x.extents[len(front) :])]) for one in (x, index))
    nothing = b.expanded(b.constant(0, x.dtype), [*front, math.prod(out.shape[len(front) :])])
    return b.reshaped(scattered("none")(b, out, nothing, len(front), places, flat), out.shape)


ROWS: dict[Any, Row] = {
    aten.embedding.default: embedding,
    aten.gather.default: gathered,
    aten.index.Tensor: indexed,
    aten.index_add.default: put_rows(True),
    aten.index_copy.default: put_rows(False),
    aten.index_put.default: put_indexed,
    aten.index_reduce.default: index_reduced,
    aten.index_select.default: rows_of,
    aten.masked_scatter.default: put_masked,
    aten.masked_scatter_backward.default: put_masked_backward,
    aten.max_unpool2d.default: unpooled,
    aten.max_unpool3d.default: unpooled,
    aten.scatter.reduce: scattered("none"),
    aten.scatter.src: scattered("none"),
    aten.scatter.value: scattered("none"),
    aten.scatter.value_reduce: scattered("none"),
    aten.scatter_add.default: scattered("add"),
    aten.scatter_reduce.two: scatter_reduced,
}
"""Operators by overload."""
