"""Rows of ATen operators that move, cut, join, repeat and make elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from graft.torch.aten.builder import Builder, Extent, Tensor, axes_of, axis_of, is_symbolic, numbers, require

aten, prims = torch.ops.aten, torch.ops.prims
Row = Callable[..., Any]
LAST = 2**63 - 1

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
    aten.empty.memory_format: unwritten,
    aten._efficientzerotensor.default: unwritten,
    aten.empty_permuted.default: unwritten,
    aten.empty_strided.default: unwritten,
    aten.new_empty_strided.default: unwritten,
    aten.expand.default: expanded,
    aten.flip.default: flipped,
    aten.full.default: filled,
    aten.full_like.default: filled_like,
    aten.permute.default: permuted,
    aten.permute_copy.default: permuted,
    aten.repeat.default: repeated,
    aten.reshape.default: reshaped,
    aten.scalar_tensor.default: number,
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
