"""What operators are made of that PyTorch itself does not take apart, or takes apart in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, leaky_relu, linear, scaled_dot_product_attention

aten = torch.ops.aten
Pair = tuple[torch.Tensor, torch.Tensor]
"""The weights and the bias of a layer."""


def split_with_sizes(x: torch.Tensor, sizes: Sequence[Any], dim: int = 0) -> list[torch.Tensor]:
    """Return the parts of a tensor along an axis as slices: each a view of its own, which PyTorch makes for nothing."""
    ends = list(accumulate(sizes))
    return [aten.slice.Tensor(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def encoder_layer(
    x: torch.Tensor, width: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, weight: torch.Tensor,
    bias: torch.Tensor, has_gelu: bool, norm_first: bool, epsilon: float, *rest: Any, mask: Any = None,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Return the layer that `torch.nn.TransformerEncoderLayer` calls in evaluation; one with a mask stays whole."""
    weights, (mask, *_) = rest[:8], (*rest[8:], mask)
    if mask is not None:
        return NotImplemented
    first, second, inner, outer = zip(weights[::2], weights[1::2], strict=True)

    def attended(x: torch.Tensor) -> torch.Tensor:
        parts = linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        found = scaled_dot_product_attention(*(one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in parts))
        return linear(found.transpose(1, 2).flatten(2), weight, bias)

    def fed(x: torch.Tensor) -> torch.Tensor:
        wide = linear(x, *inner)
        return linear(gelu(wide) if has_gelu else wide.relu(), *outer)

    def normed(x: torch.Tensor, pair: Pair) -> torch.Tensor:
        return layer_norm(x, (width,), *pair, epsilon)

    if norm_first:
        x = x + attended(normed(x, first))
        return x + fed(normed(x, second))
    x = normed(x + attended(x), first)
    return normed(x + fed(x), second)


def trilinear(
    first: torch.Tensor, second: torch.Tensor, third: torch.Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> torch.Tensor:  # fmt: skip
    """Return the product of three tensors, summed over some axes; each lacks the axes that it is expanded along."""
    axes = range(first.dim() + len(expand1))
    subscripts = [[axis for axis in axes if axis not in without] for without in (expand1, expand2, expand3, sumdim)]
    return torch.einsum(first, subscripts[0], second, subscripts[1], third, *subscripts[2:])


def rrelu(
    x: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Any:
    """Return a rectifier of random slopes in evaluation: all of them the middle one. In training it stays whole."""
    return NotImplemented if training else (leaky_relu(x, (lower + upper) / 2), noise.clone())


def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """Return a tensor with one number at places of an axis; negative ones count from its end, unlike in index_copy."""
    rows = x if x.dim() else x.unsqueeze(0)
    number = value.to(x.dtype) if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=x.dtype)
    found: torch.Tensor = aten.index_put(rows, [*[None] * (dim % rows.dim()), index], number)
    return found if x.dim() else found.squeeze(0)


def distances_backward(
    grad: torch.Tensor, first: torch.Tensor, second: torch.Tensor, p: float, distances: torch.Tensor
) -> torch.Tensor:
    """Return the gradients of the first of two sets of points, of their distances ``[..., first, second]``.

    With ``p`` of 0, and of points that coincide, they are 0.
    """
    apart = first.unsqueeze(-2) - second.unsqueeze(-3)
    if p == 0:
        return aten.zeros_like(first)
    upstream, distance = grad.unsqueeze(-1), distances.unsqueeze(-1)
    if p == float("inf"):
        return (upstream * apart.sign() * (apart.abs() == distance)).sum(-2)
    slopes = apart.sign() * torch.where(apart == 0, 0.0, (apart.abs() / distance) ** (p - 1))
    return (upstream * slopes).sum(-2)


DECOMPOSED: dict[Any, Callable[..., Any]] = {
    aten._cdist_backward.default: distances_backward,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._trilinear.default: trilinear,
    aten.rrelu_with_noise_functional.default: rrelu,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.split_with_sizes.default: split_with_sizes,
}
"""By overload."""
