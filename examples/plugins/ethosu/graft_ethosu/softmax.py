"""Softmax in integers: exponentials by tables, times the reciprocal of their sum."""

import numpy as np

from graft_ethosu.lowering import finish, lowers, scale_of
from graft_ethosu.reading import Refused

LONGEST = 1 << 15
"""The elements whose exponentials, of 15 bits each, have a sum that fits."""


@lowers("Softmax")
def softmax(layer, builder):
    """``e**(s * (x - max))`` in 15 bits, times the reciprocal of the sum: a portion misses ``2**-14`` at most."""
    value = builder.read(layer.operand(0).value)
    axis = value.order.index(int(layer.node.attribute("axis", -1)) % len(value.order))
    scale, _ = scale_of(layer.operand(0), "operand")
    if value.tensor.dtype != "INT8" or value.tensor.shape[axis] > LONGEST:
        raise Refused("dtype", f"Softmax of bytes along at most {LONGEST} elements is computed")
    most = builder.reduced("REDUCE_MAX", value.tensor, axis)
    wide, highest = (builder.rescale(one, 1.0, 0, 0, "INT32") for one in (value.tensor, most))
    exponentials = _looked_up(builder, wide, highest, 127, np.exp(scale * (np.arange(256) - 255.0)) * 32767)
    total = builder.reduced("REDUCE_SUM", builder.rescale(exponentials, 1.0, 0, 0, "INT32"), axis)
    finish(layer, builder, builder.binary("MUL", exponentials, _reciprocal(builder, total)), 2.0**-29, value.order)


def _reciprocal(builder, total):
    """Return ``2**29`` by the sum, which has 15 bits or more, in 16 bits.

    The sum is shifted to 31 bits; its reciprocal is from a table of the eight highest, better by a step of Newton's.
    """
    zeros = builder.graph.add("CLZ", (total,), total.shape, "INT32")
    shift = builder.binary("SUB", zeros, _number(builder, 1, zeros))
    whole = builder.graph.add("LOGICAL_LEFT_SHIFT", (total, shift), total.shape, "INT32")
    high = _right(builder, whole, _number(builder, 23, whole))  # from 128 to 256
    numbers = np.minimum((1 << 22) / (np.arange(256) + 128), 32767)
    first = _looked_up(builder, high, _number(builder, 256, high), 0, numbers)
    middle = builder.rescale(whole, 2.0**-16, 0, 0, "INT16")
    product = builder.binary("MUL", middle, first)  # 2**29 but for what the first misses
    missing = builder.binary("SUB", _number(builder, 1 << 29, product), product)
    part = builder.rescale(missing, 2.0**-14, 0, 0, "INT16")
    better = builder.rescale(builder.binary("MUL", first, part), 2.0**-15, 0, 0, "INT16")
    both = builder.binary("ADD", *(builder.rescale(one, 1.0, 0, 0, "INT32") for one in (first, better)))
    found = _right(builder, both, builder.binary("SUB", _number(builder, 17, zeros), zeros))
    return builder.rescale(found, 1.0, 0, 0, "INT16")


def _number(builder, number, like):
    """Return a number that broadcasts with a tensor."""
    return builder.graph.constant(np.full([1] * len(like.shape), number), "INT32")


def _right(builder, tensor, shift):
    """Return integers shifted to the right, rounded."""
    return builder.graph.add("ARITHMETIC_RIGHT_SHIFT", (tensor, shift), tensor.shape, "INT32", round=True)


def _looked_up(builder, left, right, zero, numbers):
    """Return numbers of 15 bits, by ``left - right + zero`` as a byte: the sum of their high bytes and their low ones.

    The difference is computed for each of both tables, into which the NPU fuses it.
    """
    parts = []
    for part, factor in zip(np.divmod(np.rint(numbers).astype(np.int64), 256), (256.0, 1.0), strict=True):
        index = builder.rescale(builder.binary("SUB", left, right), 1.0, 0, zero, "INT8")
        parts.append(builder.rescale(builder.table(index, part - 128), factor, -128, 0, "INT32"))
    return builder.rescale(builder.binary("ADD", *parts), 1.0, 0, 0, "INT16")
