"""From operators on quantised tensors to layers of integers, or why one cannot be a layer.

A layer ends in the QuantizeLinear (or is the QLinear operator) that it is read from; its names are those of tensors of
bytes. Where ONNX says what is computed in floats, the integers give the same number before it is rounded: products of
bytes and their sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.model.passes.node_rewrite import attribute_of, constant_of, is_operator, static_shape
from graft.core.model.passes.quantized_tensors import RANGES, Quantization, dequantized, quantization, quantization_of
from graft.core.model.view import NodeView
from graft.core.operators.windows import windows_of
from graft.core.reject import Reject
from graft.plugins.accelerator.layers import (
    HIGHEST,
    LOWEST,
    Activation,
    Addition,
    Array,
    Concatenation,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Product,
    Requantization,
    Requantize,
)

UNSIGNED = 128
"""What is subtracted from unsigned bytes, and from their zero points."""
Naming = Callable[[ir.Value], str]


class Refusal(Exception):
    """Why a node is no layer."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reject = Reject(code, text)


@dataclass(frozen=True, slots=True)
class Tail:
    """What a layer ends in: the meaning of its result, its limits in signed bytes, and the node before them."""

    value: ir.Value
    meaning: Quantization
    core: ir.Node
    lower: int
    upper: int


def read(root: ir.Node, name: Naming) -> Layer:
    """Return the layer that ends in ``root``; raise Refusal with the reason where there is none."""
    if is_operator(root, "QLinearConv", "QLinearMatMul"):
        return _qlinear(root, name)
    tail = _tail(root)
    reader = READERS.get(tail.core.op_type)
    if reader is None or tail.core.domain not in ("", "ai.onnx"):
        raise Refusal("no-pattern", f"no instruction computes {tail.core.op_type}")
    return reader(tail, name)


def _tail(root: ir.Node) -> Tail:
    meaning = _per_tensor(quantization_of(root, "QuantizeLinear"), "the result")
    lower, upper, value = LOWEST, HIGHEST, root.inputs[0]
    output = root.outputs[0]
    if output.dtype not in RANGES:
        raise Refusal("dtype", f"the result is {output.dtype}, and only bytes are stored")
    while value is not None and (node := value.producer()) is not None:
        if is_operator(node, "Relu"):
            bounds: tuple[float, float] = (0.0, math.inf)
        elif is_operator(node, "Clip"):
            bounds = (_bound(node, 1, -math.inf), _bound(node, 2, math.inf))
        else:
            return Tail(output, meaning, node, lower, upper)
        least, most = (_saturated(bound, meaning, output.dtype) for bound in bounds)
        lower, upper = (min(max(one, lower), upper) for one in (least, most))
        value = node.inputs[0]
    raise Refusal("no-pattern", "what is quantised is computed by nothing")


def _bound(node: ir.Node, index: int, default: float) -> float:
    value = node.inputs[index] if len(node.inputs) > index else None
    if value is None:
        return default
    array = constant_of(value)
    if array is None or array.size != 1:
        raise Refusal("constant-required", f"a bound of Clip '{node.name}' is computed at run time")
    return float(array.reshape(-1)[0])


def _saturated(number: float, meaning: Quantization, dtype: ir.DataType) -> int:
    """Return a number as it is quantised, in signed bytes."""
    low, high = RANGES[dtype]
    whole = np.rint(np.float32(number) / meaning.factor) + meaning.point
    return int(min(max(whole, low), high)) - _shift(dtype)


def _shift(dtype: ir.DataType | None) -> int:
    return UNSIGNED if dtype is ir.DataType.UINT8 else 0


def _per_tensor(found: Quantization | None, what: str) -> Quantization:
    if found is None:
        raise Refusal("constant-required", f"scale or zero point of {what} is no constant of a supported type")
    if not found.per_tensor:
        raise Refusal("attribute", f"{what} has a scale for each channel; one for the tensor is needed")
    return found


# ---- Tensors ------------------------------------------------------------------------------------------------------


def _shape(value: ir.Value) -> tuple[int, ...]:
    shape = static_shape(value)
    if shape is None:
        raise Refusal("dynamic-shape", f"the shape of '{value.name}' is not known at compile time")
    if not all(shape):
        raise Refusal("shape", f"'{value.name}' has no elements")
    return shape


def view_of(shape: tuple[int, ...], *, is_matrix: bool) -> tuple[int, int, int, int]:
    """Return batch, channels, height and width; a matrix has its last axis as channels."""
    if len(shape) == 4 and not is_matrix:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) < 2 or len(shape) > 4:
        raise Refusal("rank", f"a tensor has {len(shape)} axes, and 2 to 4 are supported")
    return math.prod(shape[:-2]), shape[-1], shape[-2], 1


def _activation(value: ir.Value, meaning: Quantization, name: Naming, *, is_matrix: bool = False) -> Activation:
    batch, channels, height, width = view_of(_shape(value), is_matrix=is_matrix)
    return Activation(
        name(value), channels, height, width, batch, float(meaning.factor), meaning.point - _shift(value.dtype)
    )


def _operand(value: ir.Value | None, name: Naming, *, is_matrix: bool = False) -> Activation:
    found = dequantized(value)
    if found is None or value is None:
        raise Refusal("dtype", f"an operand is not dequantised from bytes: {'absent' if value is None else value.name}")
    if found[0].dtype not in RANGES:
        raise Refusal("dtype", f"'{found[0].name}' is no tensor of bytes")
    return _activation(found[0], _per_tensor(found[1], f"'{found[0].name}'"), name, is_matrix=is_matrix)


def _weights(found: tuple[ir.Value, Quantization] | None, axis: int) -> tuple[Array, Array]:
    """Return constant weights less their zero points, the output channels first, and their scales."""
    array = None if found is None else constant_of(found[0])
    if found is None or array is None:
        raise Refusal("constant-required", "the weights are computed at run time")
    if found[0].dtype not in RANGES:
        raise Refusal("dtype", f"the weights are {found[0].dtype}, and bytes are multiplied")
    meaning = found[1]
    if not meaning.per_tensor and meaning.axis % array.ndim != axis % array.ndim:
        raise Refusal("attribute", f"the weights have scales along axis {meaning.axis}, not for each output channel")
    array = np.moveaxis(array.astype(np.int16), axis, 0)
    centred = array - meaning.zero.reshape(-1, *[1] * (array.ndim - 1))
    return centred.astype(np.int16), meaning.scale.reshape(-1)


def _bias(value: ir.Value | None, channels: int, scale: Array) -> Array:
    """Return a bias as integers of the sums' scale; what is not whole is refused."""
    if value is None:
        return np.zeros(channels, np.int32)
    found, scale = dequantized(value), np.broadcast_to(scale, channels)
    array = constant_of(value if found is None else found[0])
    if array is None or array.size not in (1, channels):
        raise Refusal("constant-required", "the bias is no constant of one number for each output channel")
    whole = array.reshape(-1)
    if found is not None:
        same = np.allclose(found[1].scale.reshape(-1), scale, rtol=1e-5, atol=0) and not found[1].zero.any()
        if same and found[0].dtype is ir.DataType.INT32:
            return np.broadcast_to(whole, channels).astype(np.int32)
        whole = ((whole - found[1].zero) * found[1].scale).reshape(-1)
    exact = np.broadcast_to(whole.astype(np.float64), channels) / scale.astype(np.float64)
    if not np.array_equal(exact, np.rint(exact)) or np.abs(exact).max() >= 2**31:
        raise Refusal("accuracy", "the bias is no whole multiple of the product of the operands' scales")
    return exact.astype(np.int32)


def _check_sums(weights: Array) -> None:
    """Refuse sums that could leave 32 bits."""
    most = int(np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1).max()) * 255
    if most >= 2**31:
        raise Refusal("size", f"sums of products may reach {most}, and accumulators hold {2**31 - 1}")


# ---- Operators ----------------------------------------------------------------------------------------------------


def _requantize(tail: Tail, bias: Array, multiplier: Array) -> Requantize:
    return Requantize(bias, multiplier, float(tail.meaning.factor), False, tail.lower, tail.upper)


def _convolution(tail: Tail, name: Naming) -> Layer:
    node = tail.core
    weights, scale = _weights(dequantized(node.inputs[1]), 0)
    x = _operand(node.inputs[0], name)
    multiplier = np.float32(x.scale) * scale
    bias = _bias(node.inputs[2] if len(node.inputs) > 2 else None, len(weights), multiplier)
    requantize = _requantize(tail, bias, multiplier)
    return _sliding(node, x, _activation(tail.value, tail.meaning, name), weights, requantize)


def _sliding(node: ir.Node, x: Activation, y: Activation, weights: Array, requantize: Requantize) -> Layer:
    if weights.ndim != 4:
        raise Refusal("rank", f"a convolution along {weights.ndim - 2} axes; it must be along 2")
    _check_sums(weights)
    kernel, strides, pads, dilations = _windows(node, x, y, weights.shape[2:])
    del kernel
    groups = attribute_of(node, "group", 1)
    return Convolution(y.name, x, y, weights, requantize, strides, pads, dilations, groups)


def _windows(
    node: ir.Node, x: Activation, y: Activation, kernel: tuple[int, ...]
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int], tuple[int, int]]:
    """Return kernel, strides, pads and dilations of a node."""
    found = windows_of(NodeView(node), (x.height, x.width), kernel, (y.height, y.width))
    pads = (found.begins[0], found.begins[1], found.ends[0], found.ends[1])
    return (
        (kernel[0], kernel[1]),
        (found.strides[0], found.strides[1]),
        pads,
        (found.dilations[0], found.dilations[1]),
    )


def _product(tail: Tail, name: Naming) -> Layer:
    return _multiplied(tail, tail.core, None, name)


def _multiplied(tail: Tail, node: ir.Node, bias: ir.Value | None, name: Naming) -> Layer:
    left = _operand(node.inputs[0], name, is_matrix=True)
    found = dequantized(node.inputs[1])
    y = _activation(tail.value, tail.meaning, name, is_matrix=True)
    if found is not None and constant_of(found[0]) is None:
        right = _operand(node.inputs[1], name, is_matrix=True)
        if right.batch != left.batch:
            raise Refusal("shape", f"{left.batch} matrices are multiplied by {right.batch}; one number is needed")
        multiplier = np.array([np.float32(left.scale) * np.float32(right.scale)], np.float32)
        return Product(y.name, left, right, y, _requantize(tail, _bias(bias, y.channels, multiplier), multiplier))
    weights, scale = _weights(found, -1)
    return _by_constant(tail, (left, weights, scale, y), bias)


def _by_constant(tail: Tail, operands: tuple[Activation, Array, Array, Activation], bias: ir.Value | None) -> Layer:
    left, weights, scale, y = operands
    if weights.ndim != 2:
        raise Refusal("rank", f"constant weights have {weights.ndim} axes, and a matrix is needed")
    _check_sums(weights)
    multiplier = np.float32(left.scale) * scale
    requantize = _requantize(tail, _bias(bias, len(weights), multiplier), multiplier)
    return Product(y.name, left, np.ascontiguousarray(weights.T), y, requantize)


def _gemm(tail: Tail, name: Naming) -> Layer:
    node = tail.core
    if attribute_of(node, "alpha", 1.0) != 1 or attribute_of(node, "beta", 1.0) != 1 or attribute_of(node, "transA", 0):
        raise Refusal("attribute", "Gemm with alpha, beta or transA")
    left = _operand(node.inputs[0], name, is_matrix=True)
    weights, scale = _weights(dequantized(node.inputs[1]), 0 if attribute_of(node, "transB", 0) else 1)
    y = _activation(tail.value, tail.meaning, name, is_matrix=True)
    return _by_constant(tail, (left, weights, scale, y), node.inputs[2] if len(node.inputs) > 2 else None)


def _addition(tail: Tail, name: Naming) -> Layer:
    node = tail.core
    for product, bias in (node.inputs, node.inputs[::-1]):
        maker = None if product is None else product.producer()
        if maker is not None and is_operator(maker, "MatMul"):
            return _multiplied(tail, maker, bias, name)
    left, right = (_operand(value, name) for value in node.inputs)
    y = _activation(tail.value, tail.meaning, name)
    if constant_of(_bytes(node.inputs[0])) is not None or constant_of(_bytes(node.inputs[1])) is not None:
        raise Refusal("no-pattern", "a constant is added; only the bias of a product is")
    if left.shape != y.shape or right.shape != y.shape:
        raise Refusal("shape", f"tensors of {left.shape} and {right.shape} are added; equal shapes are needed")
    return Addition(y.name, left, right, y, tail.lower, tail.upper)


def _bytes(value: ir.Value | None) -> ir.Value | None:
    found = dequantized(value)
    return None if found is None else found[0]


def _pooling(tail: Tail, name: Naming) -> Layer:
    node = tail.core
    x, y = _operand(node.inputs[0], name), _activation(tail.value, tail.meaning, name)
    if len(_shape(tail.value)) != 4:
        raise Refusal("rank", "pooling is along two axes")
    kind = PoolingKind.MAX if "Max" in node.op_type else PoolingKind.AVERAGE
    if node.op_type.startswith("Global"):
        return Pooling(y.name, kind, x, y, (x.height, x.width), lower=tail.lower, upper=tail.upper)
    kernel, strides, pads, dilations = _windows(node, x, y, tuple(attribute_of(node, "kernel_shape", ())))
    counts = bool(attribute_of(node, "count_include_pad", 0))
    if attribute_of(node, "ceil_mode", 0) and counts:
        raise Refusal("attribute", "ceil_mode with count_include_pad")
    return Pooling(y.name, kind, x, y, kernel, strides, pads, dilations, counts, tail.lower, tail.upper)


def _mean(tail: Tail, name: Naming) -> Layer:
    node = tail.core
    x, shape = _operand(node.inputs[0], name), _shape(tail.value)
    axes = constant_of(node.inputs[1])
    source = static_shape(_bytes(node.inputs[0])) or ()
    if len(source) != 4 or axes is None or sorted(int(axis) % 4 for axis in axes.reshape(-1)) != [2, 3]:
        raise Refusal("attribute", "a mean is taken over the last two axes of four, and over no others")
    meaning = tail.meaning
    zero = meaning.point - _shift(tail.value.dtype)
    y = Activation(name(tail.value), shape[1], 1, 1, shape[0], float(meaning.factor), zero)
    if len(shape) == 2 and shape[0] != 1:
        raise Refusal("shape", "a mean without its axes is taken of one image")
    return Pooling(y.name, PoolingKind.AVERAGE, x, y, (x.height, x.width), lower=tail.lower, upper=tail.upper)


def _concatenation(tail: Tail, name: Naming) -> Layer:
    shape = _shape(tail.value)
    axis = attribute_of(tail.core, "axis", 0) % len(shape)
    y = _activation(tail.value, tail.meaning, name)
    if axis != (1 if len(shape) == 4 else len(shape) - 1):
        raise Refusal("attribute", f"tensors are concatenated along axis {axis}; channels are needed")
    inputs = tuple(_operand(value, name) for value in tail.core.inputs)
    return Concatenation(y.name, inputs, y, tail.lower, tail.upper)


def _requantization(tail: Tail, name: Naming) -> Layer:
    y = _activation(tail.value, tail.meaning, name)
    source = tail.core.outputs[0]
    if constant_of(_bytes(source)) is not None:
        raise Refusal("no-pattern", "a constant is quantised anew")
    return Requantization(y.name, _operand(source, name), y, tail.lower, tail.upper)


def _qlinear(node: ir.Node, name: Naming) -> Layer:
    inputs, output = node.inputs, node.outputs[0]
    is_matrix = node.op_type == "QLinearMatMul"
    meaning = _per_tensor(quantization(inputs[6], inputs[7], 0), "the result")
    given = _per_tensor(quantization(inputs[1], inputs[2], 0), "the input")
    if inputs[0] is None or inputs[3] is None or output.dtype not in RANGES or inputs[0].dtype not in RANGES:
        raise Refusal("dtype", f"{node.op_type} of other types than bytes")
    x = _activation(inputs[0], given, name, is_matrix=is_matrix)
    y = _activation(output, meaning, name, is_matrix=is_matrix)
    of_weights = quantization(inputs[4], inputs[5], -1 if is_matrix else 0)
    if of_weights is None:
        raise Refusal("constant-required", "scales of the weights are no constants")
    if is_matrix and constant_of(inputs[3]) is None:
        right = _activation(inputs[3], _per_tensor(of_weights, "the right-hand side"), name, is_matrix=True)
        if right.batch != x.batch:
            raise Refusal("shape", f"{x.batch} matrices are multiplied by {right.batch}; one number is needed")
        factor = np.array([np.float32(x.scale) * of_weights.factor / meaning.factor], np.float32)
        return Product(y.name, x, right, y, Requantize(np.zeros(1, np.int32), factor, wide=True))
    weights, scale = _weights((inputs[3], of_weights), -1 if is_matrix else 0)
    multiplier = (np.float32(x.scale) * scale / meaning.factor).astype(np.float32)
    whole = constant_of(inputs[8]) if len(inputs) > 8 and inputs[8] is not None else np.zeros(len(weights), np.int32)
    if whole is None:
        raise Refusal("constant-required", "the bias is computed at run time")
    requantize = Requantize(whole.astype(np.int32), multiplier, wide=True)
    if not is_matrix:
        return _sliding(node, x, y, weights, requantize)
    if weights.ndim != 2:
        raise Refusal("rank", f"constant weights have {weights.ndim} axes, and a matrix is needed")
    _check_sums(weights)
    return Product(y.name, x, np.ascontiguousarray(weights.T), y, requantize)


READERS: dict[str, Callable[[Tail, Naming], Layer]] = {
    "Conv": _convolution,
    "MatMul": _product,
    "Gemm": _gemm,
    "Add": _addition,
    "MaxPool": _pooling,
    "GlobalMaxPool": _pooling,
    "AveragePool": _pooling,
    "GlobalAveragePool": _pooling,
    "ReduceMean": _mean,
    "Concat": _concatenation,
    "DequantizeLinear": _requantization,
}
"""What reads the node before a layer's limits."""
