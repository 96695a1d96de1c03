"""Rows of ATen operators that activate neurons, each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graft.torch.aten.builder import HALVES, Builder, Tensor, require
from graft.torch.aten.elementwise import clamp, expm1

aten = torch.ops.aten
Number = Any
Row = Callable[..., Any]


def in_float32(compute: Callable[..., Tensor]) -> Row:
    """Return a row whose function computes 16-bit floats in float32."""

    def row(b: Builder, out: Any, x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        require(x.is_float, "an activation of integers")
        wide = torch.float32 if x.dtype in HALVES else x.dtype
        return b.cast(compute(b, b.cast(x, wide), *arguments, **named), out.dtype)

    return row


def _gelu(b: Builder, x: Tensor, approximate: str = "none") -> Tensor:
    return b.op("Gelu", x, approximate=approximate)


def _leaky_relu(b: Builder, x: Tensor, slope: float = 0.01) -> Tensor:
    if x.dtype == torch.float32:
        return b.op("LeakyRelu", x, alpha=float(slope))
    low = b.op("Mul", x, b.constant(slope, x.dtype))  # an attribute is a float32
    return b.where(b.compare("Greater", x, b.constant(0, x.dtype)), x, low)


def _elu(b: Builder, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if scale == 1 and input_scale == 1 and x.dtype == torch.float32:
        return b.op("Elu", x, alpha=float(alpha))
    low = expm1(b, b.op("Mul", x, b.constant(input_scale, x.dtype)))
    low = b.op("Mul", low, b.constant(alpha * scale, x.dtype))
    return b.where(b.compare("Greater", x, b.constant(0, x.dtype)), b.op("Mul", x, b.constant(scale, x.dtype)), low)


def _silu(b: Builder, x: Tensor) -> Tensor:
    return b.op("Mul", x, b.op("Sigmoid", x))


def _hardsigmoid(b: Builder, x: Tensor) -> Tensor:
    shifted = b.op("Add", x, b.constant(3, x.dtype))
    limited = b.op("Min", b.op("Max", shifted, b.constant(0, x.dtype)), b.constant(6, x.dtype))
    return b.op("Div", limited, b.constant(6, x.dtype))


def _hardswish(b: Builder, x: Tensor) -> Tensor:
    return b.op("Mul", x, _hardsigmoid(b, x))


def _softplus(b: Builder, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled_x = b.op("Mul", x, b.constant(beta, x.dtype))
    soft = b.op("Div", b.op("Softplus", scaled_x), b.constant(beta, x.dtype))
    return b.where(b.compare("Greater", scaled_x, b.constant(threshold, x.dtype)), x, soft)


def hardtanh(b: Builder, out: Any, x: Tensor, low: Number = -1, high: Number = 1) -> Tensor:
    return clamp(b, out, x, low, high)


def relu(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Relu", x) if x.is_float else b.op("Max", x, b.constant(0, x.dtype))


ROWS: dict[Any, Row] = {
    aten.elu.default: in_float32(_elu),
    aten.gelu.default: in_float32(_gelu),
    aten.hardsigmoid.default: in_float32(_hardsigmoid),
    aten.hardswish.default: in_float32(_hardswish),
    aten.hardtanh.default: hardtanh,
    aten.leaky_relu.default: in_float32(_leaky_relu),
    aten.relu.default: relu,
    aten.silu.default: in_float32(_silu),
    aten.softplus.default: in_float32(_softplus),
}
"""Activations by overload."""
