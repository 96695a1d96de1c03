"""Rows of ATen operators that move, cut, join, repeat, pick, put and make elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from graft.torch.aten.builder import HALVES, Builder, Extent, Tensor, axes_of, axis_of, is_symbolic, numbers, require

aten, prims = torch.ops.aten, torch.ops.prims
Row = Callable[..., Any]
LAST = 2**63 - 1
FEW = 64
"""How many times as many rows a table has as are added to it, from where on a kernel that reads all is slower."""
WIDE = {torch.bool: torch.uint8, **dict.fromkeys(HALVES, torch.float32)}
"""What is computed with in place of a type where elements meet at one place."""

# ---- Shapes ----


def reshaped(b: Builder, out: Any, x: Tensor, *_: Any, **named: Any) -> Tensor:
    return b.reshaped(x, out.shape)


def permuted(b: Builder, out: Any, x: Tensor, order: Sequence[int]) -> Tensor:
    return b.op("Transpose", x, perm=[axis_of(axis, x.rank) for axis in order])


def exchanged(b: Builder, out: Any, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.rank))
    if order:
        first, second = axis_of(first, x.rank), axis_of(second, x.rank)
        order[first], order[second] = second, first
    return b.op("Transpose", x, perm=order)


def matrix_transposed(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Transpose", x, perm=list(reversed(range(x.rank))))


def expanded(b: Builder, out: Any, x: Tensor, *_: Any, **named: Any) -> Tensor:
    return b.expanded(x, out.shape)


def flipped(b: Builder, out: Any, x: Tensor, axes: Sequence[int]) -> Tensor:
    places = axes_of(axes, x.rank) if axes else []
    if not places:
        return b.op("Identity", x)
    minus = b.integers([-1] * len(places))
    return b.op("Slice", x, minus, b.integers([-LAST] * len(places)), b.integers(places), minus)


def repeated(b: Builder, out: Any, x: Tensor, repeats: Sequence[Extent]) -> Tensor:
    wide = b.reshaped(x, [*[1] * (len(repeats) - x.rank), *x.extents])
    return b.op("Tile", wide, b.extents(list(repeats)))


# ---- Parts ----


def cut(b: Builder, x: Tensor, axis: int, start: Extent, end: Extent, step: int = 1) -> Tensor:
    """Return a slice of one axis."""
    return b.op("Slice", x, b.extent(start), b.extent(end), b.integers([axis]), b.integers([step]))


def sliced(b: Builder, out: Any, x: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    axis = axis_of(axis, x.rank)
    return cut(b, x, axis, 0 if start is None else start, LAST if end is None else end, step)


def selected(b: Builder, out: Any, x: Tensor, axis: int, index: Extent) -> Tensor:
    axis = axis_of(axis, x.rank)
    return b.op("Gather", x, b.squeezed(b.extent(index)), axis=axis)


def joined(b: Builder, out: Any, parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    axis = axis_of(axis, len(out.shape))
    kept = [one for one in parts if one.extents != (0,) or len(out.shape) == 1]  # PyTorch leaves these out
    given = [b.cast(one, out.dtype) for one in kept]
    return b.concatenated(given, axis)


def diagonal(b: Builder, out: Any, x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    first, second = axis_of(first, x.rank), axis_of(second, x.rank)
    rows, columns = numbers((x.extents[first], x.extents[second]), "the extent of a diagonal")
    (length,) = numbers([out.shape[-1]], "the length of a diagonal")
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    flat = b.reshaped(b.transposed(x, [*rest, first, second]), [*(x.extents[axis] for axis in rest), rows * columns])
    return b.op("Gather", flat, b.integers(_diagonal_places(offset, columns, length)), axis=len(rest))


def _diagonal_places(offset: int, columns: int, length: int) -> list[int]:
    """Return where the elements of a diagonal are in a flattened matrix."""
    start = max(offset, 0) + max(-offset, 0) * columns
    return [start + place * (columns + 1) for place in range(length)]


def windows(b: Builder, out: Any, x: Tensor, axis: int, size: int, step: int) -> Tensor:
    require(x.rank, "windows of a scalar")
    axis = axis_of(axis, x.rank)
    (extent,) = numbers([x.extents[axis]], "the extent of the axis of windows")
    count = (extent - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    found = b.op("Gather", x, b.array(places, torch.int64), axis=axis)
    order = [*range(axis + 1), *range(axis + 2, x.rank + 1), axis + 1]
    return b.op("Transpose", found, perm=order)


def put_diagonal(
    b: Builder, out: Any, x: Tensor, source: Tensor, offset: int = 0, first: int = 0, second: int = 1
) -> Tensor:
    first, second = axis_of(first, x.rank), axis_of(second, x.rank)
    rows, columns = numbers((x.extents[first], x.extents[second]), "the extent of a diagonal")
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    order = [*rest, first, second]
    moved = b.transposed(x, order)
    places = _diagonal_places(offset, columns, *numbers(source.extents[-1:], "the length of a diagonal"))
    flat = b.reshaped(moved, [*moved.extents[:-2], rows * columns])
    found = _put_rows(b, flat, len(rest), b.integers(places), b.cast(source, x.dtype))
    return b.transposed(b.reshaped(found, moved.extents), np.argsort(order).tolist())


def put_slice(
    b: Builder, out: Any, x: Tensor, source: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = axis_of(axis, x.rank)
    source = b.cast(source, x.dtype)
    if is_symbolic(one for one in (x.extents[axis], start, end) if one is not None):
        require(step == 1, "where a slice with steps begins and ends is not known before the call")
        return _put_from(b, x, axis, 0 if start is None else start, source)
    places = range(x.extents[axis])[slice(start, end, step)]
    if len(places) == 0:
        return b.op("Identity", x)
    if step == 1:
        parts = [cut(b, x, axis, 0, places[0])] if places[0] > 0 else []
        parts.append(source)
        parts += [cut(b, x, axis, places[-1] + 1, LAST)] if places[-1] + 1 < x.extents[axis] else []
        return b.concatenated(parts, axis) if len(parts) > 1 else b.op("Identity", source)
    return _put_rows(b, x, axis, b.integers(list(places)), source)


def _put_from(b: Builder, x: Tensor, axis: int, start: Extent, source: Tensor) -> Tensor:
    """Put a source behind a place of an axis that varies: each element is chosen by its own place, in one pass."""
    length, count = x.extents[axis], source.extents[axis]
    require(statically_known_true(count > 0), "whether a slice has elements is not known before the call")
    zero = b.constant(0, torch.int64)
    begin, end, size = (b.squeezed(b.extent(one)) for one in (start, length, count))
    if not statically_known_true(start >= 0):
        from_back = b.op("Max", b.op("Add", begin, end), zero)
        begin = b.where(b.compare("Less", begin, zero), from_back, begin)
    places = b.op("Sub", b.op("Range", zero, end, b.constant(1, torch.int64)), begin)
    inside = b.op("And", b.compare("GreaterOrEqual", places, zero), b.compare("Less", places, size))
    if not isinstance(count, int) or count > 1:
        last = b.op("Sub", size, b.constant(1, torch.int64))
        source = b.op("Gather", source, b.op("Clip", places, zero, last), axis=axis)
    return b.where(b.reshaped(inside, [length, *[1] * (x.rank - axis - 1)]), source, x)


def put_selected(b: Builder, out: Any, x: Tensor, source: Tensor, axis: int, index: Extent) -> Tensor:
    axis = axis_of(axis, x.rank)
    if is_symbolic([index]):
        is_there = statically_known_true(index >= -x.extents[axis]) and statically_known_true(index < x.extents[axis])
        require(is_there, "whether an index is beyond its axis is not known before the call")
    end = None if is_symbolic([index]) or index == -1 else index + 1
    return put_slice(b, out, x, b.unsqueezed(source, [axis]), axis, index, end)


def copied(b: Builder, out: Any, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    return b.expanded(b.cast(source, x.dtype), x.extents)


def _put_rows(b: Builder, x: Tensor, axis: int, places: Tensor, source: Tensor, reduction: str = "none") -> Tensor:
    """Put whole rows of an axis to places of it."""
    order = [axis, *(one for one in range(x.rank) if one != axis)]
    rows = b.unsqueezed(places, [1])
    found = b.op("ScatterND", b.transposed(x, order), rows, b.transposed(source, order), reduction=reduction)
    return b.transposed(Tensor(found.value, x.dtype, None), np.argsort(order).tolist())


def triangle(upper: int) -> Row:
    """Return the row of the upper or lower triangle of matrices."""

    def row(b: Builder, out: Any, x: Tensor, diagonal: int = 0) -> Tensor:
        return b.op("Trilu", x, b.squeezed(b.extents([diagonal])), upper=upper)

    return row


def padded(b: Builder, out: Any, x: Tensor, pads: Sequence[Extent], value: Any = 0) -> Tensor:
    before, after = list(pads[0::2]), list(pads[1::2])
    axes = [x.rank - 1 - place for place in range(len(before))]
    fill = b.constant(value if x.dtype != torch.bool else bool(value), x.dtype)
    if not axes:
        return b.op("Identity", x)
    if not is_symbolic(pads) and min(pads) < 0:  # ONNX's may be negative, too; what is left is then cut
        for axis, front, back in zip(axes, before, after, strict=True):
            if front < 0 or back < 0:
                start, end = max(-front, 0), x.extents[axis] + min(back, 0)
                shape = [*x.extents]
                shape[axis] = end - start
                found = cut(b, x, axis, start, end)
                x = Tensor(found.value, x.dtype, tuple(shape))
        before, after = [max(one, 0) for one in before], [max(one, 0) for one in after]
    return b.op("Pad", x, b.extents([*before, *after]), fill, b.integers(axes))


# ---- Indices ----


def gathered(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if not x.rank or not index.rank:
        require(x.rank == index.rank == 0, "a scalar with indices of another rank")
        return b.op("Identity", x)
    return b.op("GatherElements", x, index, axis=axis_of(axis, x.rank))


def rows_of(b: Builder, out: Any, x: Tensor, axis: int, index: Tensor) -> Tensor:
    if not x.rank:
        return b.op("Identity", x)
    if not index.rank:
        index = b.unsqueezed(index, [0])
    return b.op("Gather", x, index, axis=axis_of(axis, x.rank))


def embedding(b: Builder, out: Any, weight: Tensor, index: Tensor, *_: Any, **named: Any) -> Tensor:
    return b.op("Gather", weight, index, axis=0)


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
            return b.squeezed(found)
        return b.op("ScatterElements", x, index, source, axis=axis_of(axis, x.rank), reduction=how)

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
    b: Builder, out: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
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
        return b.cast(put_indexed(b, out, wide, indices, given_values, True), x.dtype)
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
    return b.transposed(Tensor(found.value, x.dtype, None), np.argsort(order).tolist())


# ---- Made ----


def filled(b: Builder, out: Any, shape: Any, value: Any, **named: Any) -> Tensor:
    return b.expanded(b.constant(value, out.dtype), out.shape)


def unwritten(b: Builder, out: Any, *_: Any, **named: Any) -> Tensor:
    """Memory with nothing in it: zeros, which are as good as any."""
    return b.expanded(b.constant(0, out.dtype), out.shape)


def filled_like(b: Builder, out: Any, x: Tensor, *arguments: Any, **named: Any) -> Tensor:
    return b.expanded(b.constant(arguments[-1], out.dtype), out.shape)


def number(b: Builder, out: Any, value: Any, **named: Any) -> Tensor:
    return b.op("Identity", b.constant(value, out.dtype))


def counted(b: Builder, out: Any, length: Extent, *, start: Any = 0, step: Any = 1, **named: Any) -> Tensor:
    if not is_symbolic([length, start, step]):
        require(out.dtype in (torch.int64, torch.int32), "numbers in a row of another type")
        return b.op("Identity", b.array(start + step * np.arange(length, dtype=np.int64), out.dtype))
    first = b.squeezed(b.extent(start))
    end = b.op("Add", first, b.op("Mul", b.squeezed(b.extent(length)), b.squeezed(b.extent(step))))
    return b.cast(b.op("Range", first, end, b.squeezed(b.extent(step))), out.dtype)


def arranged(b: Builder, out: Any, start: Any, end: Any, step: Any = 1, **named: Any) -> Tensor:
    if any(isinstance(one, torch.SymInt) for one in (start, end, step)):
        require(not isinstance(start, float) and not isinstance(step, float), "numbers in a row that vary by fractions")
        return counted(b, out, out.shape[0], start=start, step=step)
    numbers([one for one in (start, end, step) if not isinstance(one, float)], "a limit")
    require(all(math.isfinite(one) for one in (start, end, step)), "limits that are not finite")
    values = torch.arange(start, end, step, dtype=out.dtype if out.dtype != torch.bfloat16 else torch.float32)
    return b.op("Identity", b.array(values.numpy(), out.dtype))


ROWS: dict[Any, Row] = {
    aten._unsafe_view.default: reshaped,
    aten.arange.start_step: arranged,
    aten.cat.default: joined,
    aten.copy.default: copied,
    aten.constant_pad_nd.default: padded,
    aten.diagonal.default: diagonal,
    aten.diagonal_scatter.default: put_diagonal,
    aten.embedding.default: embedding,
    aten.empty.memory_format: unwritten,
    aten._efficientzerotensor.default: unwritten,
    aten.empty_permuted.default: unwritten,
    aten.empty_strided.default: unwritten,
    aten.new_empty_strided.default: unwritten,
    aten.expand.default: expanded,
    aten.flip.default: flipped,
    aten.full.default: filled,
    aten.full_like.default: filled_like,
    aten.gather.default: gathered,
    aten.index.Tensor: indexed,
    aten.index_put.default: put_indexed,
    aten.index_reduce.default: index_reduced,
    aten.index_select.default: rows_of,
    aten.masked_scatter.default: put_masked,
    aten.masked_scatter_backward.default: put_masked_backward,
    aten.permute.default: permuted,
    aten.permute_copy.default: permuted,
    aten.repeat.default: repeated,
    aten.reshape.default: reshaped,
    aten.scalar_tensor.default: number,
    aten.scatter.reduce: scattered("none"),
    aten.scatter.src: scattered("none"),
    aten.scatter.value: scattered("none"),
    aten.scatter.value_reduce: scattered("none"),
    aten.scatter_add.default: scattered("add"),
    aten.scatter_reduce.two: scatter_reduced,
    aten.select.int: selected,
    aten.select_scatter.default: put_selected,
    aten.slice.Tensor: sliced,
    aten.slice_scatter.default: put_slice,
    aten.squeeze.default: reshaped,
    aten.squeeze.dim: reshaped,
    aten.squeeze.dims: reshaped,
    aten.t.default: matrix_transposed,
    aten.transpose.int: exchanged,
    aten.tril.default: triangle(0),
    aten.triu.default: triangle(1),
    aten.unfold.default: windows,
    aten.unfold_copy.default: windows,
    aten.unsqueeze.default: reshaped,
    aten.view.default: reshaped,
    aten.view_copy.default: reshaped,
    prims.iota.default: counted,
}
"""Operators by overload."""
VIEWS = frozenset({
    aten._unsafe_view.default, aten.alias.default, aten.detach.default, aten.diagonal.default, aten.expand.default,
    aten.permute.default, aten.select.int, aten.slice.Tensor, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unfold.default, aten.unsqueeze.default,
    aten.view.default,
})  # fmt: skip
"""Operators of one result that cost PyTorch nothing but the call: another view of the same memory."""
