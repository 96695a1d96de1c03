"""What layers mean, in NumPy, apart from everything that the code generator knows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.frontend.layers import (
    Activation,
    Addition,
    Concatenation,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Product,
    Requantization,
    Requantize,
)

Array = npt.NDArray[Any]


def evaluate(layer: Layer, values: Mapping[str, Array]) -> Array:
    """Return the int8 output [batch, channels, height, width] of a layer for its inputs by name."""
    match layer:
        case Convolution(requantize=requantize):
            return _requantized(_convolved(layer, values[layer.input.name]), requantize, layer.output.zero_point)
        case Product(left=left, right=right, requantize=requantize):
            x = values[left.name][..., 0].astype(np.int64) - left.zero_point
            if isinstance(right, Activation):
                w = values[right.name][..., 0].transpose(0, 2, 1).astype(np.int64) - right.zero_point
            else:
                w = right.astype(np.int64)
            sums = x.transpose(0, 2, 1) @ w
            return _requantized(sums.transpose(0, 2, 1)[..., None], requantize, layer.output.zero_point)
        case Addition(left=left, right=right):
            total = _real(left, values) + _real(right, values)
            return _quantized(total, layer.output, layer.lower, layer.upper)
        case Pooling():
            return _pooled(layer, values)
        case Concatenation(inputs=inputs):
            real = np.concatenate([_real(one, values) for one in inputs], axis=1)
            return _quantized(real, layer.output, layer.lower, layer.upper)
        case Requantization():
            return _quantized(_real(layer.input, values), layer.output, layer.lower, layer.upper)
        case _:
            assert_never(layer)


def _real(tensor: Activation, values: Mapping[str, Array]) -> Array:
    shifted = values[tensor.name].astype(np.int32) - tensor.zero_point
    return shifted.astype(np.float32) * np.float32(tensor.scale)


def _quantized(real: Array, output: Activation, lower: int, upper: int) -> Array:
    whole = np.rint(real / np.float32(output.scale)).astype(np.int64) + output.zero_point
    return np.clip(whole, lower, upper).astype(np.int8)


def _requantized(sums: Array, requantize: Requantize, zero: int) -> Array:
    bias, multiplier = (one.reshape(1, -1, 1, 1) for one in (requantize.bias, requantize.multiplier))
    total = sums.astype(np.int32) + bias
    if requantize.wide:
        whole = np.rint(total.astype(np.float64) * multiplier.astype(np.float64) + zero)
    else:
        whole = np.rint(total.astype(np.float32) * multiplier / np.float32(requantize.divisor)).astype(np.int64) + zero
    return np.clip(whole, requantize.lower, requantize.upper).astype(np.int8)


def _windows(x: Array, extents: tuple[int, int], kernel: tuple[int, int], layer: Convolution | Pooling) -> list[Array]:
    """The numbers at each place of the kernel, by output; ``x`` is padded far enough."""
    found = []
    for row, column in product(*map(range, kernel)):
        down, across = row * layer.dilations[0], column * layer.dilations[1]
        part = x[:, :, down :: layer.strides[0], across :: layer.strides[1]]
        found.append(part[:, :, : extents[0], : extents[1]])
    return found


def _padded(x: Array, layer: Convolution | Pooling, fill: int) -> Array:
    top, left, _, _ = layer.pads
    return np.pad(x, ((0, 0), (0, 0), (top, 40), (left, 40)), constant_values=fill)


def _convolved(layer: Convolution, x: Array) -> Array:
    wide = _padded(x.astype(np.int64) - layer.input.zero_point, layer, 0)
    outputs, inputs, *kernel = layer.weights.shape
    sums = np.zeros(layer.output.shape, np.int64)
    windows = _windows(wide, layer.output.shape[2:], (kernel[0], kernel[1]), layer)
    taps = layer.weights.reshape(outputs, inputs, -1).astype(np.int64)
    for group in range(layer.groups):
        rows = slice(group * outputs // layer.groups, (group + 1) * outputs // layer.groups)
        channels = slice(group * inputs, (group + 1) * inputs)
        for tap, window in enumerate(windows):
            sums[:, rows] += np.einsum("oc,bchw->bohw", taps[rows, :, tap], window[:, channels])
    return sums


def _pooled(layer: Pooling, values: Mapping[str, Array]) -> Array:
    x, extents = values[layer.input.name], layer.output.shape[2:]
    if layer.kind is PoolingKind.MAX:
        largest = np.max(_windows(_padded(x, layer, -128), extents, layer.kernel, layer), axis=0)
        return _quantized(_real(layer.input, {layer.input.name: largest}), layer.output, layer.lower, layer.upper)
    shifted = x.astype(np.int32) - layer.input.zero_point
    sums = np.sum(_windows(_padded(shifted, layer, 0), extents, layer.kernel, layer), axis=0)
    factor = np.float32(layer.input.scale) / np.float32(layer.kernel[0] * layer.kernel[1])
    return _quantized(sums.astype(np.int32).astype(np.float32) * factor, layer.output, layer.lower, layer.upper)
