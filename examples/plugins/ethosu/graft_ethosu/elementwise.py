"""Arithmetic of two tensors, element by element, with broadcasting."""

import numpy as np

from graft_ethosu.building import RANGES, STORED, plain, shift_of
from graft_ethosu.lowering import finish, lowers, scale_of
from graft_ethosu.reading import Refused

FRACTION = {"INT8": 20, "INT16": 12}
"""The bits behind the point with which summands are added."""


def _order_of(layer, builder):
    """Return the rank of the result, and the order of axes that an operand of that rank has."""
    rank = len(layer.outputs[0].value.static_shape or ())
    if layer.outputs[0].value.static_shape is None:
        raise Refused("dynamic-shape", "the shape of the result is not known")
    orders = [
        builder.read(one.value).order for one in layer.operands if one.meaning is not None and one.constant is None
    ]
    return rank, next((one for one in orders if len(one) == rank and one != plain(rank)), plain(rank))


def _tensor(operand, builder, rank, order):
    """Return an operand with axes of extent 1 in front, in an order of axes."""
    value = builder.read(operand.value)
    shape = (1,) * (rank - len(value.order)) + value.shape
    if len(value.order) == rank:
        return builder.ordered(value, order)
    tensor = builder.reshape(builder.ordered(value, plain(len(value.order))), shape or (1,))
    return builder.transpose(tensor, order) if rank else tensor


def _constant(layer, index, rank, order):
    """Return a constant operand as numbers, with axes in front, in an order of axes."""
    numbers = np.asarray(layer.numbers(index), np.float64)
    return numbers.reshape((1,) * (rank - numbers.ndim) + numbers.shape).transpose(order)


def _spread(layer, index):
    """Return the scale of an operand; of a constant of floats one by which it has seven bits."""
    operand = layer.operand(index)
    if operand.meaning is not None and operand.meaning.scale.size == 1:
        return operand.meaning.factor("")[0]
    return max(float(np.abs(layer.numbers(index)).max()), 1e-30) / 127


@lowers("Add", "Sub")
def addition(layer, builder):
    """A sum or difference: both summands in integers of 32 bits of one scale, constants from bytes where these do."""
    rank, order = _order_of(layer, builder)
    common = 2 * max(_spread(layer, 0), _spread(layer, 1))
    bits = FRACTION[STORED.get(layer.outputs[0].value.dtype, "INT8")]
    summands = []
    for index in (0, 1):
        operand = layer.operand(index)
        if operand.constant is None:
            scale, zero = scale_of(operand, "operand")
            tensor = _tensor(operand, builder, rank, order)
        else:
            numbers, zero = _constant(layer, index, rank, order), 0
            scale, kind = max(float(np.abs(numbers).max()), 1e-30) / 127, "INT8"
            if np.abs(np.rint(numbers / scale) * scale - numbers).max() > scale_of(layer.outputs[0], "")[0] / 16:
                scale, kind = common / (1 << bits), "INT32"  # the result would notice bytes
            tensor = builder.graph.constant(np.rint(numbers / scale).astype(np.int64), kind)
        summands.append(builder.rescale(tensor, scale / common * (1 << bits), zero, 0, "INT32"))
    sums = builder.binary("ADD" if layer.operator == "Add" else "SUB", *summands)
    finish(layer, builder, sums, common / (1 << bits), order)


@lowers("Mul", "Div")
def multiplication(layer, builder):
    """A product, or a quotient by constants."""
    rank, order = _order_of(layer, builder)
    factors, scale = [], 1.0
    for index in (0, 1):
        operand = layer.operand(index)
        inverse = layer.operator == "Div" and index == 1
        if operand.constant is None:
            if inverse:
                raise Refused("constant-required", "a division by what is computed; by constants it is supported")
            factor, zero = scale_of(operand, "operand")
            if operand.value.dtype == "int16":
                raise Refused("dtype", "a product of int16; of int8 and uint8 it is supported")
            factors.append(builder.rescale(_tensor(operand, builder, rank, order), 1.0, zero, 0, "INT32"))
        else:
            numbers = _constant(layer, index, rank, order)
            if inverse and not numbers.all():
                raise Refused("attribute", "a division by zero")
            numbers = 1 / numbers if inverse else numbers
            factor = max(float(np.abs(numbers).max()), 1e-30) / 32767
            factors.append(builder.graph.constant(np.rint(numbers / factor).astype(np.int64), "INT32"))
        scale *= factor
    finish(layer, builder, builder.binary("MUL", *factors), scale, order)


@lowers("Max", "Min")
def extreme(layer, builder):
    """The larger or smaller of two, both in numbers of the result, with 32 bits: TOSA compares no others."""
    if len(layer.operands) != 2:
        raise Refused("attribute", f"{layer.operator} of {len(layer.operands)} tensors; 2 are supported")
    rank, order = _order_of(layer, builder)
    result = layer.outputs[0]
    factor, point = scale_of(result, "the result")
    kind = STORED[result.value.dtype]
    both = []
    for index in (0, 1):
        operand = layer.operand(index)
        if operand.constant is not None:
            low, high = RANGES[kind]
            whole = np.clip(np.rint(_constant(layer, index, rank, order) / factor), low - point, high - point)
            both.append(builder.graph.constant(whole.astype(np.int64), "INT32"))
        else:
            scale, zero = scale_of(operand, "operand")
            both.append(builder.rescale(_tensor(operand, builder, rank, order), scale / factor, zero, 0, "INT32"))
    name = "MAXIMUM" if layer.operator == "Max" else "MINIMUM"
    finish(layer, builder, builder.binary(name, *both), factor, order)


@lowers("Identity")
def requantisation(layer, builder):
    """The same numbers with another scale, or within limits."""
    value = builder.read(layer.operand(0).value)
    scale, zero = scale_of(layer.operand(0), "operand")
    finish(layer, builder, value.tensor, scale, value.order, zero)


def add_table(source, result, numbers, builder):
    """Add a table: of bytes, the result of the least first."""
    value = builder.read(source.value)
    whole = numbers.astype(np.int64) - shift_of(result.value.dtype)
    builder.write(result.value.name, builder.table(value.tensor, whole), value.order)
