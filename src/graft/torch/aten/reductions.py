"""Rows of ATen operators that reduce axes, or normalise along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from graft.torch.aten.builder import HALVES, Builder, Tensor, axes_of, axis_of, numbers, require

aten, prims = torch.ops.aten, torch.ops.prims
Row = Callable[..., Any]


def _reduced(b: Builder, op_type: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if not axes:
        return b.op("Identity", x)
    return b.op(op_type, x, b.integers(list(axes)), keepdims=int(keep))


def reduction(op_type: str) -> Row:
    """Return the row of a reduction over some axes, or all, in the type of the result (float32 for 16-bit floats)."""

    def row(b: Builder, out: Any, x: Tensor, axes: Any = None, keep: bool = False, *, dtype: Any = None) -> Tensor:
        wide = torch.float32 if out.dtype in HALVES else out.dtype
        require(wide != torch.bool, "a sum of bools as a bool")
        return b.cast(_reduced(b, op_type, b.cast(x, wide), axes_of(axes, x.rank), keep), out.dtype)

    return row


def product_of_axis(b: Builder, out: Any, x: Tensor, axis: int, keep: bool = False, *, dtype: Any = None) -> Tensor:
    return reduction("ReduceProd")(b, out, x, [axis], keep)  # type: ignore[no-any-return]


def product(b: Builder, out: Any, x: Tensor, *, dtype: Any = None) -> Tensor:
    return reduction("ReduceProd")(b, out, x)  # type: ignore[no-any-return]


def total(b: Builder, out: Any, x: Tensor, *, dtype: Any = None) -> Tensor:
    return reduction("ReduceSum")(b, out, x)  # type: ignore[no-any-return]


def extreme(op_type: str) -> Row:
    """Return the row of the largest or smallest elements."""

    def row(b: Builder, out: Any, x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
        return _extreme(b, op_type, x, axes_of(axes, x.rank), keep)

    return row


def extreme_of_all(op_type: str) -> Row:
    """Return the row of the largest or smallest element."""

    def row(b: Builder, out: Any, x: Tensor) -> Tensor:
        return _extreme(b, op_type, x, list(range(x.rank)), False)

    return row


def _extreme(b: Builder, op_type: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """NaN where there is one, as PyTorch has it; bools as bytes."""
    if x.dtype == torch.bool:
        return b.cast(_reduced(b, op_type, b.cast(x, torch.uint8), axes, keep), torch.bool)
    found = _reduced(b, op_type, x, axes, keep)
    if not x.is_float or not axes:
        return found
    holes = b.cast(b.op("IsNaN", x, dtype=torch.bool), torch.uint8)
    has_hole = b.cast(_reduced(b, "ReduceMax", holes, axes, keep), torch.bool)
    return b.where(has_hole, b.constant(float("nan"), x.dtype), found)


def truth(op_type: str) -> Row:
    """Return the row of whether any or all elements are not zero."""

    def row(b: Builder, out: Any, x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
        bits = b.cast(b.cast(x, torch.bool), torch.uint8)
        return b.cast(_reduced(b, op_type, bits, axes_of(axes, x.rank), keep), out.dtype)

    return row


def place(op_type: str) -> Row:
    """Return the row of the place of the largest or smallest element, the first of equals."""

    def row(b: Builder, out: Any, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        require(x.dtype != torch.bool, "the largest of bools")
        if not x.rank:
            return b.op("Identity", b.constant(0, torch.int64))
        if axis is None:
            found = b.op(op_type, b.reshaped(x, [-1]), dtype=torch.int64, axis=0, keepdims=0)
            return b.reshaped(found, out.shape)
        require(x.extents[axis_of(axis, x.rank)] != 0, "an axis of no elements")
        return b.op(op_type, x, dtype=torch.int64, axis=axis_of(axis, x.rank), keepdims=int(keep))

    return row


def extreme_with_place(op_type: str, place_type: str) -> Row:
    """Return the row of the largest or smallest elements with their places."""

    def row(b: Builder, out: Any, x: Tensor, axis: int, keep: bool = False) -> list[Tensor]:
        require(x.rank, "a scalar")
        axis = axis_of(axis, x.rank)
        given = b.cast(x, torch.uint8) if x.dtype == torch.bool else x
        where = b.op(place_type, given, dtype=torch.int64, axis=axis, keepdims=int(keep))
        return [_extreme(b, op_type, x, [axis], keep), where]

    return row


def cumulative(op_type: str) -> Row:
    """Return the row of running sums or products."""

    def row(b: Builder, out: Any, x: Tensor, axis: int, *, dtype: Any = None) -> Tensor:
        given = b.cast(x, out.dtype)
        if not x.rank:
            return b.op("Identity", given)
        wide = torch.float32 if out.dtype in HALVES else out.dtype
        found = b.op(op_type, b.cast(given, wide), b.squeezed(b.integers([axis_of(axis, x.rank)])))
        return b.cast(found, out.dtype)

    return row


def variance(
    b: Builder, out: Any, x: Tensor, axes: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
    return _moments(b, out.dtype, x, axes, correction, keepdim)[0]


def variance_and_mean(
    b: Builder, out: Any, x: Tensor, axes: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return _moments(b, out[0].dtype, x, axes, correction, keepdim)


def _moments(b: Builder, dtype: Any, x: Tensor, axes: Any, correction: Any, keep: bool) -> tuple[Tensor, Tensor]:
    places = axes_of(axes, x.rank)
    extents = numbers([x.extents[axis] for axis in places], "how many elements have a variance")
    count = 1
    for one in extents:
        count *= one
    divisor = count - (1 if correction is None else correction)
    require(divisor > 0, "a variance of too few elements")
    wide = torch.float32 if dtype in HALVES else dtype
    x = b.cast(x, wide)
    mean = _reduced(b, "ReduceMean", x, places, True)
    difference = b.op("Sub", x, mean)
    squares = _reduced(b, "ReduceSum", b.op("Mul", difference, difference), places, keep)
    found = b.op("Div", squares, b.constant(divisor, wide))
    mean = mean if keep or not places else b.squeezed(Tensor(mean.value, wide, None), places)
    return b.cast(found, dtype), b.cast(mean, dtype)


# ---- Along an axis ----


def softmax(op_type: str) -> Row:
    """Return the row of a softmax, or of its logarithm."""

    def row(b: Builder, out: Any, x: Tensor, axis: int, to_float: bool = False) -> Tensor:
        wide = torch.float32 if out.dtype in HALVES else out.dtype
        given = b.cast(x, wide)
        if not x.rank:
            found = b.squeezed(b.op(op_type, b.unsqueezed(given, [0]), axis=0))
        else:
            found = b.op(op_type, given, axis=axis_of(axis, x.rank))
        return b.cast(found, out.dtype)

    return row


def layer_norm(
    b: Builder, out: Any, x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    first = x.rank - len(shape)
    scale = weight or b.expanded(b.constant(1, x.dtype), list(shape))
    if x.dtype == torch.float64:
        variance, mean = _moments(b, x.dtype, x, list(range(first, x.rank)), 0, True)
        deviation = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, b.constant(epsilon, x.dtype))))
        scaled = b.op("Mul", b.op("Mul", b.op("Sub", x, mean), deviation), b.cast(scale, x.dtype))
        return [b.op("Add", scaled, b.cast(bias, x.dtype)) if bias else scaled, mean, deviation]
    given = [b.cast(one, torch.float32) if one else None for one in (x, scale, bias)]
    found = b.many("LayerNormalization", given, [torch.float32] * 3, axis=first, epsilon=float(epsilon))
    return [b.cast(one, kind.dtype) for one, kind in zip(found, out, strict=True)]


def group_norm(
    b: Builder, out: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Any, channels: int, size: Any,
    groups: int, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    """Elements of a group by its moments, in float32 at least; the moments go to the backward pass."""
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    parts = b.reshaped(b.cast(x, wide), [batch, groups, channels // groups * size])
    variance, mean = _moments(b, wide, parts, [2], 0, True)
    deviation = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, b.constant(epsilon, wide))))
    if x.dtype == torch.float64 or x.rank < 3:
        found = b.reshaped(b.op("Mul", b.op("Sub", parts, mean), deviation), list(x.extents))
        per_channel = [channels, *[1] * (x.rank - 2)]
        found = b.op("Mul", found, b.reshaped(b.cast(weight, wide), per_channel)) if weight else found
        found = b.op("Add", found, b.reshaped(b.cast(bias, wide), per_channel)) if bias else found
    else:
        scale = b.cast(weight, wide) if weight else b.expanded(b.constant(1, wide), [channels])
        shift = b.cast(bias, wide) if bias else b.expanded(b.constant(0, wide), [channels])
        given = (b.cast(x, wide), scale, shift)
        found = b.op("GroupNormalization", *given, num_groups=groups, epsilon=float(epsilon))
    moments = (b.reshaped(one, [batch, groups]) for one in (mean, deviation))
    return [b.cast(one, kind.dtype) for one, kind in zip((found, *moments), out, strict=True)]


def batch_norm_inference(
    b: Builder, out: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    channels = [x.extents[1]]
    require(x.dtype == mean.dtype, "statistics of another type than the elements")
    if x.dtype == torch.float64:  # an attribute is a float32
        variance, epsilon = b.op("Add", variance, b.constant(epsilon, x.dtype)), 0
    scale = weight or b.expanded(b.constant(1, x.dtype), channels)
    shift = bias or b.expanded(b.constant(0, x.dtype), channels)
    found = b.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(epsilon))
    return [found, *(b.op("Identity", b.array(np.empty(0), one.dtype)) for one in out[1:])]


def distances(b: Builder, out: Any, x: Tensor, y: Tensor, p: float, *_: Any) -> Tensor:
    """Norms of the differences of all pairs of rows."""
    require(p in (1, 2), "distances by a norm that is not the first or the second")
    difference = b.op("Sub", b.unsqueezed(x, [x.rank - 1]), b.unsqueezed(y, [y.rank - 2]))
    return b.op("ReduceL1" if p == 1 else "ReduceL2", difference, b.integers([-1]), keepdims=0)


def bags(
    b: Builder, out: Sequence[Any], weight: Tensor, index: Tensor, offsets: Tensor, by_frequency: bool = False,
    mode: int = 0, sparse: bool = False, factors: Tensor | None = None, has_end: bool = False, padding: int = -1,
) -> list[Tensor]:  # fmt: skip
    """Sums (mode 0) or means (1) of the rows of a table that bags of indices name: a bag begins at each offset.

    Beside them come the bag of each index, the sizes of bags and, of mode 2 alone, places: for the backward pass.
    """
    require(mode in (0, 1), "the largest elements of a bag")
    require(weight.dtype in (torch.float32, torch.float64), "bags of 16-bit floats")
    count, sums = b.extent(index.extents[0]), out[0].shape
    one, zero = b.constant(1, torch.int64), b.constant(0, torch.int64)
    ends = b.concatenated([b.cast(offsets, torch.int64), *([] if has_end else [count])])
    starts = b.op("Slice", ends, b.integers([0]), b.integers([-1]))
    begun = b.expanded(zero, [index.extents[0] + 1])
    begun = b.op("ScatterND", begun, b.unsqueezed(starts, [1]), b.expanded(one, sums[:1]), reduction="add")
    begun = b.op("CumSum", b.op("Slice", begun, b.integers([0]), b.integers([-1])), zero)
    owner = b.op("Sub", begun, one)
    rows = b.from_front(b.op("Gather", weight, index, axis=0))
    if factors is not None:
        rows = b.op("Mul", rows, b.unsqueezed(factors, [1]))
    sizes = b.op("Sub", b.op("Slice", ends, b.integers([1]), b.integers([2**63 - 1])), starts)
    owners = b.unsqueezed(owner, [1])
    if padding >= 0:
        is_kept = b.op("Not", b.compare("Equal", index, b.constant(padding, index.dtype)))
        rows = b.where(b.unsqueezed(is_kept, [1]), rows, b.constant(0, weight.dtype))
        nothing = b.expanded(zero, sums[:1])
        sizes = b.op("ScatterND", nothing, owners, b.cast(is_kept, torch.int64), reduction="add")
    found = b.op("ScatterND", b.expanded(b.constant(0, weight.dtype), sums), owners, rows, reduction="add")
    if mode == 1:
        found = b.op("Div", found, b.unsqueezed(b.cast(b.op("Max", sizes, one), weight.dtype), [1]))
    if has_end and out[2].shape[0] != sums[0]:
        sizes = b.concatenated([sizes, b.integers([0])])  # for the offset that begins no bag
    owner = b.expanded(zero, out[1].shape) if isinstance(out[1].shape[0], int) and not out[1].shape[0] else owner
    others = (owner, sizes, b.expanded(zero, out[3].shape))
    return [found, *(b.cast(x, kind.dtype) for x, kind in zip(others, out[1:], strict=True))]


ROWS: dict[Any, Row] = {
    aten._cdist_forward.default: distances,
    aten._embedding_bag.default: bags,
    aten._embedding_bag_forward_only.default: bags,
    aten._log_softmax.default: softmax("LogSoftmax"),
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten._softmax.default: softmax("Softmax"),
    aten.all.default: truth("ReduceMin"),
    aten.all.dim: truth("ReduceMin"),
    aten.all.dims: truth("ReduceMin"),
    aten.amax.default: extreme("ReduceMax"),
    aten.amin.default: extreme("ReduceMin"),
    aten.any.default: truth("ReduceMax"),
    aten.any.dim: truth("ReduceMax"),
    aten.any.dims: truth("ReduceMax"),
    aten.argmax.default: place("ArgMax"),
    aten.argmin.default: place("ArgMin"),
    aten.cumprod.default: cumulative("CumProd"),
    aten.cumsum.default: cumulative("CumSum"),
    aten.max.default: extreme_of_all("ReduceMax"),
    aten.max.dim: extreme_with_place("ReduceMax", "ArgMax"),
    aten.mean.default: reduction("ReduceMean"),
    aten.mean.dim: reduction("ReduceMean"),
    aten.min.default: extreme_of_all("ReduceMin"),
    aten.min.dim: extreme_with_place("ReduceMin", "ArgMin"),
    aten.native_group_norm.default: group_norm,
    aten.native_layer_norm.default: layer_norm,
    aten.prod.default: product,
    aten.prod.dim_int: product_of_axis,
    aten.sum.default: total,
    aten.sum.dim_IntList: reduction("ReduceSum"),
    aten.var.correction: variance,
    aten.var_mean.correction: variance_and_mean,
}
"""Operators by overload."""
