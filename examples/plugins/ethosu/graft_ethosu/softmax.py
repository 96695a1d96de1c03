"""Softmax in integers: exponentials by tables, times the reciprocal of their sum."""

import numpy as np

from graft_ethosu.lowering import finish, lowers, scale_of
from graft_ethosu.reading import Refused

LONGEST = 1 << 15
"""The elements whose exponentials, of 15 bits each, have a sum that fits."""
PLACES, STEP = np.arange(513) - 256.0, 128
"""Of the entries of a table of 16 bits; from one to the next there are so many numbers, which have the line between.

A table has exponentials for places up to 0, and behind them reciprocals of 128 and more.
"""


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
    numbers = np.where(PLACES > 0, (1 << 22) / (128 + np.abs(PLACES)), np.exp(scale * np.minimum(PLACES, 0)) * 32767)
    table = builder.graph.constant(np.rint(numbers).astype(np.int64), "INT16")
    exponentials = _looked_up(builder, wide, highest, STEP, table)
    total = builder.reduced("REDUCE_SUM", builder.rescale(exponentials, 1.0, 0, 0, "INT32"), axis)
    portions = builder.binary("MUL", exponentials, _reciprocal(builder, total, table))
    finish(layer, builder, portions, 2.0**-29, value.order)


def _reciprocal(builder, total, table):
    """Return ``2**29`` by the sum, which has 15 bits or more, in 16 bits.

    The sum is shifted to 31 bits. The reciprocal of its highest 15 lies between entries of a table, ``2**-16`` of it
    off, on U85; on others it is an entry for its highest eight, better by a step of Newton's.
    """
    zeros = builder.graph.add("CLZ", (total,), total.shape, "INT32")
    shift = builder.binary("SUB", zeros, _number(builder, 1, zeros))
    whole = builder.graph.add("LOGICAL_LEFT_SHIFT", (total, shift), total.shape, "INT32")
    back = builder.binary("SUB", _number(builder, 17, zeros), zeros)
    if builder.family == "u85":
        found = _looked_up(builder, whole, _number(builder, 1 << 30, whole), 2.0**-16, table)
        return _right(builder, found, builder.rescale(back, 1.0, 0, 0, "INT16"))
    high = _right(builder, whole, _number(builder, 23, whole))  # from 128 to 256
    first = _looked_up(builder, high, _number(builder, 128, high), STEP, table)
    middle = builder.rescale(whole, 2.0**-16, 0, 0, "INT16")
    product = builder.binary("MUL", middle, first)  # 2**29 but for what the first misses
    missing = builder.binary("SUB", _number(builder, 1 << 29, product), product)
    part = builder.rescale(missing, 2.0**-14, 0, 0, "INT16")
    better = builder.rescale(builder.binary("MUL", first, part), 2.0**-15, 0, 0, "INT16")
    both = builder.binary("ADD", *(builder.rescale(one, 1.0, 0, 0, "INT32") for one in (first, better)))
    return builder.rescale(_right(builder, both, back), 1.0, 0, 0, "INT16")


def _number(builder, number, like):
    """Return a number that broadcasts with a tensor."""
    return builder.graph.constant(np.full([1] * len(like.shape), number), "INT32")


def _right(builder, tensor, shift):
    """Return integers shifted to the right, rounded."""
    return builder.graph.add("ARITHMETIC_RIGHT_SHIFT", (tensor, shift), tensor.shape, tensor.dtype, round=True)


def _looked_up(builder, left, right, factor, table):
    """Return numbers of 15 bits, each for one of `PLACES`, by ``left - right`` times a factor, a `STEP` for a place."""
    places = builder.rescale(builder.binary("SUB", left, right), float(factor), 0, 0, "INT16")
    found = builder.graph.add("TABLE", (places, table), places.shape, "INT32")
    return builder.rescale(found, 1 / STEP, 0, 0, "INT16")
