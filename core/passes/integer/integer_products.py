"""Convolutions and products of quantised tensors as sums of integers, rescaled.

A sum of ``(x - zero) * w`` is computed as the sum of ``x * w``, less ``zero`` times the sum of the weights, which is
known at compile time: so the operands go into the products as they are stored, uint8 by int8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.definition.table import Trait
from graft.core.operators.images.windows import windows_of
from graft.core.passes.integer.move_layouts import LEAST_RANK, to_first, to_last, transposed
from graft.core.passes.integer.quantized_tensors import (
    RANGES,
    Emitter,
    Quantization,
    activation,
    dequantized,
    quantization,
)
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names
from graft.core.tensor_ir.anchors import Windows

SLIDING = ("group", "strides", "dilations", "pads", "auto_pad")
"""The attributes of how windows move."""
QLINEAR = ("QLinearConv", "QLinearMatMul")
GROUP = 4
"""Products that a processor adds up at one time: sums of a multiple of so many terms need no tail."""
Along = Callable[[np.ndarray], np.ndarray]


@dataclass(slots=True)
class Product:
    """The operands of a product: numbers and what they stand for; the bias in whole numbers or as it is.

    ``weights`` is int8, of zero point 0, its output channels first; ``result`` is what the outcome is quantised to.
    """

    x: ir.Value
    x_quantized: Quantization
    weights: np.ndarray
    scale: np.ndarray
    whole_bias: np.ndarray | None = None
    bias: np.ndarray | None = None
    result: tuple[Quantization, ir.DataType] | None = None


def rewrite_product(node: ir.Node, names: Names) -> bool:
    """Replace a product of quantised operands by one of integers; return whether that was possible."""
    if not _has_shape(node, node.outputs[0]):
        return False
    product = _of_qlinear(node) if rewrite.is_operator(node, *QLINEAR) else _of_floats(node)
    if product is None or not _has_shape(node, product.x):
        return False
    emitter = Emitter(node, names)
    if product.x.dtype is ir.DataType.INT8:
        _shift(product, emitter)
    result = _convolve(product, emitter) if rewrite.has_trait(node, Trait.CONVOLUTION) else _multiply(product, emitter)
    emitter.replace(result)
    return True


def _has_shape(node: ir.Node, value: ir.Value) -> bool:
    """Whether enough is known of a value's shape: all but the channels may be symbols."""
    shape = rewrite.known_shape(value)
    return (
        bool(shape)
        and shape is not None
        and isinstance(shape[1 if rewrite.has_trait(node, Trait.CONVOLUTION) else -1], int)
    )


# ---- Operands -----------------------------------------------------------------------------------------------------


def _weights(found: tuple[ir.Value, Quantization] | None, axis: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return constant weights as int8 of zero point 0 with ``axis`` first, and their scales."""
    if found is None or found[0].dtype not in RANGES:
        return None
    array, meaning = rewrite.constant_of(found[0]), found[1]
    if array is None or array.ndim < 2:
        return None
    if not meaning.per_tensor and meaning.axis % array.ndim != axis % array.ndim:
        return None
    array = np.moveaxis(array, axis, 0)
    along = (-1, *[1] * (array.ndim - 1))
    centred = array.astype(np.int64) - meaning.zero.reshape(along)
    if centred.size and (centred.min() < -128 or centred.max() > 127):
        return None
    return centred.astype(np.int8), meaning.scale.reshape(-1)


def _with_bias(product: Product, value: ir.Value | None) -> Product | None:
    """Add a bias: the integers of one that is quantised with the product's scale, else its numbers if constant."""
    if value is None:
        return product
    channels, found = len(product.weights), dequantized(value)
    scale = product.x_quantized.factor * product.scale
    if (
        found is not None
        and found[0].dtype is ir.DataType.INT32
        and (whole := rewrite.constant_of(found[0])) is not None
    ):
        same = np.allclose(found[1].scale.reshape(-1), scale, rtol=1e-5, atol=0) and not found[1].zero.any()
        if same and whole.size in (1, channels):
            product.whole_bias = np.broadcast_to(whole.reshape(-1), (channels,))
            return product
        if found[1].zero.size in (1, whole.size) and found[1].scale.size in (1, whole.size):
            numbers = (whole - found[1].zero).astype(np.float32) * found[1].scale
            product.bias = numbers.reshape(-1)
    else:
        constant = rewrite.constant_of(value)
        product.bias = None if constant is None else constant.reshape(-1)
    if product.bias is None or product.bias.dtype != np.float32 or product.bias.size not in (1, channels):
        return None
    return product


def _of_floats(node: ir.Node) -> Product | None:
    """Conv, MatMul and Gemm of dequantised operands."""
    axis = None if rewrite.is_operator(node, "ConvTranspose") else rewrite.channels_of_weights(node)
    if axis is None or (rewrite.is_operator(node, "Gemm") and not rewrite.is_plain_gemm(node)):
        return None
    x, weights = activation(node.inputs[0]), _weights(dequantized(node.inputs[1]), axis)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if x is None or weights is None or any(extent != 1 for extent in (rewrite.static_shape(bias) or ())[:-1]):
        return None
    is_matrix = weights[0].ndim == 2 and x[0].shape is not None and x[0].shape.rank() > 1
    return _with_bias(Product(*x, *weights), bias) if is_matrix or rewrite.has_trait(node, Trait.CONVOLUTION) else None


def _of_qlinear(node: ir.Node) -> Product | None:
    """QLinearConv and QLinearMatMul: each operand with scale and zero point behind it."""
    inputs = node.inputs
    x, y = quantization(inputs[1], inputs[2], 0), quantization(inputs[6], inputs[7], 0)
    axis, dtype = rewrite.channels_of_weights(node), node.outputs[0].dtype
    meaning = None if axis is None else quantization(inputs[4], inputs[5], axis)
    if x is None or y is None or axis is None or meaning is None or not (x.per_tensor and y.per_tensor):
        return None
    if inputs[0] is None or inputs[3] is None or inputs[0].dtype not in RANGES or dtype not in RANGES:
        return None
    weights = _weights((inputs[3], meaning), axis)
    bias = inputs[8] if len(inputs) > 8 else None
    whole = rewrite.constant_of(bias)
    if weights is None or (bias is not None and whole is None) or (axis and weights[0].ndim != 2):
        return None
    return Product(inputs[0], x, *weights, whole_bias=whole, result=(y, dtype))


# ---- Integers -----------------------------------------------------------------------------------------------------


def _shift(product: Product, emitter: Emitter) -> None:
    """Make a signed operand unsigned: 128 more, and so is its zero point."""
    one = Quantization(np.ones((), np.float32), np.zeros((), np.int64))
    product.x = emitter.quantize(emitter.dequantize(product.x, one), 1.0, 128, ir.DataType.UINT8)
    meaning = product.x_quantized
    product.x_quantized = Quantization(meaning.scale, meaning.zero + 128, meaning.axis)


def _multiply(product: Product, emitter: Emitter) -> ir.Value:
    shape = emitter.node.outputs[0].shape
    weights = emitter.constant("weights", product.weights.T)
    sums = emitter.emit("MatMulInteger", [product.x, weights], ir.DataType.INT32, shape)
    return _rescaled(product, emitter, sums, lambda array: array)


def _convolve(product: Product, emitter: Emitter) -> ir.Value:
    """A convolution of planes or volumes has its channels last: these are what a processor multiplies and adds up."""
    source, result = rewrite.image_shape(product.x), rewrite.image_shape(emitter.node.outputs[0])
    if source is None or result is None:
        return _convolve_any(product, emitter)
    shape = (result[0], *result[1])
    windows = windows_of(NodeView(emitter.node), source[1][1:], product.weights.shape[2:], result[1][1:])
    group = rewrite.attribute_of(emitter.node, "group", 1)
    if len(shape) < LEAST_RANK:
        x = _padded(product, emitter, product.x, windows, 2)
        sums = _slide(emitter, x, product.weights, windows, shape, group)
        return _rescaled(product, emitter, sums, lambda array: array.reshape(-1, *[1] * (len(shape) - 2)))
    first, last = to_first(len(shape)), to_last(len(shape))
    x = transposed(emitter, product.x, last)
    if all(extent == 1 for extent in windows.kernel) and group == 1 and not any((*windows.begins, *windows.ends)):
        sums = _at_points(product, emitter, x, windows)
    else:
        is_filled = group == 1 and product.weights[0].size % GROUP
        x = _padded(product, emitter, x, windows, 1, GROUP if is_filled else 1)
        channels = _image(x)[1][-1]
        weights = product.weights
        if group == 1 and channels > weights.shape[1]:
            weights = np.pad(weights, [(0, 0), (0, channels - weights.shape[1]), *[(0, 0)] * windows.rank])
        sums = _slide(emitter, transposed(emitter, x, first), weights, windows, shape, group)
        sums = transposed(emitter, sums, last)
    return transposed(emitter, _rescaled(product, emitter, sums, lambda array: array), first)


def _convolve_any(product: Product, emitter: Emitter) -> ir.Value:
    """A convolution of images whose height or width is a symbol: what lies around them is for its kernel to see."""
    node, shape = emitter.node, rewrite.known_shape(emitter.node.outputs[0])
    assert shape is not None, f"'{node.name}' has no known shape"
    attributes: dict[str, Any] = {
        name: value for name in SLIDING if (value := rewrite.attribute_of(node, name, None)) is not None
    }
    moves = max((*attributes.get("strides", ()), *attributes.get("pads", (0,)), attributes.get("group", 1)))
    window, first, last = product.weights.shape[2:], to_first(len(shape)), to_last(len(shape))
    if len(shape) == LEAST_RANK and window == (1, 1) and moves <= 1 and not any(attributes.get("pads", ())):
        x, extents = transposed(emitter, product.x, last), [shape[axis] for axis in last]
        weights = emitter.constant("weights", product.weights.reshape(len(product.weights), -1).T)
        sums = emitter.emit("MatMulInteger", [x, weights], ir.DataType.INT32, extents)
        return transposed(emitter, _rescaled(product, emitter, sums, lambda array: array), first)
    assert product.x.dtype is not None, f"'{product.x.name}' has no type"
    point = emitter.constant("point", np.array(product.x_quantized.point, product.x.dtype.numpy()))
    operands = [product.x, emitter.constant("weights", product.weights), point]
    if len(shape) == LEAST_RANK:
        operands[0] = transposed(emitter, transposed(emitter, product.x, last), first)
    sums = emitter.emit("ConvInteger", operands, ir.DataType.INT32, shape, **attributes)
    if len(shape) != LEAST_RANK:
        return _rescaled(product, emitter, sums, lambda array: array.reshape(-1, *[1] * len(window)), centred=True)
    sums = transposed(emitter, sums, last)
    return transposed(emitter, _rescaled(product, emitter, sums, lambda array: array, centred=True), first)


def _image(x: ir.Value) -> tuple[int | ir.SymbolicDim, tuple[int, ...]]:
    """Return the batch and the other extents of an image whose batch alone may vary."""
    shape = rewrite.image_shape(x)
    assert shape is not None, f"more than the batch of '{x.name}' varies"
    return shape


def _at_points(product: Product, emitter: Emitter, x: ir.Value, windows: Windows) -> ir.Value:
    """A convolution of single pixels: a product, of every other pixel where it has strides."""
    n, (*extents, channels) = _image(x)
    outputs = len(product.weights)
    if any(stride > 1 for stride in windows.strides):
        rows = ([0] * windows.rank, extents, range(1, 1 + windows.rank), windows.strides)
        bounds = [np.array(numbers, np.int64) for numbers in rows]
        names = ("starts", "ends", "axes", "steps")
        inputs = [emitter.constant(name, array) for name, array in zip(names, bounds, strict=True)]
        x = emitter.emit("Slice", [x, *inputs], x.dtype, (n, *windows.target, channels))
    weights = emitter.constant("weights", product.weights.reshape(outputs, channels).T)
    return emitter.emit("MatMulInteger", [x, weights], ir.DataType.INT32, (n, *windows.target, outputs))


def _padded(
    product: Product, emitter: Emitter, x: ir.Value, windows: Windows, first: int, multiple: int = 1
) -> ir.Value:
    """Return the input with the windows' border; their first axis is ``first``.

    The last axis is filled up to a multiple, which is for channels that stand there.
    """
    batch, shape = _image(x)
    before, after = [0] * len(shape), [0] * len(shape)
    before[first - 1 : first - 1 + windows.rank] = windows.begins
    after[first - 1 : first - 1 + windows.rank] = windows.ends
    after[-1] += -shape[-1] % multiple
    if not any((*before, *after)):
        return x
    extents = [batch, *(sum(parts) for parts in zip(shape, before, after, strict=True))]
    amounts = emitter.constant("pads", np.array([0, *before, 0, *after], np.int64))
    assert x.dtype is not None, f"'{x.name}' has no type"
    border = emitter.constant("border", np.array(product.x_quantized.point, x.dtype.numpy()))
    return emitter.emit("Pad", [x, amounts, border], x.dtype, extents)


def _slide(
    emitter: Emitter,
    x: ir.Value,
    weights: np.ndarray,
    windows: Windows,
    shape: Sequence[int | ir.SymbolicDim],
    group: int,
) -> ir.Value:
    operand = emitter.constant("weights", weights)
    attributes = {"group": group, "strides": list(windows.strides), "dilations": list(windows.dilations)}
    return emitter.emit("ConvInteger", [x, operand], ir.DataType.INT32, shape, **attributes)


def _rescaled(product: Product, emitter: Emitter, sums: ir.Value, along: Along, *, centred: bool = False) -> ir.Value:
    """Return what sums of integers stand for, with the bias; quantised if the operator says so.

    Sums that are ``centred`` are of integers less their zero points.
    """
    totals = product.weights.reshape(len(product.weights), -1).sum(1, dtype=np.int64)
    shift = 0 * totals if centred else -product.x_quantized.point * totals
    if product.whole_bias is not None:
        shift = shift + product.whole_bias.astype(np.int64)
    if shift.any():
        constant = emitter.constant("shift", along(shift.astype(np.int32)))
        sums = emitter.emit("Add", [sums, constant], ir.DataType.INT32, sums.shape)
    value = emitter.emit("Cast", [sums], ir.DataType.FLOAT, sums.shape, to=int(ir.DataType.FLOAT))
    factors = product.x_quantized.factor * product.scale
    if product.result is not None:
        factors = factors / product.result[0].factor
    factors = np.array(factors[0]) if factors.size == 1 else along(factors)
    value = emitter.emit("Mul", [value, emitter.constant("factor", factors)], ir.DataType.FLOAT, sums.shape)
    if product.bias is not None:
        bias = emitter.constant("bias", np.array(product.bias[0]) if product.bias.size == 1 else along(product.bias))
        value = emitter.emit("Add", [value, bias], ir.DataType.FLOAT, sums.shape)
    if product.result is None:
        return value
    return emitter.quantize(value, 1.0, product.result[0].point, product.result[1])
