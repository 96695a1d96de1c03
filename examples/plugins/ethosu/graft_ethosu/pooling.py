"""Windows and axes that are reduced: pools, means, sums, extremes, positions."""

import math

import numpy as np

from graft_ethosu.building import channels_last
from graft_ethosu.lowering import cut, finish_images, images_of, lowers, requantised, rows_of, scale_of, windows_of
from graft_ethosu.products import convolved
from graft_ethosu.reading import Refused

LARGEST_KERNEL = 64
"""The rows and columns of a window that a convolution may have."""


def _kernel(layer):
    kernel = [int(one) for one in layer.node.attribute("kernel_shape")]
    return [1] * (2 - len(kernel)) + kernel


def _undilated(layer):
    if any(int(one) != 1 for one in layer.node.attribute("dilations") or []):
        raise Refused("attribute", "a pool with dilations")


@lowers("MaxPool", "GlobalMaxPool")
def largest(layer, builder):
    """The largest of each window."""
    if len([one for one in layer.node.outputs if one.name]) > 1:
        raise Refused("no-pattern", "where the largest numbers were is not computed")
    _undilated(layer)
    tensor, scale, zero = images_of(layer, builder)
    rows = rows_of(layer)
    kernel = list(tensor.shape[1:3]) if layer.operator == "GlobalMaxPool" else _kernel(layer)
    strides, pads, _, seen = windows_of(layer, tensor, kernel, rows)
    tensor = cut(builder, tensor, seen)
    shape = (tensor.shape[0], *rows, tensor.shape[3])
    made = builder.graph.add(
        "MAX_POOL2D", (tensor,), shape, tensor.dtype, kernel=kernel, stride=strides, pad=pads, nan_mode="PROPAGATE"
    )
    finish_images(layer, builder, made, scale, zero)


@lowers("AveragePool", "GlobalAveragePool")
def mean_of_windows(layer, builder):
    """The mean of each window, rounded once.

    Of one scale it is the NPU's own pool, and where pads make windows smaller; else the sums that a depthwise
    convolution has are divided where they are scaled.
    """
    _undilated(layer)
    tensor, scale, zero = images_of(layer, builder)
    rows = rows_of(layer)
    if layer.operator == "GlobalAveragePool":
        if max(tensor.shape[1:3]) > LARGEST_KERNEL:
            return _summed(layer, builder, [2, 3][: len(layer.operand(0).value.static_shape) - 2], True, True)
        kernel = list(tensor.shape[1:3])
    else:
        kernel = _kernel(layer)
    strides, pads, _, seen = windows_of(layer, tensor, kernel, rows)
    tensor = cut(builder, tensor, seen)
    if any(pads) and layer.node.attribute("count_include_pad", 0):
        if layer.node.attribute("ceil_mode", 0):
            raise Refused("attribute", "an average over pads with ceil_mode")
        tensor = builder.pad(tensor, [(0, 0), tuple(pads[:2]), tuple(pads[2:]), (0, 0)], zero)
        pads = [0, 0, 0, 0]
    shape = (tensor.shape[0], *rows, tensor.shape[3])
    if any(pads) or max(kernel) > LARGEST_KERNEL or layer.operand(0).meaning == layer.outputs[0].meaning:
        zeros = (builder.graph.constant([zero], tensor.dtype) for _ in range(2))
        made = builder.graph.add(
            "AVG_POOL2D", (tensor, *zeros), shape, tensor.dtype, kernel=kernel, stride=strides, pad=pads,
            acc_type="INT32",
        )  # fmt: skip
        return finish_images(layer, builder, made, scale, zero)
    ones = np.ones((*kernel, tensor.shape[3], 1), np.int64)
    attributes = {"pad": pads, "stride": strides, "dilation": [1, 1]}
    bias = np.zeros(tensor.shape[3], np.int64)
    sums = convolved(builder, "DEPTHWISE_CONV2D", tensor, zero, ones, (bias, 0), attributes, shape)
    return finish_images(layer, builder, sums, scale / math.prod(kernel))


def _axes(layer):
    rank = len(layer.operand(0).value.static_shape or ())
    found = layer.numbers(1) if len(layer.operands) > 1 else None
    given = layer.node.attribute("axes") if found is None else [int(one) for one in found.reshape(-1)]
    if not given and layer.node.attribute("noop_with_empty_axes", 0):
        raise Refused("attribute", "a reduction along no axis")
    return [int(axis) % rank for axis in given] if given else list(range(rank))


@lowers("ReduceMean", "ReduceSum")
def mean_or_sum(layer, builder):
    """The mean or the sum along axes."""
    axes, rank = _axes(layer), len(layer.operand(0).value.static_shape or ())
    keeps = bool(layer.node.attribute("keepdims", 1))
    shape = layer.operand(0).value.static_shape or ()
    spatial = rank == 4 and sorted(axes) == [2, 3] and max(shape[2:]) <= LARGEST_KERNEL
    if spatial and layer.operator == "ReduceMean":
        tensor, scale, zero = images_of(layer, builder)
        ones, made = np.ones((*shape[2:], shape[1], 1), np.int64), (shape[0], 1, 1, shape[1])
        attributes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1]}
        bias = np.zeros(shape[1], np.int64)
        sums = convolved(builder, "DEPTHWISE_CONV2D", tensor, zero, ones, (bias, 0), attributes, made)
        return _reduced(layer, builder, sums, scale / math.prod(shape[2:]), (channels_last(4), axes, keeps))
    return _summed(layer, builder, axes, layer.operator == "ReduceMean", keeps)


def _summed(layer, builder, axes, is_mean, keeps):
    value = builder.read(layer.operand(0).value)
    scale, zero = scale_of(layer.operand(0), "operand")
    tensor = builder.rescale(value.tensor, 1.0, zero, 0, "INT32")
    for axis in axes:
        tensor = builder.reduced("REDUCE_SUM", tensor, value.order.index(axis))
    count = math.prod(value.shape[axis] for axis in axes) if is_mean else 1
    _reduced(layer, builder, tensor, scale / count, (value.order, axes, keeps))


def _reduced(layer, builder, tensor, scale, form, zero=0):
    """Make what is reduced the result; ``form`` is its order of axes, which are reduced, and whether they stay."""
    _write(layer, builder, requantised(layer, builder, tensor, scale, zero), form)


def _write(layer, builder, made, form):
    order, axes, keeps = form
    if not keeps:
        kept = [axis for axis in order if axis not in axes]
        made = builder.reshape(made, [made.shape[order.index(axis)] for axis in kept] or [1])
        order = [sorted(kept).index(axis) for axis in kept]
    builder.write(layer.outputs[0].value.name, made, order)


@lowers("ReduceMax", "ReduceMin")
def extreme_along(layer, builder):
    """The largest or the least along axes."""
    value, axes = builder.read(layer.operand(0).value), _axes(layer)
    scale, zero = scale_of(layer.operand(0), "operand")
    tensor = value.tensor
    for axis in axes:
        name = "REDUCE_MAX" if layer.operator == "ReduceMax" else "REDUCE_MIN"
        tensor = builder.reduced(name, tensor, value.order.index(axis))
    keeps = bool(layer.node.attribute("keepdims", 1))
    _reduced(layer, builder, tensor, scale, (value.order, axes, keeps), zero)


@lowers("ArgMax")
def position(layer, builder):
    """Where the largest along an axis is, the first of several."""
    if layer.node.attribute("select_last_index", 0):
        raise Refused("attribute", "the last of several largest")
    value = builder.read(layer.operand(0).value)
    axis = int(layer.node.attribute("axis", 0)) % len(value.order)
    order = [*(one for one in value.order if one != axis), axis]  # U55 and U65 look along the last axis alone
    tensor = builder.ordered(value, order)
    rows = builder.reshape(tensor, (1, *tensor.shape)) if len(order) == 1 else tensor  # no result is a scalar
    shape = rows.shape[:-1]
    made = builder.graph.add("ARGMAX", (rows,), shape, "INT32", axis=len(shape), nan_mode="PROPAGATE")
    made = builder.reshape(made, (*tensor.shape[:-1], 1))
    _write(layer, builder, made, (order, [axis], bool(layer.node.attribute("keepdims", 1))))
