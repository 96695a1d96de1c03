"""ONNX operators as PyTorch functions, for the ``torch`` peer.

A function takes an operator's inputs in order (None where an optional one is absent) and its attributes by keyword;
the keywords that it lacks are not supported, but for those of `FIXED`. Inputs named ``static`` come as Python values,
as PyTorch wants them: they must be known before the model runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional

FIXED: Mapping[str, object] = {
    "auto_pad": "NOTSET", "batch_dims": 0, "ceil_mode": 0, "direction": "forward", "input_forget": 0,
    "kernel_shape": None, "layout": 0, "mode": "constant", "momentum": None, "noop_with_empty_axes": 0,
    "qk_matmul_output_mode": 0, "saturate": 1, "softcap": 0.0, "stash_type": 1, "storage_order": 0, "training_mode": 0,
}  # fmt: skip
"""Attributes that every function accepts at this value only, or (None) at any, because nothing follows from it here."""
EPSILON = float(np.float32(1e-5))
"""The default of an attribute, which is a float32: 2.5e-8 of it less than the number."""


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """How PyTorch computes an operator: its ``static`` inputs, those that must be ``absent``, ``several`` outputs."""

    function: Callable[..., Any]
    static: frozenset[int] = frozenset()
    absent: frozenset[int] = frozenset()
    several: bool = False

    @property
    def attributes(self) -> Mapping[str, object]:
        """The attributes that the function takes, with their defaults."""
        return getattr(self.function, "__kwdefaults__", None) or {}


def _one(function: Callable[..., Any], *static: int) -> TorchOperator:
    return TorchOperator(function, frozenset(static))


def _cast(x: Tensor, *, to: int = 1) -> Tensor:
    kind = ir.DataType(to)
    if kind is ir.DataType.BFLOAT16:
        return x.to(torch.bfloat16)
    return x.to(torch.from_numpy(np.empty(0, kind.numpy())).dtype)


def _sum(*terms: Tensor) -> Tensor:
    first, *rest = terms
    for one in rest:
        first = first + one
    return first


def _divide(a: Tensor, b: Tensor) -> Tensor:
    whole = isinstance(a, Tensor) and not a.is_floating_point()
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


def _softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


def _clip(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    return torch.clamp(x, low, high)


def _dropout(x: Tensor, ratio: float | None = None) -> Tensor:
    return x


def _reshape(x: Tensor, shape: list[int], *, allowzero: int = 0) -> Tensor:
    return x.reshape([x.shape[axis] if size == 0 and not allowzero else size for axis, size in enumerate(shape)])


def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _unsqueeze(x: Tensor, axes: list[int]) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(x: Tensor, axes: list[int] | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(reversed(range(x.dim()))) if perm is None else tuple(perm))


def _expand(x: Tensor, shape: list[int]) -> Tensor:
    return x.broadcast_to(torch.broadcast_shapes(x.shape, tuple(shape)))


def _concat(*parts: Tensor, axis: int = 0) -> Tensor:
    return torch.cat(parts, axis)


def _split(x: Tensor, sizes: list[int] | None = None, *, axis: int = 0, num_outputs: int = 1) -> tuple[Tensor, ...]:
    return tuple(torch.split(x, -(-x.shape[axis] // num_outputs) if sizes is None else sizes, axis))


def _slice(
    x: Tensor, starts: list[int], ends: list[int], axes: list[int] | None = None, steps: list[int] | None = None
) -> Tensor:
    window = [slice(None)] * x.dim()
    for index, axis in enumerate(range(len(starts)) if axes is None else axes):
        window[axis] = slice(starts[index], ends[index], steps[index] if steps else 1)
    return x[tuple(window)]


def _gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return x[(slice(None),) * (axis % x.dim()) + (indices,)]


def _gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    return x[tuple(indices.unbind(-1))]


def _pad(x: Tensor, pads: list[int], value: float | None = None, axes: list[int] | None = None) -> Tensor:
    amounts = [0] * (2 * x.dim())
    for index, axis in enumerate(range(x.dim()) if axes is None else axes):
        last = 2 * (x.dim() - 1 - axis % x.dim())  # PyTorch counts axes from the last
        amounts[last], amounts[last + 1] = pads[index], pads[index + len(pads) // 2]
    return functional.pad(x, amounts, value=value or 0)


def _reduce_mean(x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1) -> Tensor:
    return torch.mean(x, tuple(range(x.dim()) if axes is None else axes), keepdim=bool(keepdims))


def _gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    a, b = a.T if transA else a, b if transB else b.T
    if alpha == beta == 1 and (c is None or c.dim() == 1):
        return functional.linear(a, b, c)
    product = alpha * functional.linear(a, b)
    return product if c is None else product + beta * c


def _even(x: Tensor, pads: Sequence[int] | None, fill: float) -> tuple[Tensor, tuple[int, ...]]:
    """Return the input and the padding that PyTorch adds: as much before as after, the rest is added here."""
    rank = x.dim() - 2
    pads = tuple(pads or (0,) * (2 * rank))
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    amounts = [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
    return functional.pad(x, amounts, value=fill), (0,) * rank


def _conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None, group: int = 1,
) -> Tensor:  # fmt: skip
    x, padding = _even(x, pads, 0.0)
    rank = x.dim() - 2
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    return convolve(x, w, b, strides or (1,) * rank, padding, dilations or (1,) * rank, group)


def _max_pool(
    x: Tensor, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    x, padding = _even(x, pads, -math.inf)
    rank = x.dim() - 2
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    return pool(x, kernel_shape, strides or (1,) * rank, padding, dilations or (1,) * rank)


def _average_pool(
    x: Tensor, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    padded, padding = _even(x, pads, 0.0)
    rank = x.dim() - 2
    pool = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    strides = strides or (1,) * rank
    if padded is x or count_include_pad:
        return pool(padded, kernel_shape, strides, padding, count_include_pad=bool(count_include_pad))
    counted, _ = _even(torch.ones_like(x[:1, :1]), pads, 0.0)
    return pool(padded, kernel_shape, strides) / pool(counted, kernel_shape, strides)


def _global_average_pool(x: Tensor) -> Tensor:
    return torch.mean(x, tuple(range(2, x.dim())), keepdim=True)


def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = EPSILON,
    momentum: float = 0.9, training_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Normalise; in training the statistics, which are buffers, learn in place."""
    return functional.batch_norm(x, mean, variance, scale, bias, bool(training_mode), 1 - momentum, epsilon)


def _layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = EPSILON
) -> Tensor:
    return functional.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = EPSILON) -> Tensor:
    return functional.rms_norm(x, x.shape[axis:], scale, epsilon)


def _local_response_norm(
    x: Tensor, *, size: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    return functional.local_response_norm(x, size, alpha, beta, bias)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, is_causal: int = 0, scale: float | None = None,
    q_num_heads: int = 0, kv_num_heads: int = 0,
) -> Tensor:  # fmt: skip
    flat = q.dim() == 3
    if flat:
        q, k, v = (
            x.unflatten(-1, (heads, -1)).transpose(1, 2)
            for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    y = functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=bool(is_causal), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2).flatten(2) if flat else y


def _conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, group: int = 1,
) -> Tensor:  # fmt: skip
    rank = x.dim() - 2
    pads, more = pads or (0,) * (2 * rank), tuple(output_padding or (0,) * rank)
    spread = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    y = spread(x, w, b, strides or (1,) * rank, 0, more, group, dilations or (1,) * rank)
    window = [slice(low, y.shape[2 + axis] - pads[rank + axis]) for axis, low in enumerate(pads[:rank])]
    return y[(..., *window)]


def _lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: None = None, h: Tensor | None = None,
    c: Tensor | None = None, *, hidden_size: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Compute one direction; ONNX stacks the gates as i, o, f, c, PyTorch as i, f, c, o."""
    weights = [
        torch.cat([part.chunk(4)[gate] for gate in (0, 2, 3, 1)])
        for part in (w[0], r[0], *(() if b is None else b[0].chunk(2)))
    ]
    start = x.new_zeros(1, x.shape[1], hidden_size)
    state = (start if h is None else h, start if c is None else c)
    y, h, c = torch.lstm(x, state, weights, b is not None, 1, 0.0, False, False, False)
    return y.unsqueeze(1), h, c


TORCH_OPERATORS: Mapping[str, TorchOperator] = {
    "Abs": _one(torch.abs),
    "Add": _one(operator.add),
    "And": _one(operator.and_),
    "Attention": TorchOperator(_attention, absent=frozenset({4, 5, 6})),
    "AveragePool": _one(_average_pool),
    "BatchNormalization": _one(_batch_norm),
    "Cast": _one(_cast),
    "Clip": _one(_clip, 1, 2),
    "Concat": _one(_concat),
    "Conv": _one(_conv),
    "ConvTranspose": _one(_conv_transpose),
    "Div": _one(_divide),
    "Dropout": TorchOperator(_dropout, frozenset({1}), absent=frozenset({2})),
    "Equal": _one(operator.eq),
    "Erf": _one(torch.erf),
    "Exp": _one(torch.exp),
    "Expand": _one(_expand, 1),
    "Flatten": _one(_flatten),
    "Gather": _one(_gather),
    "GatherND": _one(_gather_nd),
    "Gelu": _one(_gelu),
    "Gemm": _one(_gemm),
    "GlobalAveragePool": _one(_global_average_pool),
    "LRN": _one(_local_response_norm),
    "LSTM": TorchOperator(_lstm, absent=frozenset({4, 7}), several=True),
    "LayerNormalization": _one(_layer_norm),
    "Log": _one(torch.log),
    "MatMul": _one(torch.matmul),
    "MaxPool": _one(_max_pool),
    "Mul": _one(operator.mul),
    "Neg": _one(torch.neg),
    "Not": _one(torch.logical_not),
    "Pad": _one(_pad, 1, 2, 3),
    "Pow": _one(operator.pow),
    "RMSNormalization": _one(_rms_norm),
    "Reciprocal": _one(torch.reciprocal),
    "ReduceMean": _one(_reduce_mean, 1),
    "Relu": _one(torch.relu),
    "Reshape": _one(_reshape, 1),
    "Sigmoid": _one(torch.sigmoid),
    "Slice": _one(_slice, 1, 2, 3, 4),
    "Softmax": _one(_softmax),
    "Split": TorchOperator(_split, frozenset({1}), several=True),
    "Sqrt": _one(torch.sqrt),
    "Squeeze": _one(_squeeze, 1),
    "Sub": _one(operator.sub),
    "Sum": _one(_sum),
    "Tanh": _one(torch.tanh),
    "Transpose": _one(_transpose),
    "Unsqueeze": _one(_unsqueeze, 1),
    "Where": _one(torch.where),
}
