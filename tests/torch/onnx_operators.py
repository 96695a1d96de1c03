"""More of ONNX's operators as PyTorch functions, beside those of the peer: what families of networks are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graft.errors import GraftError
from graft.measure.peers.torch_operators import EPSILON, TORCH_OPERATORS, TorchOperator

REDUCED = frozenset({1})


def _identity(x: Tensor) -> Tensor:
    return x


def _padded(
    x: Tensor, pads: list[int], value: float | None = None, axes: list[int] | None = None, *, mode: str = "constant"
) -> Tensor:
    """Pad; what is mirrored are the last two axes, as PyTorch has it."""
    function = TORCH_OPERATORS["Pad"].function
    if mode == "constant":
        return function(x, pads, value, axes)  # type: ignore[no-any-return]
    rank = x.dim()
    before, after = (pads[side : side + rank] for side in (0, rank))
    if axes is not None or any((*before[:-2], *after[:-2])) or mode not in ("reflect", "edge"):
        raise GraftError(f"torch has no Pad {mode} of {pads}", peer="torch")
    amounts = [before[-1], after[-1], before[-2], after[-2]]
    return functional.pad(x, amounts, "replicate" if mode == "edge" else "reflect")


def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    return functional.instance_norm(x, None, None, scale, bias, eps=epsilon)


def _leaky(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return functional.leaky_relu(x, alpha)


def _elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return functional.elu(x, alpha)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * slope)


def _axes(x: Tensor, axes: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(x.dim()) if axes is None else axes)


def _sum(x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1) -> Tensor:
    return torch.sum(x, _axes(x, axes), keepdim=bool(keepdims))


def _largest(x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1) -> Tensor:
    return torch.amax(x, _axes(x, axes), keepdim=bool(keepdims))


def _root(x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1) -> Tensor:
    return torch.linalg.vector_norm(x, 2, _axes(x, axes), keepdim=bool(keepdims))


def _arg(name: str) -> Any:
    def function(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        return getattr(torch, name)(x, axis, keepdim=bool(keepdims))

    return function


def _top(x: Tensor, k: list[int], *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return torch.topk(x, k[0], axis, bool(largest), bool(sorted))


def _maximum(a: Tensor, *rest: Tensor) -> Tensor:
    for b in rest:
        a = torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))
    return a


def _log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


def _normalize(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    return x / torch.linalg.vector_norm(x, p, axis, keepdim=True)


def _einsum(*parts: Tensor, equation: str = "") -> Tensor:
    return torch.einsum(equation, *parts)


def _depth_to_space(x: Tensor, *, blocksize: int = 1, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return functional.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    y = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


def _gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, indices % x.shape[axis])


def _scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    given = axis, indices % x.shape[axis], updates
    return x.scatter_add(*given) if reduction == "add" else x.scatter(*given)


def _scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")


def _running_sum(x: Tensor, axis: list[int] | int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (axis,) = axis if isinstance(axis, list) else (axis,)
    x = x.flip(axis) if reverse else x
    y = torch.cumsum(x, axis)
    y = y - x if exclusive else y
    return y.flip(axis) if reverse else y


def _remainder(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def _sampled(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Tensor:
    names = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
    return functional.grid_sample(x, grid, names[mode], padding_mode, bool(align_corners))


def _resize(
    x: Tensor, roi: None = None, scales: list[float] | None = None, sizes: list[int] | None = None, *,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
) -> Tensor:  # fmt: skip
    rank = x.dim() - 2
    corners = coordinate_transformation_mode == "align_corners"
    same = coordinate_transformation_mode in ("half_pixel", "pytorch_half_pixel") or corners
    if (coordinate_transformation_mode, nearest_mode) != ("asymmetric", "floor") if mode == "nearest" else not same:
        raise GraftError(f"torch has no Resize {mode}, {coordinate_transformation_mode}", peer="torch")
    if mode == "cubic" and cubic_coeff_a != -0.75:
        raise GraftError(f"torch has no Resize with the coefficient {cubic_coeff_a}", peer="torch")
    linear = ("linear", "bilinear", "trilinear")[rank - 1]
    name = {"nearest": "nearest", "linear": linear, "cubic": "bicubic"}[mode]
    more = {} if mode == "nearest" else {"align_corners": corners}
    if sizes:
        return functional.interpolate(x, size=sizes[2:], mode=name, **more)
    assert scales
    return functional.interpolate(x, scale_factor=scales[2:], mode=name, recompute_scale_factor=False, **more)


def _recurrent(name: str, order: Sequence[int]) -> Any:
    """Return LSTM or GRU in one or both directions; PyTorch stacks gates in another order."""
    gates = len(order)

    def function(
        x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: None = None, h: Tensor | None = None,
        c: Tensor | None = None, *, hidden_size: int = 0, direction: str = "forward", linear_before_reset: int = 1,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        assert direction in ("forward", "bidirectional") and (linear_before_reset or name == "lstm")
        both = direction == "bidirectional"
        weights = [
            torch.cat([part.chunk(gates)[gate] for gate in order])
            for way in range(1 + both)
            for part in (w[way], r[way], *(() if b is None else b[way].chunk(2)))
        ]
        start = x.new_zeros(1 + both, x.shape[1], hidden_size)
        h = start if h is None else h
        state: Any = (h, start if c is None else c) if name == "lstm" else h
        y, *rest = getattr(torch, name)(x, state, weights, b is not None, 1, 0.0, False, both, False)
        return y.unflatten(-1, (1 + both, hidden_size)).transpose(1, 2), *rest

    return function


def _one(function: Any, *static: int) -> TorchOperator:
    return TorchOperator(function, frozenset(static))


OPERATORS = {
    **TORCH_OPERATORS,
    "ArgMax": _one(_arg("argmax")),
    "ArgMin": _one(_arg("argmin")),
    "Cos": _one(torch.cos),
    "CumSum": _one(_running_sum, 1),
    "DepthToSpace": _one(_depth_to_space),
    "Einsum": _one(_einsum),
    "Elu": _one(_elu),
    "GRU": TorchOperator(_recurrent("gru", (1, 0, 2)), absent=frozenset({4}), several=True),
    "GatherElements": _one(_gather_elements),
    "GridSample": _one(_sampled),
    "Identity": _one(_identity),
    "InstanceNormalization": _one(_instance_norm),
    "IsNaN": _one(torch.isnan),
    "LSTM": TorchOperator(_recurrent("lstm", (0, 2, 3, 1)), absent=frozenset({4, 7}), several=True),
    "LeakyRelu": _one(_leaky),
    "LogSoftmax": _one(_log_softmax),
    "LpNormalization": _one(_normalize),
    "Max": _one(_maximum),
    "Mod": _one(_remainder),
    "PRelu": _one(_prelu),
    "Pad": _one(_padded, 1, 2, 3),
    "ReduceL2": TorchOperator(_root, REDUCED),
    "ReduceMax": TorchOperator(_largest, REDUCED),
    "ReduceSum": TorchOperator(_sum, REDUCED),
    "Resize": _one(_resize, 1, 2, 3),
    "Round": _one(torch.round),
    "ScatterElements": _one(_scatter_elements),
    "ScatterND": _one(_scatter_nd),
    "Sin": _one(torch.sin),
    "Softplus": _one(functional.softplus),
    "TopK": TorchOperator(_top, frozenset({1}), several=True),
}
"""Operators by name."""
