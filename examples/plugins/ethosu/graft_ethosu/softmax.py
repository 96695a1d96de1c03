"""Softmax in integers: exponentials by tables, divided by their sum."""

import numpy as np

from graft_ethosu.lowering import finish, lowers, scale_of
from graft_ethosu.reading import Refused

LONGEST = 1 << 15
"""The elements whose exponentials, of 15 bits each, have a sum that fits."""


@lowers("Softmax")
def softmax(layer, builder):
    """``e**(s * (x - max))`` in 15 bits, times the reciprocal of the sum in 15 bits, to the right by what is left."""
    value = builder.read(layer.operand(0).value)
    axis = value.order.index(int(layer.node.attribute("axis", -1)) % len(value.order))
    scale, _ = scale_of(layer.operand(0), "operand")
    if value.tensor.dtype != "INT8" or value.tensor.shape[axis] > LONGEST:
        raise Refused("dtype", f"Softmax of bytes along at most {LONGEST} elements is computed")
    most = builder.reduced("REDUCE_MAX", value.tensor, axis)
    wide, highest = (builder.rescale(one, 1.0, 0, 0, "INT32") for one in (value.tensor, most))
    below = builder.rescale(builder.binary("SUB", wide, highest), 1.0, 0, 127, "INT8")
    whole = np.rint(np.exp(scale * (np.arange(256) - 255.0)) * 32767)
    exponentials = _of_bytes(builder, below, whole)
    total = builder.reduced("REDUCE_SUM", exponentials, axis)
    zeros = builder.graph.add("CLZ", (total,), total.shape, "INT32")
    reciprocal = _reciprocal(builder, total, zeros)
    products = builder.binary("MUL", exponentials, reciprocal)
    portions = _right(builder, products, builder.binary("SUB", _number(builder, 31, zeros), zeros))
    finish(layer, builder, portions, 1 / (1 << 15), value.order)


def _reciprocal(builder, total, zeros):
    """Return ``2**45`` by the sum shifted to 31 bits: from a table of its eight highest bits, by a step of Newton's."""
    shift = builder.binary("SUB", zeros, _number(builder, 1, zeros))
    whole = builder.graph.add("LOGICAL_LEFT_SHIFT", (total, shift), total.shape, "INT32")
    high = _right(builder, whole, _number(builder, 23, whole))  # from 128 to 256
    index = builder.rescale(builder.binary("SUB", high, _number(builder, 256, high)), 1.0, 0, 0, "INT8")
    first = _of_bytes(builder, index, np.minimum(np.rint((1 << 22) / np.maximum(np.arange(256) + 128, 1)), 32767))
    middle = _right(builder, whole, _number(builder, 15, whole))
    product = builder.binary("MUL", middle, first)  # 2**30 but for what the first misses
    missing = builder.binary("SUB", _number(builder, 1 << 30, product), product)
    part = _right(builder, missing, _number(builder, 15, missing))
    correction = _right(builder, builder.binary("MUL", first, part), _number(builder, 15, first))
    return builder.binary("ADD", first, correction)


def _number(builder, number, like):
    """Return a number that broadcasts with a tensor."""
    return builder.graph.constant(np.full([1] * len(like.shape), number), "INT32")


def _right(builder, tensor, shift):
    """Return integers shifted to the right, rounded."""
    return builder.graph.add("ARITHMETIC_RIGHT_SHIFT", (tensor, shift), tensor.shape, "INT32", round=True)


def _of_bytes(builder, index, numbers):
    """Return numbers of 15 bits that are looked up, as integers of 32 bits: two tables of bytes."""
    high, low = np.divmod(numbers.astype(np.int64), 256)
    upper, lower = (builder.table(index, part - 128) for part in (high, low))
    upper = builder.rescale(upper, 256.0, -128, 0, "INT32")
    return builder.binary("ADD", upper, builder.rescale(lower, 1.0, -128, 0, "INT32"))
