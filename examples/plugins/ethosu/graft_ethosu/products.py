"""Sums of products: convolutions of all forms, matrices by constants, matrices by matrices."""

import math

import numpy as np

from graft_ethosu.building import plain
from graft_ethosu.lowering import (
    cut,
    finish,
    finish_images,
    images_of,
    lowers,
    requantised,
    rows_of,
    scale_of,
    windows_of,
)
from graft_ethosu.reading import Refused

MOST_GROUPS = 64
"""Groups are convolutions of their own, but for depthwise ones."""


def weights_of(layer, axis):
    """Return constant weights with output channels first as signed bytes, their zero point and their scales."""
    operand = layer.operand(1)
    array, meaning = operand.constant, operand.meaning
    if array is None:
        raise Refused("constant-required", "the weights are computed at run time")
    if meaning is None or operand.value.dtype not in ("int8", "uint8", "int4", "uint4"):
        raise Refused("dtype", f"the weights are {operand.value.dtype}; int8, uint8, int4 and uint4 are supported")
    if meaning.scale.size > 1 and meaning.axis % array.ndim != axis % array.ndim:
        raise Refused("attribute", f"the weights have scales along axis {meaning.axis}, not for each output channel")
    whole = array.astype(np.int64) - meaning.along(meaning.zero, array.ndim)
    least, most = int(whole.min()), int(whole.max())
    zero = min(127 - most, 0) or max(-128 - least, 0)
    whole += zero
    if whole.min() < -128 or whole.max() > 127:
        raise Refused("dtype", "weights less their zero points leave int8; quantise them symmetrically")
    return np.moveaxis(whole, axis, 0), zero, meaning.scale


def bias_of(layer, index, count, scale, limit):
    """Return the bias as integers of the sums' scale."""
    numbers = layer.numbers(index)
    if numbers is None:
        return np.zeros(count, np.int64)
    if numbers.size not in (1, count):
        raise Refused("shape", f"the bias has {numbers.size} numbers for {count} output channels")
    whole = np.rint(np.broadcast_to(numbers.reshape(-1), count) / scale)
    if np.abs(whole).max(initial=0) >= limit:
        raise Refused("accuracy", "the bias leaves the type of the sums")
    return whole.astype(np.int64)


def convolved(builder, name, tensor, zero, weights, more, attributes, shape):
    """Add a convolution and return its sums; ``more`` are bias and zero point of the weights."""
    is_wide = tensor.dtype == "INT16"
    kind = "INT48" if is_wide else "INT32"
    bias, weight_zero = more
    if is_wide and zero:
        raise Refused("attribute", f"the zero point of int16 is {zero}, and TOSA knows only 0")
    given = (
        tensor, builder.graph.constant(weights, "INT8"), builder.graph.constant(bias, kind),
        builder.graph.constant([zero], tensor.dtype), builder.graph.constant([weight_zero], "INT8"),
    )  # fmt: skip
    return builder.graph.add(name, given, shape, kind, **attributes, local_bound=False, acc_type=kind)


def _checked(weights, dtype):
    most = np.abs(weights).reshape(len(weights), -1).sum(axis=1).max() * (255 if dtype == "INT8" else 65535)
    if most >= (1 << (31 if dtype == "INT8" else 47)):
        raise Refused("size", f"sums of products may reach {most}")


@lowers("Conv")
def convolution(layer, builder):
    """A convolution along one or two axes, in groups or not."""
    tensor, scale, zero = images_of(layer, builder)
    weights, weight_zero, factors = weights_of(layer, 0)
    _checked(weights, tensor.dtype)
    if weights.ndim == 3:
        weights = weights[:, :, None]
    groups, count, kernel = int(layer.node.attribute("group", 1)), len(weights), weights.shape[2:]
    rows = rows_of(layer)
    strides, pads, dilations, seen = windows_of(layer, tensor, kernel, rows)
    tensor = cut(builder, tensor, seen)
    bias = bias_of(layer, 2, count, scale * factors, 1 << 31)
    attributes = {"pad": pads, "stride": strides, "dilation": dilations}
    if groups == tensor.shape[3] and groups > 1:
        ordered = weights.reshape(groups, count // groups, *kernel).transpose(2, 3, 0, 1)
        shape = (tensor.shape[0], *rows, count)
        sums = convolved(builder, "DEPTHWISE_CONV2D", tensor, zero, ordered, (bias, weight_zero), attributes, shape)
        return finish_images(layer, builder, sums, scale * factors)
    if groups > MOST_GROUPS:
        raise Refused("size", f"{groups} groups, and at most {MOST_GROUPS} are computed one by one")
    parts, inner, outer = [], tensor.shape[3] // groups, count // groups
    for group in range(groups):
        part = builder.slice(tensor, (0, 0, 0, group * inner), (*tensor.shape[:3], inner))
        own = slice(group * outer, (group + 1) * outer)
        shape, more = (tensor.shape[0], *rows, outer), (bias[own], weight_zero)
        ordered = weights[own].transpose(0, 2, 3, 1)
        parts.append(convolved(builder, "CONV2D", part, zero, ordered, more, attributes, shape))
    return finish_images(layer, builder, builder.concat(parts, 3), scale * factors)


@lowers("ConvTranspose")
def transposed_convolution(layer, builder):
    """A transposed convolution of one group, without dilation."""
    tensor, scale, zero = images_of(layer, builder)
    if int(layer.node.attribute("group", 1)) != 1:
        raise Refused("attribute", "a transposed convolution of several groups")
    weights, weight_zero, factors = weights_of(layer, 1)
    if weights.ndim == 3:
        weights = weights[:, :, None]
    rows, kernel = rows_of(layer), weights.shape[2:]
    count = len(layer.node.outputs[0].static_shape) - 2

    def both(name, default):
        return [default] * (2 - count) + [int(one) for one in layer.node.attribute(name) or [default] * count]

    strides = both("strides", 1)
    if both("dilations", 1) != [1, 1] or layer.node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Refused("attribute", "a transposed convolution with dilations or auto_pad")
    begins = [0] * (2 - count) + [int(one) for one in layer.node.attribute("pads") or [0] * count][:count]
    out_pad = []
    for axis in (0, 1):
        made = (tensor.shape[1 + axis] - 1) * strides[axis] + kernel[axis]
        out_pad += [-begins[axis], rows[axis] - made + begins[axis]]
    if min(out_pad[:2]) <= -kernel[0] or min(out_pad[2:]) <= -kernel[1]:
        raise Refused("attribute", "the pads of a transposed convolution are as large as its kernel")
    bias = bias_of(layer, 2, len(weights), scale * factors, 1 << 31)
    shape = (tensor.shape[0], *rows, len(weights))
    sums = convolved(
        builder, "TRANSPOSE_CONV2D", tensor, zero, weights.transpose(0, 2, 3, 1), (bias, weight_zero),
        {"out_pad": out_pad, "stride": strides}, shape,
    )  # fmt: skip
    finish_images(layer, builder, sums, scale * factors)


@lowers("Gemm")
def gemm(layer, builder):
    """A product by constant weights with a bias."""
    node = layer.node
    if node.attribute("alpha", 1.0) != 1 or node.attribute("beta", 1.0) != 1 or node.attribute("transA", 0):
        raise Refused("attribute", "Gemm with alpha, beta or transA")
    _by_constant(layer, builder, 0 if node.attribute("transB", 0) else 1)


@lowers("MatMul")
def product(layer, builder):
    """A product of matrices."""
    if layer.operand(1).constant is not None:
        return _by_constant(layer, builder, -1)
    left, right = (builder.read(layer.operand(index).value) for index in (0, 1))
    if len(layer.operands) > 2:
        raise Refused("no-pattern", "a bias behind a product of two activations")
    if len(left.order) < 2 or len(left.order) != len(right.order) or left.shape[:-2] != right.shape[:-2]:
        raise Refused("shape", f"products of {left.shape} and {right.shape}; as many matrices are needed on both sides")
    (scale, zero), (factor, point) = (scale_of(layer.operand(index), "operand") for index in (0, 1))
    many = math.prod(left.shape[:-2])
    first, second = (
        builder.reshape(builder.ordered(one, plain(len(one.order))), (many, *one.shape[-2:])) for one in (left, right)
    )
    if first.dtype != "INT8" or second.dtype != "INT8":
        raise Refused("dtype", "products of two activations are of int8")
    zeros = (builder.graph.constant([one], "INT8") for one in (zero, point))
    shape = (many, left.shape[-2], right.shape[-1])
    sums = builder.graph.add("MATMUL", (first, second, *zeros), shape, "INT32")
    whole = builder.reshape(sums, (*left.shape[:-1], right.shape[-1]))
    return finish(layer, builder, whole, scale * factor, plain(len(left.order)))


def _by_constant(layer, builder, axis):
    """A product by a constant matrix is a convolution with a kernel of one place."""
    scale, zero = scale_of(layer.operand(0), "operand")
    value = builder.read(layer.operand(0).value)
    weights, weight_zero, factors = weights_of(layer, axis)
    if weights.ndim != 2 or not value.order:
        raise Refused("rank", f"constant weights have {weights.ndim} axes, and a matrix is needed")
    tensor = builder.ordered(value, plain(len(value.order)))
    _checked(weights, tensor.dtype)
    rows, count = math.prod(value.shape[:-1]), len(weights)
    images = builder.reshape(tensor, (1, 1, rows, value.shape[-1]))
    more = (bias_of(layer, 2, count, scale * factors, 1 << 31), weight_zero)
    attributes = {"pad": [0, 0, 0, 0], "stride": [1, 1], "dilation": [1, 1]}
    ordered, shape = weights[:, None, None], (1, 1, rows, count)
    sums = convolved(builder, "CONV2D", images, zero, ordered, more, attributes, shape)
    made = requantised(layer, builder, sums, scale * factors)
    made = builder.reshape(made, (*value.shape[:-1], count))
    builder.write(layer.outputs[0].value.name, made, plain(len(value.order)))
