"""Rows of ATen operators that are sums of products, or slide windows over images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graft.torch.aten.builder import Builder, Tensor, numbers, require

aten = torch.ops.aten
Row = Callable[..., Any]


def product(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    require(x.is_float, "products of matrices of integers")
    return b.op("MatMul", x, y)


def product_plus(b: Builder, out: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    require(x.is_float, "products of matrices of integers")
    if x.rank == 2 and bias.rank <= 2 and beta == 1:
        return b.op("Gemm", x, y, bias, alpha=float(alpha))
    found = b.op("MatMul", x, y)
    if alpha != 1:
        found = b.op("Mul", found, b.constant(alpha, x.dtype))
    if beta == 0:  # what is not read may be anything, NaN too
        return found
    return b.op("Add", found, b.op("Mul", bias, b.constant(beta, x.dtype)) if beta != 1 else bias)


def attention(
    b: Builder, out: Any, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """Attention with the logarithms of its sums beside it, which the backward pass reads."""
    require(dropout_p == 0 and not is_causal, "attention with dropout or a causal mask")
    (depth,) = numbers([query.extents[-1]], "the depth of heads")
    require(query.dtype == torch.float32, "attention that is not of float32")
    factor = b.constant(scale if scale is not None else depth**-0.5, query.dtype)
    scores = b.op("Mul", b.op("MatMul", query, b.transposed(key, [0, 1, 3, 2])), factor)
    if attn_mask is not None:
        scores = b.op("Add", scores, b.cast(attn_mask, query.dtype))
    found = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    return [found, b.op("ReduceLogSumExp", scores, b.integers([3]), keepdims=0)]


def convolution(
    b: Builder, out: Any, x: Tensor, weight: Tensor, bias: Tensor | None, strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    require(x.is_float and x.rank == weight.rank, "a convolution of integers, or without a batch")
    count = x.rank - 2
    wide = [list(one) * (count if len(one) == 1 else 1) for one in (strides, padding, dilation, output_padding)]
    strides, padding, dilation, output_padding = (numbers(one, "a step of a convolution") for one in wide)
    require(min(padding, default=0) >= 0, "a negative padding")
    pads: dict[str, Any] = {"strides": strides, "pads": padding * 2, "dilations": dilation, "group": groups}
    shape = numbers(weight.extents[2:], "the extent of a window")
    require(min([*shape, *numbers(weight.extents[:2], "channels")]) > 0, "a convolution of no elements")
    if transposed:
        return b.op(
            "ConvTranspose", x, weight, bias, output_padding=output_padding, kernel_shape=list(shape), **pads
        )  # fmt: skip
    return b.op("Conv", x, weight, bias, kernel_shape=list(shape), **pads)


def convolution_backward(
    b: Builder, out: Any, grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Convolutions again: of the gradient with the weights' reversed window, and of the image with the gradient."""
    require(not transposed and groups == 1 and grad.is_float, "gradients of a convolution with groups, or transposed")
    count = x.rank - 2
    wide = [list(one) * (count if len(one) == 1 else 1) for one in (strides, padding, dilation)]
    strides, padding, dilation = (numbers(one, "a step of a convolution") for one in wide)
    window = numbers(weight.extents[2:], "the extent of a window")
    image, result = numbers(x.extents[2:], "an image"), numbers(grad.extents[2:], "an image")
    found: list[Tensor | None] = [None, None, None]
    if mask[0]:
        rest = [
            extent - ((last - 1) * stride - 2 * pad + step * (k - 1) + 1)
            for extent, last, stride, pad, step, k in zip(
                image, result, strides, padding, dilation, window, strict=True
            )
        ]
        found[0] = b.op(
            "ConvTranspose", grad, weight, None, strides=strides, pads=padding * 2, dilations=dilation,
            output_padding=rest, kernel_shape=window,
        )  # fmt: skip
    if mask[1]:
        order = [1, 0, *range(2, x.rank)]
        products = b.op(
            "Conv", b.transposed(x, order), b.transposed(grad, order), None, strides=dilation, pads=padding * 2,
            dilations=strides, kernel_shape=result,
        )  # fmt: skip
        axes = b.integers(list(range(2, x.rank)))
        cut = b.op("Slice", products, b.integers([0] * count), b.integers(window), axes)
        found[1] = b.transposed(cut, order)
    if mask[2]:
        found[2] = b.op("ReduceSum", grad, b.integers([0, *range(2, x.rank)]), keepdims=0)
    return found


def _with_batch(b: Builder, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    return (b.unsqueezed(x, [0]), True) if x.rank < rank else (x, False)


def average_pool(axes: int) -> Row:
    """Return the row of the means of windows over so many axes."""

    def row(
        b: Builder, out: Any, x: Tensor, kernel: Sequence[int], strides: Sequence[int] = (),
        padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True, divisor: Any = None,
    ) -> Tensor:  # fmt: skip
        require(divisor is None and not ceil_mode and x.is_float, "means of windows with a divisor, or rounded up")
        wide = [list(one) * (axes if len(one) == 1 else 1) for one in (kernel, strides or kernel, padding)]
        given, has_none = _with_batch(b, x, axes + 2)
        found = b.op(
            "AveragePool", given, kernel_shape=wide[0], strides=wide[1], pads=wide[2] * 2,
            count_include_pad=int(count_include_pad),
        )  # fmt: skip
        return b.squeezed(found) if has_none else found

    return row


def maximum_pool(axes: int) -> Row:
    """Return the row of the largest elements of windows, with their places in the flattened image."""

    def row(
        b: Builder, out: Any, x: Tensor, kernel: Sequence[int], strides: Sequence[int] = (),
        padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
    ) -> list[Tensor]:  # fmt: skip
        require(not ceil_mode and x.is_float, "windows of integers, or rounded up")
        wide = [list(one) * (axes if len(one) == 1 else 1) for one in (kernel, strides or kernel, padding, dilation)]
        given, has_none = _with_batch(b, x, axes + 2)
        kinds = [x.dtype, torch.int64]
        found = b.many(
            "MaxPool", [given], kinds, kernel_shape=wide[0], strides=wide[1], pads=wide[2] * 2, dilations=wide[3]
        )
        plane = 1
        for one in numbers(x.extents[-axes:], "the extent of an image"):
            plane *= one
        found[1] = b.op("Mod", found[1], b.constant(plane, torch.int64))  # ONNX counts over all planes
        return [b.squeezed(one) for one in found] if has_none else found

    return row


def maximum_pool_backward(
    b: Builder, out: Any, grad: Tensor, x: Tensor, kernel: Any, strides: Any, padding: Any, dilation: Any,
    ceil_mode: bool, places: Tensor,
) -> Tensor:  # fmt: skip
    """The gradients, added at the places in the flattened image that the forward pass found."""
    front = list(x.extents[:-2])
    flat = [b.reshaped(one, [*front, one.extents[-2] * one.extents[-1]]) for one in (grad, places)]
    nothing = b.expanded(b.constant(0, grad.dtype), [*front, x.extents[-2] * x.extents[-1]])
    found = b.op("ScatterElements", nothing, flat[1], flat[0], axis=len(front), reduction="add")
    return b.reshaped(found, x.extents)


def global_pool(b: Builder, out: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    require(tuple(sizes) == (1, 1) and x.is_float, "means of windows of several sizes")
    return b.op("ReduceMean", x, b.integers([x.rank - 2, x.rank - 1]), keepdims=1)


ROWS: dict[Any, Row] = {
    aten._adaptive_avg_pool2d.default: global_pool,
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten.addmm.default: product_plus,
    aten.avg_pool1d.default: average_pool(1),
    aten.avg_pool2d.default: average_pool(2),
    aten.avg_pool3d.default: average_pool(3),
    aten.baddbmm.default: product_plus,
    aten.bmm.default: product,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices.default: maximum_pool(2),
    aten.max_pool2d_with_indices_backward.default: maximum_pool_backward,
    aten.mm.default: product,
}
"""Operators by overload."""
