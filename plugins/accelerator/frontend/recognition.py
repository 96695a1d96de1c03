"""From operators on quantised tensors to layers of integers, or why one cannot be a layer.

A layer ends in the QuantizeLinear that it is read from, or is a QLinear operator, or takes bytes as they are; its names
are those of tensors of bytes. Where ONNX says what is computed in floats, the integers give the same number before it
is rounded: products of bytes and their sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.images.windows import windows_of
from graft.core.passes.integer.quantized_tensors import RANGES, Quantization, dequantized, quantization, quantization_of
from graft.core.rewriting.node_rewrite import attribute_of, constant_of, is_operator, static_shape
from graft.plugins.accelerator.frontend import layers
from graft.plugins.accelerator.frontend.operands import (
    Form,
    Refusal,
    Scope,
    activation_of,
    bias_of,
    check_sums,
    operand_of,
    per_tensor,
    shape_of,
    shift,
    weights_of,
)
from graft.plugins.accelerator.frontend.operators import ALONE, KINDS, Kind


@dataclass(frozen=True, slots=True)
class Tail:
    """What a layer ends in: the meaning of its result, its limits in signed bytes, and the node before them."""

    value: ir.Value
    meaning: Quantization
    core: ir.Node
    lower: int
    upper: int


def read(root: ir.Node, scope: Scope) -> layers.Layer:
    """Return the layer that ends in ``root``; raise Refusal with the reason where there is none."""
    if is_operator(root, "QLinearConv", "QLinearMatMul"):
        return _qlinear(root, scope)
    if is_operator(root, *ALONE):
        return _alone(root, scope)
    tail = _tail(root)
    kind = KINDS.get(tail.core.op_type) if tail.core.domain in ("", "ai.onnx") else None
    if kind is None:
        raise Refusal("no-pattern", f"no instruction computes {tail.core.op_type}")
    return READERS[kind](tail, scope)


def _tail(root: ir.Node) -> Tail:
    meaning = per_tensor(quantization_of(root, "QuantizeLinear"), "the result")
    lower, upper, value = layers.LOWEST, layers.HIGHEST, root.inputs[0]
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
    return int(min(max(whole, low), high)) - shift(dtype)


# ---- Operators ----------------------------------------------------------------------------------------------------


def _requantize(tail: Tail, bias: layers.Array, multiplier: layers.Array) -> layers.Requantize:
    return layers.Requantize(bias, multiplier, float(tail.meaning.factor), False, tail.lower, tail.upper)


def _convolution(tail: Tail, scope: Scope) -> layers.Layer:
    node = tail.core
    kernel, scale = weights_of(dequantized(node.inputs[1]), 0)
    x = operand_of(node.inputs[0], scope, Form.CHANNELS)
    multiplier = np.float32(x.scale) * scale
    added = bias_of(node.inputs[2] if len(node.inputs) > 2 else None, len(kernel), multiplier)
    y = activation_of(tail.value, tail.meaning, scope, Form.CHANNELS)
    return _sliding(node, x, y, kernel, _requantize(tail, added, multiplier))


def _sliding(
    node: ir.Node, x: layers.Activation, y: layers.Activation, kernel: layers.Array, requantize: layers.Requantize
) -> layers.Layer:
    if kernel.ndim not in (3, 4):
        raise Refusal("rank", f"a convolution along {kernel.ndim - 2} axes; it must be along 1 or 2")
    check_sums(kernel)
    windows = _windows(node, x, y, kernel.shape[2:])
    kernel = kernel.reshape(*kernel.shape[:2], *windows.kernel)
    groups = attribute_of(node, "group", 1)
    return layers.Convolution(
        y.name, x, y, kernel, requantize, windows.strides, windows.pads, windows.dilations, groups
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along two axes: those of sequences are one wide. Pads are top, left, bottom, right."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]


def _windows(node: ir.Node, x: layers.Activation, y: layers.Activation, kernel: Sequence[int]) -> Windows:
    axes = len(kernel)
    found = windows_of(NodeView(node), x.shape[2 : 2 + axes], kernel, y.shape[2 : 2 + axes])

    def both(numbers: Sequence[int], default: int) -> tuple[int, int]:
        first, *rest = numbers
        return first, rest[0] if rest else default

    before, behind = both(found.begins, 0), both(found.ends, 0)
    return Windows(both(kernel, 1), both(found.strides, 1), (*before, *behind), both(found.dilations, 1))


def _product(tail: Tail, scope: Scope) -> layers.Layer:
    return _multiplied(tail, tail.core, None, scope)


def _multiplied(tail: Tail, node: ir.Node, bias: ir.Value | None, scope: Scope) -> layers.Layer:
    left = operand_of(node.inputs[0], scope, Form.MATRIX)
    found = dequantized(node.inputs[1])
    y = activation_of(tail.value, tail.meaning, scope, Form.MATRIX)
    if found is not None and constant_of(found[0]) is None:
        right = operand_of(node.inputs[1], scope, Form.MATRIX)
        if right.batch != left.batch:
            raise Refusal("shape", f"{left.batch} matrices are multiplied by {right.batch}; one number is needed")
        multiplier = np.array([np.float32(left.scale) * np.float32(right.scale)], np.float32)
        return layers.Product(
            y.name, left, right, y, _requantize(tail, bias_of(bias, y.channels, multiplier), multiplier)
        )
    weights, scale = weights_of(found, -1)
    return _by_constant(tail, (left, weights, scale, y), bias)


def _by_constant(
    tail: Tail, operands: tuple[layers.Activation, layers.Array, layers.Array, layers.Activation], bias: ir.Value | None
) -> layers.Layer:
    left, weights, scale, y = operands
    if weights.ndim != 2:
        raise Refusal("rank", f"constant weights have {weights.ndim} axes, and a matrix is needed")
    check_sums(weights)
    multiplier = np.float32(left.scale) * scale
    requantize = _requantize(tail, bias_of(bias, len(weights), multiplier), multiplier)
    return layers.Product(y.name, left, np.ascontiguousarray(weights.T), y, requantize)


def _gemm(tail: Tail, scope: Scope) -> layers.Layer:
    node = tail.core
    if attribute_of(node, "alpha", 1.0) != 1 or attribute_of(node, "beta", 1.0) != 1 or attribute_of(node, "transA", 0):
        raise Refusal("attribute", "Gemm with alpha, beta or transA")
    left = operand_of(node.inputs[0], scope, Form.MATRIX)
    weights, scale = weights_of(dequantized(node.inputs[1]), 0 if attribute_of(node, "transB", 0) else 1)
    y = activation_of(tail.value, tail.meaning, scope, Form.MATRIX)
    return _by_constant(tail, (left, weights, scale, y), node.inputs[2] if len(node.inputs) > 2 else None)


def _addition(tail: Tail, scope: Scope) -> layers.Layer:
    node = tail.core
    for product, bias in (node.inputs, node.inputs[::-1]):
        maker = None if product is None else product.producer()
        if maker is not None and is_operator(maker, "MatMul"):
            return _multiplied(tail, maker, bias, scope)
    form = _form_of(scope, *node.inputs)
    left, right = (operand_of(value, scope, form) for value in node.inputs)
    y = activation_of(tail.value, tail.meaning, scope, form)
    if constant_of(_bytes(node.inputs[0])) is not None or constant_of(_bytes(node.inputs[1])) is not None:
        raise Refusal("no-pattern", "a constant is added; only the bias of a product is")
    if left.shape != y.shape or right.shape != y.shape:
        raise Refusal("shape", f"tensors of {left.shape} and {right.shape} are added; equal shapes are needed")
    return layers.Addition(y.name, left, right, y, tail.lower, tail.upper)


def _form_of(scope: Scope, *operands: ir.Value | None) -> Form:
    """Return how the operands of what works number by number are seen: as one of them already is."""
    values = [found for value in operands if (found := _bytes(value)) is not None]
    return Form.CHANNELS if any(map(scope.is_sequence, values)) else Form.ANY


def _bytes(value: ir.Value | None) -> ir.Value | None:
    found = dequantized(value)
    return None if found is None else found[0]


def _pooling(tail: Tail, scope: Scope) -> layers.Layer:
    node = tail.core
    x = operand_of(node.inputs[0], scope, Form.CHANNELS)
    y = activation_of(tail.value, tail.meaning, scope, Form.CHANNELS)
    return _pooled(node, x, y, (tail.lower, tail.upper))


def _pooled(node: ir.Node, x: layers.Activation, y: layers.Activation, limits: tuple[int, int]) -> layers.Layer:
    kind = layers.PoolingKind.MAX if KINDS[node.op_type] == "maximum" else layers.PoolingKind.AVERAGE
    if len(node.outputs) > 1:
        raise Refusal("no-pattern", "where the largest numbers were is not computed")
    if node.op_type.startswith("Global"):
        return layers.Pooling(y.name, kind, x, y, (x.height, x.width), lower=limits[0], upper=limits[1])
    one = _windows(node, x, y, tuple(attribute_of(node, "kernel_shape", ())))
    counts = bool(attribute_of(node, "count_include_pad", 0))
    if attribute_of(node, "ceil_mode", 0) and counts:
        raise Refusal("attribute", "ceil_mode with count_include_pad")
    return layers.Pooling(y.name, kind, x, y, one.kernel, one.strides, one.pads, one.dilations, counts, *limits)


def _mean(tail: Tail, scope: Scope) -> layers.Layer:
    node = tail.core
    x, sizes = operand_of(node.inputs[0], scope, Form.CHANNELS), shape_of(tail.value)
    axes = constant_of(node.inputs[1])
    source = static_shape(_bytes(node.inputs[0])) or ()
    rank = len(source)
    if axes is None or sorted(int(axis) % rank for axis in axes.reshape(-1)) != list(range(2, rank)):
        raise Refusal("attribute", "a mean is taken over the axes behind the channels, and over no others")
    if len(sizes) == 2 and sizes[0] != 1:
        raise Refusal("shape", "a mean without its axes is taken of one image")
    meaning = tail.meaning
    zero = meaning.point - shift(tail.value.dtype)
    y = layers.Activation(scope.name(tail.value), sizes[1], 1, 1, sizes[0], float(meaning.factor), zero)
    return layers.Pooling(
        y.name, layers.PoolingKind.AVERAGE, x, y, (x.height, x.width), lower=tail.lower, upper=tail.upper
    )


def _concatenation(tail: Tail, scope: Scope) -> layers.Layer:
    form = _form_of_concatenation(tail.core)
    y = activation_of(tail.value, tail.meaning, scope, form)
    inputs = tuple(operand_of(value, scope, form) for value in tail.core.inputs)
    return layers.Concatenation(y.name, inputs, y, tail.lower, tail.upper)


def _form_of_concatenation(node: ir.Node) -> Form:
    """Return how tensors are seen that are concatenated along their channels."""
    rank = len(shape_of(node.outputs[0]))
    axis = attribute_of(node, "axis", 0) % rank
    if axis == 1 and rank in (3, 4):
        return Form.CHANNELS
    if axis != rank - 1 or rank == 4:
        raise Refusal("attribute", f"tensors are concatenated along axis {axis}; channels are needed")
    return Form.MATRIX


def _requantization(tail: Tail, scope: Scope) -> layers.Layer:
    source = tail.core.outputs[0]
    if constant_of(_bytes(source)) is not None:
        raise Refusal("no-pattern", "a constant is quantised anew")
    form = _form_of(scope, source)
    y = activation_of(tail.value, tail.meaning, scope, form)
    return layers.Requantization(y.name, operand_of(source, scope, form), y, tail.lower, tail.upper)


# ---- Bytes as they are --------------------------------------------------------------------------------------------

AS_THEY_ARE = Quantization(np.ones((), np.float32), np.zeros((), np.int32), 0)
"""What bytes mean whose meaning does not matter."""


def _alone(node: ir.Node, scope: Scope) -> layers.Layer:
    """Return a layer that moves bytes: its scales are to be those of who makes or reads them."""
    values = (*node.inputs, node.outputs[0])
    if any(value is None or value.dtype not in RANGES for value in values):
        raise Refusal("no-pattern", f"{node.op_type} is computed on bytes: as they are, or as numbers that they mean")
    is_maximum = KINDS[node.op_type] == "maximum"
    form = Form.CHANNELS if is_maximum else _form_of_concatenation(node)
    *given, y = (activation_of(value, AS_THEY_ARE, scope, form) for value in values if value is not None)
    if any(constant_of(value) is not None for value in node.inputs):
        raise Refusal("no-pattern", "a constant is moved")
    if is_maximum:
        return _pooled(node, given[0], y, (layers.LOWEST, layers.HIGHEST))
    return layers.Concatenation(y.name, tuple(given), y)


def _qlinear(node: ir.Node, scope: Scope) -> layers.Layer:
    inputs, output = node.inputs, node.outputs[0]
    is_matrix = node.op_type == "QLinearMatMul"
    form = Form.MATRIX if is_matrix else Form.CHANNELS
    meaning = per_tensor(quantization(inputs[6], inputs[7], 0), "the result")
    given = per_tensor(quantization(inputs[1], inputs[2], 0), "the input")
    if inputs[0] is None or inputs[3] is None or output.dtype not in RANGES or inputs[0].dtype not in RANGES:
        raise Refusal("dtype", f"{node.op_type} of other types than bytes")
    x = activation_of(inputs[0], given, scope, form)
    y = activation_of(output, meaning, scope, form)
    of_weights = quantization(inputs[4], inputs[5], -1 if is_matrix else 0)
    if of_weights is None:
        raise Refusal("constant-required", "scales of the weights are no constants")
    if is_matrix and constant_of(inputs[3]) is None:
        right = activation_of(inputs[3], per_tensor(of_weights, "the right-hand side"), scope, Form.MATRIX)
        if right.batch != x.batch:
            raise Refusal("shape", f"{x.batch} matrices are multiplied by {right.batch}; one number is needed")
        factor = np.array([np.float32(x.scale) * of_weights.factor / meaning.factor], np.float32)
        return layers.Product(y.name, x, right, y, layers.Requantize(np.zeros(1, np.int32), factor, wide=True))
    kernel, scale = weights_of((inputs[3], of_weights), -1 if is_matrix else 0)
    multiplier = (np.float32(x.scale) * scale / meaning.factor).astype(np.float32)
    whole = constant_of(inputs[8]) if len(inputs) > 8 and inputs[8] is not None else np.zeros(len(kernel), np.int32)
    if whole is None:
        raise Refusal("constant-required", "the bias is computed at run time")
    requantize = layers.Requantize(whole.astype(np.int32), multiplier, wide=True)
    if not is_matrix:
        return _sliding(node, x, y, kernel, requantize)
    if kernel.ndim != 2:
        raise Refusal("rank", f"constant weights have {kernel.ndim} axes, and a matrix is needed")
    check_sums(kernel)
    return layers.Product(y.name, x, np.ascontiguousarray(kernel.T), y, requantize)


READERS: Mapping[Kind, Callable[[Tail, Scope], layers.Layer]] = {
    "convolution": _convolution,
    "product": _product,
    "gemm": _gemm,
    "addition": _addition,
    "maximum": _pooling,
    "average": _pooling,
    "mean": _mean,
    "concatenation": _concatenation,
    "requantization": _requantization,
}
"""What reads the node before a layer's limits."""
