"""What every lowering shares: operands with their scales, results with theirs, and the table of all lowerings."""

import numpy as np

from graft_ethosu.building import STORED, channels_last, shift_of
from graft_ethosu.reading import Refused

LOWERINGS = {}
"""By operator of ONNX the function that adds a layer of it to a builder: the support matrix of the plugin."""


def lowers(*operators):
    """Add a function to the table."""

    def add(function):
        for one in operators:
            assert one not in LOWERINGS, f"{one} is lowered twice"
            LOWERINGS[one] = function
        return function

    return add


def lower(layer, builder):
    """Add a layer to a graph; raise Refused where TOSA cannot say it."""
    function = LOWERINGS.get(layer.operator)
    if function is None or layer.node.domain not in ("", "ai.onnx"):
        raise Refused("no-pattern", f"nothing in the plugin computes {layer.operator} on integers")
    builder.graph.origin = layer.origin
    function(layer, builder)


def scale_of(operand, what):
    """Return scale and zero point of a tensor, the latter as numbers are stored."""
    if operand.meaning is None:
        raise Refused("dtype", f"{what} '{operand.value.name}' is not quantised")
    scale, zero = operand.meaning.factor(f"'{operand.value.name}'")
    return scale, zero - shift_of(operand.value.dtype)


def images_of(layer, builder):
    """Return the first operand as [n, h, w, c], its scale and zero point; a sequence is one row high."""
    operand = layer.operand(0)
    value = builder.read(operand.value)
    rank = len(value.order)
    if rank not in (3, 4):
        raise Refused("rank", f"windows along {rank - 2} axes; 1 or 2 are supported")
    tensor = builder.ordered(value, channels_last(rank))
    if rank == 3:
        tensor = builder.reshape(tensor, (tensor.shape[0], 1, *tensor.shape[1:]))
    return tensor, *scale_of(operand, "operand")


def finish_images(layer, builder, tensor, scale, zero=0):
    """Make [n, h, w, c] the result of a layer."""
    rank = len(layer.outputs[0].value.static_shape)
    made = requantised(layer, builder, tensor, scale, zero)
    if rank == 3:
        made = builder.reshape(made, (made.shape[0], *made.shape[2:]))
    builder.write(layer.outputs[0].value.name, made, channels_last(rank))


def finish(layer, builder, tensor, scale, order, zero=0):
    """Make numbers of a scale the result of a layer."""
    builder.write(layer.outputs[0].value.name, requantised(layer, builder, tensor, scale, zero), order)


def requantised(layer, builder, tensor, scale, zero=0):
    """Return numbers of a scale, or of one for each of the last axis, as the result has them, within its limits."""
    result = layer.outputs[0]
    factor, point = scale_of(result, "the result")
    made = builder.rescale(tensor, scale / factor, zero, point, STORED[result.value.dtype])
    least, most = (
        bound if np.isinf(bound) else int(np.rint(np.float32(bound) / np.float32(factor))) + point
        for bound in (layer.lower, layer.upper)
    )
    return builder.clamp(made, least, most)


def windows_of(layer, tensor, kernel, rows):
    """Return strides, pads and dilations along h and w, and how much of the tensor [n, h, w, c] the windows see.

    TOSA wants windows that end where the padded tensor does; ``rows`` are the extents of the result.
    """
    node = layer.node
    count = len(layer.operand(0).value.static_shape) - 2

    def both(name):
        numbers = [int(one) for one in node.attribute(name) or [1] * count]
        return [1] * (2 - count) + numbers

    strides, dilations = both("strides"), both("dilations")
    given = [int(one) for one in node.attribute("pads") or [0] * 2 * count]
    begins = [0] * (2 - count) + given[:count]
    seen, pads = [], []
    for axis, extent in enumerate(tensor.shape[1:3]):
        needed = (rows[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        whole = max(needed - extent, 0)
        match node.attribute("auto_pad", "NOTSET"):
            case "SAME_UPPER":
                begin = whole // 2
            case "SAME_LOWER":
                begin = whole - whole // 2
            case _:
                begin = begins[axis]
        end = needed - extent - begin
        seen.append(extent + min(end, 0))
        pads += [begin, max(end, 0)]
    return strides, pads, dilations, seen


def cut(builder, tensor, seen):
    """Return the part of [n, h, w, c] that windows see."""
    return builder.slice(tensor, (0, 0, 0, 0), (tensor.shape[0], *seen, tensor.shape[3]))


def rows_of(layer):
    """Return h and w of the result."""
    shape = layer.outputs[0].value.static_shape
    if shape is None:
        raise Refused("dynamic-shape", "the shape of the result is not known")
    return [1] * (4 - len(shape)) + list(shape[2:])
