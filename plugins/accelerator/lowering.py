"""Layers as stages: one rule for each kind of layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator import stages
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend import layers
from graft.plugins.accelerator.tiling import Kind, Shape

Array = npt.NDArray[Any]


def most_vectors(configuration: Configuration) -> int:
    """Return how many accumulators a stage's vectors may take: layers with more outputs become several stages."""
    return configuration.accumulator_entries // 8


def stages_of(
    layer: layers.Layer, configuration: Configuration, packing: layers.Packing | None = None
) -> list[stages.Stage]:
    """Return the stages of a layer; ``packing`` is how its input lies in DRAM if not in blocks of channels.

    Raise CompileError, with the layer's name, for what no stage computes.
    """
    match layer:
        case layers.Convolution():
            return list(_convolution(layer, configuration, packing))
        case layers.Product(right=layers.Activation()):
            return list(_product(layer, configuration))
        case layers.Product(right=right):
            assert not isinstance(right, layers.Activation), layer.name
            weights = np.ascontiguousarray(right.T)[:, :, None, None]
            as_convolution = layers.Convolution(layer.name, layer.left, layer.output, weights, layer.requantize)
            return list(_convolution(as_convolution, configuration, packing))
        case layers.Addition():
            return [_addition(layer, configuration)]
        case layers.Pooling():
            return [_pooling(layer, configuration)]
        case layers.Concatenation():
            return list(_concatenation(layer, configuration))
        case layers.Requantization():
            vectors, actions = stages.converting(
                layer.input, layer.output, layer.lower, layer.upper, configuration.block_out
            )
            return [_moving(layer.name, layer.input, layer.output, vectors, actions, configuration)]
        case _:
            assert_never(layer)


# ---- Products -----------------------------------------------------------------------------------------------------


def unfolded(layer: layers.Convolution, packing: layers.Packing) -> layers.Convolution:
    """Return a convolution of an input that is packed in patches, with the kernel's places among its channels."""
    rows, columns = packing.kernel
    channels = layer.input.channels * rows * columns
    w = layer.weights
    if rows == 1:
        weights, kernel = w.transpose(0, 3, 1, 2).reshape(len(w), -1, w.shape[2], 1), 0
    else:
        weights, kernel = w.transpose(0, 2, 3, 1).reshape(len(w), -1, 1, 1), 1
    packed = replace(layer.input, channels=channels, height=packing.rows, width=packing.columns)
    top, _, bottom, _ = layer.pads if kernel == 0 else (0, 0, 0, 0)
    return replace(
        layer,
        input=packed,
        weights=weights,
        strides=(layer.strides[0], 1) if kernel == 0 else (1, 1),
        pads=(top, 0, bottom, 0),
        dilations=(layer.dilations[0], 1),
    )


def packings_for(layer: layers.Convolution, lanes: int) -> Iterator[layers.Packing]:
    """Yield the ways in which the input of a convolution may be packed by who hands it over."""
    tensor = layer.input
    yield layers.Packing(tensor, lanes, tensor.height, tensor.width, fill=tensor.zero_point)
    kernel = layer.weights.shape[2:]
    if layer.groups > 1 or tensor.channels >= lanes:
        return
    if kernel[1] > 1:
        yield layers.Packing(
            tensor, lanes, tensor.height, layer.output.width, (1, kernel[1]), (1, layer.strides[1]),
            (0, layer.pads[1]), (1, layer.dilations[1]), tensor.zero_point,
        )  # fmt: skip
    if kernel[0] > 1:
        yield layers.Packing(
            tensor, lanes, layer.output.height, layer.output.width, (kernel[0], kernel[1]), layer.strides,
            (layer.pads[0], layer.pads[1]), layer.dilations, tensor.zero_point,
        )  # fmt: skip


def _convolution(
    layer: layers.Convolution, configuration: Configuration, packing: layers.Packing | None
) -> Iterator[stages.Stage]:
    if packing is not None and packing.kernel != (1, 1):
        layer = unfolded(layer, packing)
    lanes, weights = configuration.block_out, layer.weights
    outputs, channels = len(weights), layer.input.channels
    useful = weights.size * layer.output.height * layer.output.width * layer.output.batch
    most = max(1, most_vectors(configuration) // stages.VECTORS)
    is_depthwise = layer.groups == outputs == channels > 1
    if is_depthwise:
        needs = [range(block, block + 1) for block in range(-(-outputs // lanes))]
    else:
        weights = stages.grouped(weights, layer.groups)
        needs = (
            stages.needs_of(weights, lanes)
            if layer.groups > 1
            else [range(-(-channels // lanes))] * -(-outputs // lanes)
        )
    for run, step in stages.even_runs(needs, most):
        part = slice(run.start * lanes, min(run.stop * lanes, outputs))
        share = useful * (part.stop - part.start) / outputs
        yield _convolved(layer, weights, part, (needs[run.start : run.stop], step), configuration, share)


def _convolved(
    layer: layers.Convolution, weights: Array, part: slice, needs: tuple[Sequence[range], int],
    configuration: Configuration, useful: float,
) -> stages.Stage:  # fmt: skip
    """Return the stage of some outputs, whose blocks of inputs are evenly apart."""
    lanes, (own, step) = configuration.block_out, needs
    is_depthwise = layer.groups == layer.input.channels > 1 and weights.shape[1] == 1
    weights = weights[part]
    source, target = stages.Operand.of(layer.input, lanes), stages.Operand.of(layer.output, lanes)
    target = replace(target, first=part.start // lanes, count=len(own))
    source = replace(source, first=own[0].start, count=own[-1].stop - own[0].start)
    offsets = -layer.input.zero_point * weights.astype(np.int64).sum(axis=(1, 2, 3))
    requantize = replace(
        layer.requantize,
        bias=np.broadcast_to(layer.requantize.bias, (len(layer.weights),))[part],
        multiplier=np.broadcast_to(layer.requantize.multiplier, (len(layer.weights),))[part],
    )
    vectors, actions = stages.requantizing(requantize, layer.output.zero_point, offsets, lanes)
    if is_depthwise:
        packed = stages.packed_lanes(weights.reshape(len(weights), -1), lanes)
    else:
        packed = stages.packed_blocks(weights, own, configuration)
    shape = Shape(
        Kind.LANES if is_depthwise else Kind.BLOCKS,
        layer.input.batch,
        len(own),
        len(own[0]),
        (layer.input.height, layer.input.width),
        (layer.output.height, layer.output.width),
        (weights.shape[2], weights.shape[3]),
        layer.strides,
        (layer.pads[0], layer.pads[1]),
        layer.dilations,
        layer.input.width,
        1 if is_depthwise else step,
        len(stages.parts_of(weights)),
        alu=len(actions),
        lanes=lanes,
    )
    return stages.Stage(
        layer.name, _without_skipped_rows(shape), (source,), target, layer.input.zero_point, packed, vectors, actions,
        useful=useful / (lanes if is_depthwise else lanes * configuration.block_in),
    )  # fmt: skip


def _without_skipped_rows(shape: Shape) -> Shape:
    """Return the same shape without the rows that no kernel touches: they are not loaded."""
    step = shape.strides[0]
    inside = (shape.result[0] - 1) * step < shape.size[0]
    if shape.kernel[0] > 1 or step == 1 or shape.pads[0] or not inside:
        return shape
    return replace(
        shape, size=(shape.result[0], shape.size[1]), strides=(1, shape.strides[1]), pitch=shape.pitch * step
    )


def _product(layer: layers.Product, configuration: Configuration) -> Iterator[stages.Stage]:
    lanes, right, left = configuration.block_out, layer.right, layer.left
    assert isinstance(right, layers.Activation), layer.name
    inputs, outputs = -(-left.channels // lanes), -(-right.channels // lanes)
    zeros = left.zero_point * right.zero_point * inputs * configuration.block_in
    offsets = np.full(layer.output.channels, zeros, np.int64)
    if outputs * stages.VECTORS > most_vectors(configuration):
        raise stages.refuse(layer.name, f"size: a product of {right.channels} computed columns needs {outputs} vectors")
    vectors, actions = stages.requantizing(layer.requantize, layer.output.zero_point, offsets, lanes)
    shape = Shape(
        Kind.BLOCKS, left.batch, outputs, inputs, (left.height, 1), (left.height, 1), pitch=1, alu=len(actions)
    )
    useful = left.batch * left.height * left.channels * right.channels / (lanes * configuration.block_in)
    yield stages.Stage(
        layer.name, shape, (stages.Operand.of(left, lanes),), stages.Operand.of(layer.output, lanes), left.zero_point,
        right.name, vectors, actions, corrections=(left.zero_point, right.zero_point), useful=useful,
    )  # fmt: skip


# ---- What is brought to the ALU -----------------------------------------------------------------------------------


def _moving(
    name: str, source: layers.Activation, output: layers.Activation, vectors: Array | None,
    actions: tuple[stages.Action, ...], configuration: Configuration,
) -> stages.Stage:  # fmt: skip
    lanes = configuration.block_out
    target = stages.Operand.of(output, lanes)
    shape = stages.moving_shape(target, (output.height, output.width), output.batch, len(actions))
    return stages.Stage(name, shape, (stages.Operand.of(source, lanes),), target, 0, b"", vectors, actions)


def _addition(layer: layers.Addition, configuration: Configuration) -> stages.Stage:
    lanes, output = configuration.block_out, layer.output
    vectors, actions = stages.adding(layer.left, layer.right, output, layer.lower, layer.upper, 0, lanes)
    stage = _moving(layer.name, layer.left, output, vectors, actions, configuration)
    return replace(stage, shape=replace(stage.shape, moved=True), moved=stages.Operand.of(layer.right, lanes))


def _pooling(layer: layers.Pooling, configuration: Configuration) -> stages.Stage:
    lanes, source, output = configuration.block_out, layer.input, layer.output
    taps = math.prod(layer.kernel)
    is_mean = layer.kind is layers.PoolingKind.AVERAGE
    if is_mean and not _has_one_count(layer):
        raise stages.refuse(
            layer.name, "attribute: a mean whose windows have different numbers of places inside the input"
        )
    vectors, actions = stages.converting(source, output, layer.lower, layer.upper, lanes, taps if is_mean else 1)
    target = stages.Operand.of(output, lanes)
    shape = Shape(
        Kind.SUM if is_mean else Kind.MAXIMUM, source.batch, target.count, 1,
        (source.height, source.width), (output.height, output.width), layer.kernel, layer.strides,
        (layer.pads[0], layer.pads[1]), layer.dilations, source.width, 1,
        alu=len(actions) + (0 if is_mean else taps - 1),
    )  # fmt: skip
    fill = source.zero_point if is_mean else -128
    return stages.Stage(layer.name, shape, (stages.Operand.of(source, lanes),), target, fill, b"", vectors, actions)


def _has_one_count(layer: layers.Pooling) -> bool:
    """Whether all windows have as many places."""
    for axis in (0, 1):
        reach = (layer.output.shape[2 + axis] - 1) * layer.strides[axis] + (
            layer.dilations[axis] * (layer.kernel[axis] - 1) + 1
        )
        before, size = layer.pads[axis], layer.input.shape[2 + axis]
        room = size + before + layer.pads[axis + 2] if layer.counts_padding else size
        if reach > room or (before and not layer.counts_padding):
            return False
    return True


def _concatenation(layer: layers.Concatenation, configuration: Configuration) -> Iterator[stages.Stage]:
    lanes, output = configuration.block_out, layer.output
    if all(one.channels % lanes == 0 for one in layer.inputs[:-1]):
        first = 0
        for one in layer.inputs:
            vectors, actions = stages.converting(one, output, layer.lower, layer.upper, lanes)
            part = replace(output, channels=one.channels)
            stage = _moving(layer.name, one, part, vectors, actions, configuration)
            whole = stages.Operand.of(output, lanes)
            yield replace(stage, output=replace(whole, first=first, count=stage.output.count))
            first += stage.output.count
        return
    yield from _selected(layer, configuration)


def _selected(layer: layers.Concatenation, configuration: Configuration) -> Iterator[stages.Stage]:
    """Yield a concatenation as products with ones where a channel goes: lanes change their places."""
    lanes, output = configuration.block_out, layer.output
    operands = tuple(stages.Operand.of(one, lanes) for one in layer.inputs)
    weights = np.zeros((output.channels, sum(one.count for one in operands) * lanes, 1, 1), np.int8)
    row = block = 0
    for one, operand in zip(layer.inputs, operands, strict=True):
        for channel in range(one.channels):
            weights[row, block * lanes + channel] = 1
            row += 1
        block += operand.count
    counts = [one.channels for one in layer.inputs]
    offsets = np.repeat([-one.zero_point for one in layer.inputs], counts)
    scales = np.repeat(np.array([one.scale for one in layer.inputs], np.float32), counts)
    size, whole = (output.height, output.width), stages.Operand.of(output, lanes)
    for number, needed in enumerate(stages.needs_of(weights, lanes)):
        part = slice(number * lanes, (number + 1) * lanes)
        requantize = layers.Requantize(
            multiplier=scales[part], divisor=output.scale, lower=layer.lower, upper=layer.upper
        )
        vectors, actions = stages.requantizing(requantize, output.zero_point, offsets[part], lanes)
        shape = Shape(
            Kind.BLOCKS, output.batch, 1, len(needed), size, size, pitch=output.width, alu=len(actions)
        )  # fmt: skip
        packed = stages.packed_blocks(weights[part], [needed], configuration)
        target = replace(whole, first=number, count=1)
        yield stages.Stage(layer.name, shape, tuple(_cut(operands, needed)), target, 0, packed, vectors, actions)


def _cut(operands: Sequence[stages.Operand], blocks: range) -> Iterator[stages.Operand]:
    """Yield the parts of operands, one behind the other, that are some blocks of them all."""
    before = 0
    for one in operands:
        start, stop = (min(max(place - before, 0), one.count) for place in (blocks.start, blocks.stop))
        if start < stop:
            yield replace(one, first=start, count=stop - start)
        before += one.count
