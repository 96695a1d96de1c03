"""What moves elements and computes nothing: shapes, axes, slices, joins, enlargement."""

import numpy as np

from graft_ethosu.building import RANGES, STORED, plain
from graft_ethosu.lowering import finish, finish_images, images_of, lowers, rows_of, scale_of
from graft_ethosu.products import convolved
from graft_ethosu.reading import Refused


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def view(layer, builder):
    """The same elements in another shape."""
    value = builder.read(layer.operand(0).value)
    shape = layer.outputs[0].value.static_shape
    if shape is None:
        raise Refused("dynamic-shape", "the shape of the result is not known")
    scale, zero = scale_of(layer.operand(0), "operand")
    tensor = builder.ordered(value, plain(len(value.order)))
    finish(layer, builder, builder.reshape(tensor, shape or (1,)), scale, plain(len(shape)), zero)


@lowers("Transpose")
def transposition(layer, builder):
    """Axes by other names: nothing moves until somebody wants them in an order."""
    value = builder.read(layer.operand(0).value)
    permutation = [int(one) for one in layer.node.attribute("perm") or plain(len(value.order))[::-1]]
    scale, zero = scale_of(layer.operand(0), "operand")
    finish(layer, builder, value.tensor, scale, [permutation.index(axis) for axis in value.order], zero)


@lowers("Concat")
def concatenation(layer, builder):
    """Tensors behind each other, each in the numbers of the result."""
    result = layer.outputs[0]
    factor, point = scale_of(result, "the result")
    values = [builder.read(one.value) for one in layer.operands]
    order = values[0].order
    parts = []
    for value, operand in zip(values, layer.operands, strict=True):
        scale, zero = scale_of(operand, "operand")
        tensor = builder.ordered(value, order)
        parts.append(builder.rescale(tensor, scale / factor, zero, point, STORED[result.value.dtype]))
    axis = order.index(int(layer.node.attribute("axis", 0)) % len(order))
    finish(layer, builder, builder.concat(parts, axis), factor, order, point)


@lowers("Slice")
def box(layer, builder):
    """A box of a tensor, without steps."""
    value = builder.read(layer.operand(0).value)
    starts, _, axes, steps = (layer.numbers(index) for index in (1, 2, 3, 4))
    if steps is not None and (steps != 1).any():
        raise Refused("attribute", "a slice with steps")
    sizes = layer.outputs[0].value.static_shape
    begins = [0] * len(value.order)
    for start, axis in zip(starts, range(len(starts)) if axes is None else axes, strict=True):
        extent = value.shape[int(axis)]
        begins[int(axis)] = int(np.clip(start + extent if start < 0 else start, 0, extent))
    _part(layer, builder, value, begins, sizes)


def _part(layer, builder, value, begins, sizes):
    scale, zero = scale_of(layer.operand(0), "operand")
    part = builder.slice(value.tensor, [begins[axis] for axis in value.order], [sizes[axis] for axis in value.order])
    finish(layer, builder, part, scale, value.order, zero)


@lowers("Split")
def parts(layer, builder):
    """Bytes in several parts."""
    value = builder.read(layer.operand(0).value)
    axis = int(layer.node.attribute("axis", 0)) % len(value.order)
    begins = [0] * len(value.order)
    for result in layer.outputs:
        sizes = result.value.static_shape
        given = ([one[place] for place in value.order] for one in (begins, sizes))
        builder.write(result.value.name, builder.slice(value.tensor, *given), value.order)
        begins[axis] += sizes[axis]


@lowers("Pad")
def padding(layer, builder):
    """A constant around a tensor."""
    if layer.node.attribute("mode", "constant") not in ("constant", b"constant"):
        raise Refused("attribute", f"pads of mode {layer.node.attribute('mode')}")
    value, rank = builder.read(layer.operand(0).value), len(layer.operand(0).value.static_shape or ())
    numbers, axes = layer.numbers(1), layer.numbers(3)
    pads = [(0, 0)] * rank
    chosen = range(rank) if axes is None else [int(one) % rank for one in axes.reshape(-1)]
    for place, axis in enumerate(chosen):
        pads[axis] = (int(numbers[place]), int(numbers[place + len(numbers) // 2]))
    if any(one < 0 for both in pads for one in both):
        raise Refused("attribute", "pads that cut")
    scale, zero = scale_of(layer.operand(0), "operand")
    filled = layer.numbers(2)
    number = 0.0 if filled is None or not filled.size else float(filled.reshape(-1)[0])
    fill = int(np.clip(np.rint(number / scale) + zero, *RANGES[value.tensor.dtype]))
    made = builder.pad(value.tensor, [pads[axis] for axis in value.order], fill)
    finish(layer, builder, made, scale, value.order, zero)


@lowers("Resize")
def enlargement(layer, builder):
    """Images that are larger by whole factors, by the nearest element or linearly."""
    node = layer.node
    tensor, scale, zero = images_of(layer, builder)
    rows, mode = rows_of(layer), node.attribute("mode", "nearest")
    where = node.attribute("coordinate_transformation_mode", "half_pixel")
    factors = [made / extent for made, extent in zip(rows, tensor.shape[1:3], strict=True)]
    if layer.outputs[0].value.static_shape[:2] != layer.operand(0).value.static_shape[:2] or mode == "cubic":
        raise Refused("attribute", f"Resize along other axes than those of images, or of mode {mode}")
    steps, offset, border = [], [], []
    for factor, extent, made in zip(factors, tensor.shape[1:3], rows, strict=True):
        if where == "align_corners" and mode == "linear" and extent > 1:
            steps += [made - 1, extent - 1]
            offset, border = [*offset, 0], [*border, 0]
            continue
        whole = int(factor)
        if factor != whole:
            raise Refused("attribute", f"Resize by {factor:.4g}; whole factors are supported")
        _check_nearest(node, mode, where, whole)
        is_corner = mode == "linear" and where == "asymmetric"
        steps += [whole, 1] if is_corner else [2 * whole, 2]
        offset.append(0 if is_corner else 1 - whole)
        border.append(whole - 1)
    is_doubled = mode == "linear" and factors == [2, 2] and where != "align_corners" and tensor.dtype == "INT8"
    if is_doubled and (builder.family != "u85" or layer.operand(0).meaning != layer.outputs[0].meaning):
        taps = [0, 1, 1] if where == "asymmetric" else [1, 2, 1]
        return _smoothed(layer, builder, tensor, (scale, zero), taps)
    shape = (tensor.shape[0], *rows, tensor.shape[3])
    kind = tensor.dtype if mode == "nearest" else {"INT8": "INT32", "INT16": "INT48"}[tensor.dtype]
    given = (tensor, *(builder.graph.constant(one, "SHAPE") for one in (steps, offset, border)))
    made = builder.graph.add("RESIZE", given, shape, kind, mode="NEAREST" if mode == "nearest" else "BILINEAR")
    if mode != "nearest":
        made = builder.rescale(made, 1 / (steps[0] * steps[2]), 0, 0, tensor.dtype)
    return finish_images(layer, builder, made, scale, zero)


def _smoothed(layer, builder, tensor, meaning, taps):
    """Twice as large images, linearly: each element four times, then a weighted mean of three along both axes.

    U55 and U65 have no other way; U85 has one, which rounds to the operand's scale. With weights of 1, 2 and 1 an
    element is 3/4 of the nearer and 1/4 of the next.
    """
    scale, zero = meaning
    number, height, width, channels = tensor.shape
    given = (tensor, *(builder.graph.constant(one, "SHAPE") for one in ([4, 2, 4, 2], [-1, -1], [1, 1])))
    shape = [number, 2 * height, 2 * width, channels]
    tensor = builder.graph.add("RESIZE", given, shape, "INT8", mode="NEAREST")
    for axis in (1, 2):
        size, last = [*tensor.shape], [0] * 4
        size[axis] = 1
        last[axis] = tensor.shape[axis] - 1
        edges = builder.slice(tensor, [0] * 4, size), builder.slice(tensor, last, size)
        tensor = builder.concat((edges[0], tensor, edges[1]), axis)
    weights = np.tile(np.outer(taps, taps)[:, :, None, None], (1, 1, channels, 1))
    attributes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1]}
    more = np.zeros(channels, np.int64), 0
    sums = convolved(builder, "DEPTHWISE_CONV2D", tensor, zero, weights, more, attributes, shape)
    return finish_images(layer, builder, sums, scale / sum(taps) ** 2)


def _check_nearest(node, mode, where, factor):
    """Refuse the nearest elements that are others than those that TOSA takes: each ``factor`` times."""
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    repeated = (where in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round_prefer")) or (
        where == "asymmetric" and (rounding == "floor" or (factor <= 2 and rounding == "round_prefer_floor"))
    )
    if mode == "nearest" and not repeated:
        raise Refused("attribute", f"Resize of the nearest with {where} and {rounding}")
    if mode == "linear" and where not in ("half_pixel", "pytorch_half_pixel", "asymmetric"):
        raise Refused("attribute", f"Resize with {where}")
