"""Rows of ATen operators that are sums of products: of matrices, convolutions, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from graft.core.operators.images.derivatives import FINITE, MOST_PLACES
from graft.torch.aten.builder import FLOATS, HALVES, Builder, Tensor, is_symbolic, numbers, require, wide

aten = torch.ops.aten
Row = Callable[..., Any]
FEWEST_TERMS = 16
"""Sums of fewer terms are no faster as a product of matrices than as a convolution."""
MOST_ELEMENTS = 1 << 24
"""Of the left matrix of such a product: it is written, and holds each element of an image once a place."""


def product(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    require(x.dtype in (*FLOATS, torch.int32, torch.int64), "products of matrices of small integers")
    return b.op("MatMul", x, y)


def product_plus(b: Builder, out: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    require(x.dtype in (*FLOATS, torch.int32, torch.int64), "products of matrices of small integers")
    is_exact = alpha == 1 or x.dtype != torch.float64  # an attribute is a float32
    if x.is_float and x.rank == 2 and bias.rank <= 2 and beta == 1 and is_exact:
        return b.op("Gemm", x, y, bias, alpha=float(alpha))
    found = b.op("MatMul", x, y)
    if alpha != 1:
        found = b.op("Mul", found, b.constant(alpha, x.dtype))
    if beta == 0:  # what is not read may be anything, NaN too
        return found
    return b.op("Add", found, b.op("Mul", bias, b.constant(beta, x.dtype)) if beta != 1 else bias)


def _scores(
    b: Builder, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Return the scaled and masked products of queries with keys, and the scale."""
    (depth,) = numbers([query.extents[-1]], "the depth of heads")
    require(query.dtype == torch.float32, "attention that is not of float32")
    factor = b.constant(scale if scale is not None else depth**-0.5, query.dtype)
    scores = b.op("Mul", b.op("MatMul", query, b.transposed(key, [0, 1, 3, 2])), factor)
    if is_causal:
        rows, columns = numbers([query.extents[2], key.extents[2]], "the length of a causal mask")
        hidden = np.triu(np.full((rows, columns), -np.inf), 1)
        scores = b.op("Add", scores, b.array(hidden, query.dtype))
    if mask is not None:
        scores = b.op("Add", scores, b.cast(mask, query.dtype))
    return scores, factor


def _by_query(b: Builder, x: Tensor, query: Tensor) -> Tensor:
    """Return keys or values once for each head of queries; several heads in a row may share one."""
    heads, given = numbers([query.extents[1], x.extents[1]], "the number of heads")
    if heads == given:
        return x
    images, _, *rest = x.extents
    groups = b.expanded(b.unsqueezed(x, [2]), [images, given, heads // given, *rest])
    return b.reshaped(groups, [images, heads, *rest])


def _of_shared(b: Builder, grad: Tensor, x: Tensor, query: Tensor) -> Tensor:
    """Return the gradient of keys or values from those of their heads."""
    heads, given = query.extents[1], x.extents[1]
    if heads == given:
        return grad
    images, _, *rest = x.extents
    return b.op("ReduceSum", b.reshaped(grad, [images, given, heads // given, *rest]), b.integers([2]), keepdims=0)


def attention(
    b: Builder, out: Any, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """Attention with the logarithms of its sums beside it, which the backward pass reads.

    Queries that see no key, whose softmax is NaN, get 0 of both, as in eager PyTorch.
    """
    require(dropout_p == 0, "attention with dropout")
    if query.dtype in HALVES:
        query, key, value = (b.cast(one, torch.float32) for one in (query, key, value))
    key, value = _by_query(b, key, query), _by_query(b, value, query)
    scores, _ = _scores(b, query, key, attn_mask, is_causal, scale)
    found = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    logarithms = b.op("ReduceLogSumExp", scores, b.integers([3]), keepdims=0)
    if attn_mask is not None:
        least = b.constant(-math.inf, attn_mask.dtype)
        hidden = b.compare("Equal", b.op("ReduceMax", attn_mask, b.integers([-1]), keepdims=0), least)
        zero = b.constant(0, query.dtype)
        found = b.where(b.op("Unsqueeze", hidden, b.integers([-1])), zero, found)
        logarithms = b.where(hidden, zero, logarithms)
    return [b.cast(one, kind.dtype) for one, kind in zip((found, logarithms), out, strict=True)]


def attention_backward(
    b: Builder, out: Any, grad: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, logarithms: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """The weights computed again from the logarithms; their gradient needs only grad * result of a row of them."""
    require(dropout_p == 0, "attention with dropout")
    keys, values = _by_query(b, key, query), _by_query(b, value, query)
    scores, factor = _scores(b, query, keys, attn_mask, is_causal, scale)
    weights = b.op("Exp", b.op("Sub", scores, b.unsqueezed(logarithms, [3])))
    of_weights = b.op("MatMul", grad, b.transposed(values, [0, 1, 3, 2]))
    of_rows = b.op("ReduceSum", b.op("Mul", grad, result), b.integers([3]), keepdims=1)
    of_scores = b.op("Mul", b.op("Mul", weights, b.op("Sub", of_weights, of_rows)), factor)
    of_keys = b.op("MatMul", b.op("Transpose", of_scores, perm=[0, 1, 3, 2]), query)
    of_values = b.op("MatMul", b.op("Transpose", weights, perm=[0, 1, 3, 2]), grad)
    return [
        b.op("MatMul", of_scores, keys), _of_shared(b, of_keys, key, query), _of_shared(b, of_values, value, query)
    ]  # fmt: skip


def convolution(
    b: Builder, out: Any, x: Tensor, weight: Tensor, bias: Tensor | None, strides: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    require(x.is_float and x.rank == weight.rank, "a convolution of integers, or without a batch")
    count = x.rank - 2
    given = [wide(one, count) for one in (strides, padding, dilation, output_padding)]
    strides, padding, dilation, output_padding = (numbers(one, "a step of a convolution") for one in given)
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
    """Convolutions again: of the gradient with the weights' reversed window, and of the image with the gradient.

    The latter has a window as large as an image: for a small window of weights it is a product of matrices, which
    takes half the time. A transposed one is the gradient of a convolution, so that its own is that convolution.
    """
    require(grad.is_float, "gradients of a convolution of integers")
    count = x.rank - 2
    given = [wide(one, count) for one in (strides, padding, dilation)]
    strides, padding, dilation = (numbers(one, "a step of a convolution") for one in given)
    window = numbers(weight.extents[2:], "the extent of a window")
    large, small = (grad, x) if transposed else (x, grad)
    image, result = numbers(large.extents[2:], "an image"), numbers(small.extents[2:], "an image")
    require(min([*image, *result, *window, *x.extents[:2], *weight.extents[:2]]) > 0, "a convolution of no elements")
    pads: dict[str, Any] = {"strides": strides, "pads": padding * 2, "dilations": dilation, "group": groups}
    found: list[Tensor | None] = [None, None, None]
    if mask[0] and transposed:
        image_grad = b.op("Conv", grad, weight, None, kernel_shape=window, **pads)
        found[0] = b.op(  # an output padding may make room for more
            "Slice", image_grad, b.integers([0] * count), b.integers(result), b.integers(list(range(2, x.rank)))
        )
    elif mask[0]:
        rest = [
            extent - ((last - 1) * stride - 2 * pad + step * (k - 1) + 1)
            for extent, last, stride, pad, step, k in zip(
                image, result, strides, padding, dilation, window, strict=True
            )
        ]
        found[0] = b.op("ConvTranspose", grad, weight, None, output_padding=rest, kernel_shape=window, **pads)
        b.nodes[-1].metadata_props[FINITE] = ""  # it may be computed as a convolution
    is_known = groups == 1 and math.prod(window) <= MOST_PLACES and not is_symbolic(small.extents)
    if mask[1] and is_known and _terms(small) >= FEWEST_TERMS:
        found[1] = _by_places(b, large, small, window, strides, padding, dilation)
    elif mask[1]:
        products = b.op(
            "Conv", _by_channel(b, large, groups), _by_channel(b, small, groups, as_weights=True), None,
            strides=dilation, pads=padding * 2, dilations=strides, kernel_shape=result, group=groups,
        )  # fmt: skip
        axes = b.integers(list(range(2, x.rank)))
        cut = b.op("Slice", products, b.integers([0] * count), b.integers(window), axes)
        found[1] = b.transposed(cut, [1, 0, *range(2, x.rank)])
    if mask[2]:
        found[2] = b.op("ReduceSum", grad, b.integers([0, *range(2, x.rank)]), keepdims=0)
    return found


def _terms(x: Tensor) -> int:
    """Return how many elements a channel of a batch has: as many terms have the gradients of weights."""
    return math.prod(numbers([x.extents[0], *x.extents[2:]], "an image"))


def _by_places(
    b: Builder, image: Tensor, windows: Tensor, shape: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:  # fmt: skip
    """Return the gradients of weights [m, c, *shape] for windows [n, m, ...] over an image [n, c, ...].

    What a place of the window met of the image, [c, n * ...], is multiplied by the windows; places one behind the other
    are one product, as many as make a matrix of `MOST_ELEMENTS`.
    """
    spatial, terms = range(2, image.rank), _terms(windows)
    count, channels = len(spatial), numbers([image.extents[1], windows.extents[1]], "channels")
    moved = b.transposed(image, [1, 0, *spatial])
    if any(padding):
        moved = b.op("Pad", moved, b.integers([0, 0, *padding] * 2))
    reach = [(one - 1) * step + 1 for one, step in zip(windows.extents[2:], strides, strict=True)]
    met = []
    for place in np.ndindex(*shape):
        starts = [int(one) * step for one, step in zip(place, dilation, strict=True)]
        ends = [start + length for start, length in zip(starts, reach, strict=True)]
        met.append(b.op("Slice", moved, *map(b.integers, (starts, ends, list(spatial), strides))))
    right = b.transposed(b.reshaped(b.transposed(windows, [1, 0, *spatial]), [channels[1], terms]), [1, 0])
    most = max(1, MOST_ELEMENTS // (channels[0] * terms))
    products = []
    for first in range(0, len(met), most):
        some = met[first : first + most]
        left = b.reshaped(b.concatenated(some), [len(some) * channels[0], terms])
        products.append(b.op("MatMul", left, right))
    return b.transposed(b.reshaped(b.concatenated(products), [*shape, *channels]), [count + 1, count, *range(count)])


def _by_channel(b: Builder, x: Tensor, groups: int, as_weights: bool = False) -> Tensor:
    """Return images [n, groups * c, ...] as [c, groups * n, ...], or as weights [groups * c, n, ...]."""
    rest = list(range(2, x.rank))
    if groups == 1 or as_weights:
        return b.transposed(x, [1, 0, *rest])
    images, channels = x.extents[0], x.extents[1] // groups
    parts = b.reshaped(x, [images, groups, channels, *x.extents[2:]])
    moved = b.transposed(parts, [2, 1, 0, *(axis + 1 for axis in rest)])
    return b.reshaped(moved, [channels, groups * images, *x.extents[2:]])


ROWS: dict[Any, Row] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    aten.addmm.default: product_plus,
    aten.baddbmm.default: product_plus,
    aten.bmm.default: product,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.mm.default: product,
}
"""Operators by overload."""
