"""Rows of ATen operators that make images larger or smaller: pools, their gradients, interpolation.

A mean over windows is a matrix along each axis of the image: where ONNX has no operator for one, for windows of
different sizes and for all gradients, the matrices are constants, and the gradient is a product with their transposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from graft.torch.aten.builder import HALVES, Builder, Extent, Tensor, is_symbolic, numbers, require, wide
from graft.torch.aten.indexing import scattered

aten = torch.ops.aten
Row = Callable[..., Any]
Matrices = list[np.ndarray]
"""One for each axis of an image: [extent of the result, extent of the image]."""
LARGEST = 256
"""The extent beyond which a product with a matrix that is mostly zeros costs more than PyTorch's own operator."""


def applied(b: Builder, x: Tensor, matrices: Matrices) -> Tensor:
    """Return an image whose last axes are each multiplied by a matrix."""
    for place, matrix in enumerate(reversed(matrices)):
        axis = x.rank - 1 - place
        order = list(range(x.rank))
        order[axis], order[-1] = order[-1], order[axis]
        shape = [*x.extents]
        shape[axis] = matrix.shape[0]
        product = b.op("MatMul", b.transposed(x, order), b.array(matrix.T, x.dtype))
        found = b.transposed(Tensor(product.value, x.dtype, None), order)
        x = Tensor(found.value, x.dtype, tuple(shape))
    return x


def _sums(extent: int, size: int, window: int, stride: int, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix of sums of windows along an axis, and how many elements each has with and without padding."""
    starts = np.arange(size) * stride - pad
    ends = np.minimum(starts + window, extent + pad)
    places = np.arange(extent)
    inside = (places >= starts[:, None]) & (places < ends[:, None])
    return inside.astype(np.float64), ends - starts, inside.sum(1)


def _means(
    image: Sequence[Extent], sizes: Sequence[Extent], kernel: Sequence[int], strides: Sequence[int],
    padding: Sequence[int], with_padding: bool, divisor: int | None,
) -> Matrices:  # fmt: skip
    """Return the matrices of `torch.nn.functional.avg_pool2d` and its like."""
    axes = len(image)
    extents, results = numbers(image, "the extent of an image"), numbers(sizes, "the extent of an image")
    found = []
    for extent, size, window, stride, pad in zip(
        extents, results, wide(kernel, axes), wide(strides or kernel, axes), wide(padding, axes), strict=True
    ):
        sums, padded, inside = _sums(extent, size, window, stride, pad)
        count = padded if with_padding else inside
        found.append(sums if divisor is not None else sums / count[:, None])
    if divisor is not None:
        found[0] = found[0] / divisor
    return found


def _adaptive(image: Sequence[Extent], sizes: Sequence[Extent]) -> Matrices:
    """Return the matrices of means over as many windows as the result has elements."""
    found = []
    for extent, size in zip(numbers(image, "an image"), numbers(sizes, "an image"), strict=True):
        matrix = np.zeros((size, extent))
        for place in range(size):
            start, end = place * extent // size, -(-(place + 1) * extent // size)
            matrix[place, start:end] = 1 / (end - start)
        found.append(matrix)
    return found


def average_pool(axes: int) -> Row:
    """Return the row of the means of windows over so many axes."""

    def row(
        b: Builder, out: Any, x: Tensor, kernel: Sequence[int], strides: Sequence[int] = (),
        padding: Sequence[int] = (0,), ceil_mode: bool = False, with_padding: bool = True, divisor: Any = None,
    ) -> Tensor:  # fmt: skip
        require(x.is_float, "means of integers")
        if divisor is not None or ceil_mode:
            sizes = out.shape[-axes:]
            return applied(b, x, _means(x.extents[-axes:], sizes, kernel, strides, padding, with_padding, divisor))
        given, has_none = with_batch(b, x, axes + 2)
        found = b.op(
            "AveragePool", given, kernel_shape=wide(kernel, axes), strides=wide(strides or kernel, axes),
            pads=wide(padding, axes) * 2, count_include_pad=int(with_padding),
        )  # fmt: skip
        return b.squeezed(found) if has_none else found

    return row


def with_batch(b: Builder, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """Return an image with an axis of images, and whether it had none."""
    return (b.unsqueezed(x, [0]), True) if x.rank < rank else (x, False)


def average_pool_backward(axes: int) -> Row:
    """Return the row of the gradients of the means of windows."""

    def row(
        b: Builder, out: Any, grad: Tensor, x: Tensor, kernel: Sequence[int], strides: Sequence[int],
        padding: Sequence[int], ceil_mode: bool, with_padding: bool, divisor: Any = None,
    ) -> Tensor:  # fmt: skip
        image, sizes = x.extents[-axes:], grad.extents[-axes:]
        matrices = _means(image, sizes, kernel, strides, padding, with_padding, divisor)
        return applied(b, grad, [one.T for one in matrices])

    return row


def adaptive_pool(axes: int) -> Row:
    """Return the row of the means over as many windows as the result has elements."""

    def row(b: Builder, out: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
        require(x.is_float, "means of integers")
        if all(one == 1 for one in sizes):
            return b.op("ReduceMean", x, b.integers(list(range(x.rank - axes, x.rank))), keepdims=1)
        return applied(b, x, _adaptive(x.extents[-axes:], sizes))

    return row


def adaptive_pool_backward(axes: int) -> Row:
    """Return the row of the gradients of the means over as many windows as the result has elements."""

    def row(b: Builder, out: Any, grad: Tensor, x: Tensor) -> Tensor:
        image = numbers(x.extents[-axes:], "the extent of an image")
        if all(one == 1 for one in grad.extents[-axes:]):
            return b.expanded(b.op("Div", grad, b.constant(math.prod(image), grad.dtype)), x.extents)
        return applied(b, grad, [one.T for one in _adaptive(image, grad.extents[-axes:])])

    return row


def maximum_pool(axes: int) -> Row:
    """Return the row of the largest elements of windows, with their places in the flattened image."""

    def row(
        b: Builder, out: Any, x: Tensor, kernel: Sequence[int], strides: Sequence[int] = (),
        padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
    ) -> list[Tensor]:  # fmt: skip
        require(x.is_float, "windows of integers")
        windows, steps, front, gaps = (wide(one, axes) for one in (kernel, strides or kernel, padding, dilation))
        image, back = x.extents[-axes:], front
        if ceil_mode:  # as many as the windows reach, however they were counted
            extents, sizes = (numbers(one, "the extent of an image") for one in (image, out[0].shape[-axes:]))
            back = [
                max((size - 1) * step + gap * (window - 1) + 1 - extent - pad, 0)
                for size, step, gap, window, extent, pad in zip(
                    sizes, steps, gaps, windows, extents, front, strict=True
                )
            ]
        given, has_none = with_batch(b, x, axes + 2)
        kinds = [x.dtype, torch.int64]
        found = b.many(
            "MaxPool", [given], kinds, kernel_shape=windows, strides=steps, pads=[*front, *back], dilations=gaps
        )
        found[1] = b.op("Mod", found[1], b.constant(math.prod(image), torch.int64))  # ONNX counts over all planes
        return [b.squeezed(one) for one in found] if has_none else found

    return row


def maximum_pool_backward(axes: int) -> Row:
    """Return the row of the gradients, added at the places in the flattened image that the forward pass found."""

    def row(b: Builder, out: Any, grad: Tensor, x: Tensor, *given: Any) -> Tensor:
        front, image = list(x.extents[:-axes]), x.extents[-axes:]
        flat = [b.reshaped(one, [*front, math.prod(one.extents[-axes:])]) for one in (grad, given[-1])]
        nothing = b.expanded(b.constant(0, grad.dtype), [*front, math.prod(image)])
        found = scattered("add")(b, out, nothing, len(front), flat[1], flat[0])
        return b.reshaped(found, x.extents)

    return row


def adaptive_maximum_pool(axes: int) -> Row:
    """Return the row of the largest elements of as many windows as the result has elements, where all are alike."""

    def row(b: Builder, out: Any, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        image = numbers(x.extents[-axes:], "the extent of an image")
        results = numbers(sizes, "the extent of an image")
        require(
            all(extent % size == 0 for extent, size in zip(image, results, strict=True)), "windows of several sizes"
        )
        kernel = [extent // size for extent, size in zip(image, results, strict=True)]
        return maximum_pool(axes)(b, out, x, kernel)  # type: ignore[no-any-return]

    return row


# ---- Interpolation ----


def _factors(given: Sequence[Any], axes: int) -> list[Any]:
    """Return the factors that a user gave for each axis, from one list or from numbers; None where there is none."""
    found = given[0] if given and isinstance(given[0], list | tuple) else given
    return list(found) if found else [None] * axes


def _nearest_places(extent: int, size: int, factor: float | None) -> np.ndarray:
    """Return the nearest elements below, whose places PyTorch computes in float32."""
    scale = np.float32(1 / factor if factor else extent / size)
    places: np.ndarray = np.floor(np.arange(size, dtype=np.float32) * scale).astype(np.int64)
    return np.minimum(places, extent - 1)  # type: ignore[no-any-return]


def _repeated(b: Builder, x: Tensor, factors: Tensor | None, sizes: Tensor | None) -> Tensor:
    """Return an image whose elements stand several times along both axes."""
    return b.op(
        "Resize", x, None, factors, sizes, axes=[2, 3], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def nearest(b: Builder, out: Any, x: Tensor, sizes: Any, *given: Any) -> Tensor:
    factors = _factors(given, 2)
    if is_symbolic((*out.shape[2:], *x.extents[2:])):
        whole = [float(one).is_integer() for one in factors if one is not None]
        require(len(whole) == 2 and all(whole), "an image is not known before the call, nor a whole factor")
        return _repeated(b, x, b.array(np.asarray(factors, np.float32), torch.float32), None)
    results, image = list(out.shape[2:]), list(x.extents[2:])
    if all(size % extent == 0 for size, extent in zip(results, image, strict=True)):
        return _repeated(b, x, None, b.integers(results))
    for axis, factor in enumerate(factors):
        places = _nearest_places(image[axis], results[axis], factor)
        x = b.op("Gather", x, b.integers(places.tolist()), axis=axis + 2)
    return x


def linear(axes: int, mode: str) -> Row:
    """Return the row of an interpolation between the neighbours along so many axes."""

    def row(b: Builder, out: Any, x: Tensor, sizes: Any, aligned: bool, *given: Any) -> Tensor:
        require(x.is_float, "an interpolation of integers")
        kind = torch.float32 if x.dtype in HALVES else x.dtype
        places, factors, scales = list(range(2, 2 + axes)), _factors(given, axes), None
        if None not in factors and not aligned:
            scales = b.array(np.asarray(factors, np.float32), torch.float32)
        found = b.op(
            "Resize", b.cast(x, kind), None, scales, None if scales else b.extents(out.shape[2:]), axes=places,
            mode=mode, cubic_coeff_a=-0.75,
            coordinate_transformation_mode="align_corners" if aligned else "half_pixel",
        )  # fmt: skip
        return b.cast(found, x.dtype)

    return row


def _linear_matrix(extent: int, size: int, aligned: bool, factor: float | None) -> np.ndarray:
    """Return the matrix of an interpolation between the two neighbours along an axis."""
    if aligned:
        places = np.arange(size) * ((extent - 1) / (size - 1) if size > 1 else 0)
    else:
        places = np.maximum((np.arange(size) + 0.5) * (1 / factor if factor else extent / size) - 0.5, 0)
    below = np.minimum(np.floor(places).astype(np.int64), extent - 1)
    share = places - below
    matrix = np.zeros((size, extent))
    np.add.at(matrix, (np.arange(size), below), 1 - share)
    np.add.at(matrix, (np.arange(size), np.minimum(below + 1, extent - 1)), share)
    return matrix


def interpolation_backward(axes: int, is_linear: bool) -> Row:
    """Return the row of the gradients of an interpolation: a product with the transposed matrices of small images."""

    def row(b: Builder, out: Any, grad: Tensor, results: Any, image: Any, *given: Any) -> Tensor:
        extents, sizes = numbers(image[2:], "an image"), numbers(results, "an image")
        require(grad.is_float and max(*extents, *sizes) <= LARGEST, "gradients of an interpolation of a large image")
        aligned, factors = (given[0], given[1:]) if is_linear else (False, given)
        matrices = [
            _linear_matrix(extent, size, aligned, factor) if is_linear
            else np.eye(extent)[_nearest_places(extent, size, factor)]
            for extent, size, factor in zip(extents, sizes, _factors(factors, axes), strict=True)
        ]  # fmt: skip
        return applied(b, grad, [one.T for one in matrices])

    return row


def replication_backward(axes: int) -> Row:
    """Return the row of the gradients of an image whose border is repeated: a product, as `interpolation_backward`."""

    def row(b: Builder, out: Any, grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        extents, sizes = (numbers(one.extents[-axes:], "an image") for one in (x, grad))
        require(grad.is_float and max(*extents, *sizes) <= LARGEST, "gradients of the border of a large image")
        fronts = padding[::2][::-1]  # the last axis comes first
        matrices = [
            np.eye(extent)[np.clip(np.arange(size) - front, 0, extent - 1)]
            for extent, size, front in zip(extents, sizes, fronts, strict=True)
        ]
        return applied(b, grad, [one.T for one in matrices])

    return row


def grid_sample(b: Builder, out: Any, x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool) -> Tensor:
    kind = torch.float32 if x.dtype in HALVES else x.dtype
    found = b.op(
        "GridSample", b.cast(x, kind), b.cast(grid, kind), mode=("linear", "nearest", "cubic")[mode],
        align_corners=int(aligned), padding_mode=("zeros", "border", "reflection")[padding],
    )  # fmt: skip
    return b.cast(found, x.dtype)


ROWS: dict[Any, Row] = {
    aten._adaptive_avg_pool2d.default: adaptive_pool(2),
    aten._adaptive_avg_pool2d_backward.default: adaptive_pool_backward(2),
    aten._adaptive_avg_pool3d.default: adaptive_pool(3),
    aten._adaptive_avg_pool3d_backward.default: adaptive_pool_backward(3),
    aten.adaptive_max_pool2d.default: adaptive_maximum_pool(2),
    aten.adaptive_max_pool2d_backward.default: maximum_pool_backward(2),
    aten.adaptive_max_pool3d.default: adaptive_maximum_pool(3),
    aten.adaptive_max_pool3d_backward.default: maximum_pool_backward(3),
    aten.avg_pool1d.default: average_pool(1),
    aten.avg_pool2d.default: average_pool(2),
    aten.avg_pool2d_backward.default: average_pool_backward(2),
    aten.avg_pool3d.default: average_pool(3),
    aten.avg_pool3d_backward.default: average_pool_backward(3),
    aten.grid_sampler_2d.default: grid_sample,
    aten.max_pool2d_with_indices.default: maximum_pool(2),
    aten.max_pool2d_with_indices_backward.default: maximum_pool_backward(2),
    aten.max_pool3d_with_indices.default: maximum_pool(3),
    aten.max_pool3d_with_indices_backward.default: maximum_pool_backward(3),
    aten.replication_pad1d_backward.default: replication_backward(1),
    aten.replication_pad2d_backward.default: replication_backward(2),
    aten.replication_pad3d_backward.default: replication_backward(3),
    aten.upsample_bicubic2d.default: linear(2, "cubic"),
    aten.upsample_bicubic2d.vec: linear(2, "cubic"),
    aten.upsample_bilinear2d.default: linear(2, "linear"),
    aten.upsample_bilinear2d.vec: linear(2, "linear"),
    aten.upsample_bilinear2d_backward.default: interpolation_backward(2, True),
    aten.upsample_linear1d.default: linear(1, "linear"),
    aten.upsample_linear1d.vec: linear(1, "linear"),
    aten.upsample_linear1d_backward.default: interpolation_backward(1, True),
    aten.upsample_nearest2d.default: nearest,
    aten.upsample_nearest2d.vec: nearest,
    aten.upsample_nearest2d_backward.default: interpolation_backward(2, False),
    aten.upsample_trilinear3d.default: linear(3, "linear"),
    aten.upsample_trilinear3d.vec: linear(3, "linear"),
    aten.upsample_trilinear3d_backward.default: interpolation_backward(3, True),
}
"""Operators by overload."""
