"""Transpositions between channels first and channels last, and moving them behind what does not care.

They are ordinary Transpose nodes, marked in their metadata, so that a model's own stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.passes.integer.quantized_tensors import Emitter, quantization_of
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names

LEAST_RANK = 4
"""Of images that have their channels last: one of samples has one axis less."""
MARK = "graft.layout"
Dimensions = tuple[int | ir.SymbolicDim, ...]


def to_first(rank: int) -> tuple[int, ...]:
    """Return the order of axes of a Transpose from channels last to channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """Return the order of axes of a Transpose from channels first to channels last."""
    return (0, *range(2, rank), 1)


def transposed(emitter: Emitter, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    """Return the value with its axes in another order; one that was put into that order is taken from before."""
    producer = value.producer()
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    if producer is not None and rewrite.is_operator(producer, "Transpose") and value.shape is not None:
        source = producer.inputs[0]
        if tuple(rewrite.attribute_of(producer, "perm", ())) == inverse and source is not None:
            return source
    return moved_axes(emitter, value, order)


def moved_axes(emitter: Emitter, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    """Return the result of a new marked Transpose."""
    shape = rewrite.known_shape(value)
    assert shape is not None, f"'{value.name}' has no known shape"
    result = emitter.emit("Transpose", [value], value.dtype, [shape[axis] for axis in order], perm=list(order))
    maker = result.producer()
    assert maker is not None, result.name
    maker.metadata_props[MARK] = "channels-first" if order == to_first(len(order)) else "channels-last"
    return result


def sink_transpositions(graph: ir.Graph, names: Names) -> bool:
    """Move the marked transpositions to channels first behind what reads them, in the graph's order.

    1. two that undo each other disappear
    2. elementwise operators of one tensor, the others constants of one element or one for each channel
    3. elementwise operators of several tensors that all are transposed, and what joins them
    4. pooling: a transposition to channels last follows it, for what reads its result
    5. Flatten and Reshape to a vector for each image where there is one pixel
    6. ReduceSum, over the same axes in their new places
    7. Pad and Resize, by the same numbers in their new places
    """
    changed = False
    for node in list(graph):
        if node.graph is graph:
            changed |= _sink(Emitter(node, names))
    return changed


def _source(value: ir.Value | None) -> ir.Value | None:
    """What a marked transposition to channels first reads, if the value is its result."""
    producer = None if value is None else value.producer()
    if producer is None or producer.metadata_props.get(MARK) != "channels-first":
        return None
    return producer.inputs[0]


def _sink(emitter: Emitter) -> bool:
    node = emitter.node
    sources = [_source(value) for value in node.inputs]
    if not any(source is not None for source in sources) or len(node.outputs) != 1:
        return False
    if rewrite.is_operator(node, "Transpose"):  # case 1
        order = tuple(rewrite.attribute_of(node, "perm", ()))
        if order != to_last(len(order)) or sources[0] is None:
            return False
        emitter.replace(sources[0])
        return True
    if rewrite.is_operator(node, "Reshape", "Flatten"):  # case 5
        return _reshape(emitter, sources[0])
    if rewrite.is_operator(node, "ReduceSum"):  # case 6
        return _reduce(emitter, sources[0])
    if rewrite.is_operator(node, "Pad", "Resize"):  # case 7
        return _by_axis(emitter, sources[0])
    if rewrite.has_trait(node, Trait.POOLING):  # case 4
        return _pool(emitter)
    shape = rewrite.known_shape(node.outputs[0])
    if shape is None or len(shape) < LEAST_RANK:
        return False
    inputs = _inputs(emitter, sources, shape)
    if inputs is None:
        return False
    changed = (
        {"axis": to_last(len(shape)).index(rewrite.attribute_of(node, "axis", 1) % len(shape))}
        if rewrite.has_trait(node, Trait.JOINING)
        else {}
    )
    return _move_behind(emitter, inputs, shape, **changed)


def _move_behind(emitter: Emitter, inputs: Sequence[ir.Value | None], shape: Dimensions, **changed: int) -> bool:
    """Put the node over inputs with channels last, and a transposition behind it, in its place."""
    moved = emitter.again(
        inputs, emitter.node.outputs[0].dtype, [shape[axis] for axis in to_last(len(shape))], **changed
    )
    emitter.replace(transposed(emitter, moved, to_first(len(shape))))
    return True


def _inputs(emitter: Emitter, sources: list[ir.Value | None], shape: Dimensions) -> list[ir.Value | None] | None:
    """Return the node's inputs with channels last (cases 2 and 3), None if they cannot have them."""
    node = emitter.node
    elementwise = rewrite.has_trait(node, Trait.ELEMENTWISE)
    if rewrite.is_operator(node, "QuantizeLinear", "DequantizeLinear"):
        found = quantization_of(node, node.op_type)
        per_tensor = found is not None and found.per_tensor
        return [sources[0], *node.inputs[1:]] if per_tensor and sources[0] is not None else None
    if not elementwise and not rewrite.has_trait(node, Trait.JOINING):
        return None
    inputs: list[ir.Value | None] = []
    for value, source in zip(node.inputs, sources, strict=True):
        if source is not None:
            inputs.append(source)
            continue
        array = rewrite.constant_of(value)
        if value is None or (array is not None and array.size == 1 and elementwise):
            inputs.append(value)
        elif array is not None and elementwise and array.shape[1 - len(shape) :] == (shape[1], *[1] * (len(shape) - 2)):
            inputs.append(emitter.constant("channels", array.reshape(-1)))
        else:
            return None
    return inputs


def _reshape(emitter: Emitter, source: ir.Value | None) -> bool:
    shape, output = rewrite.image_shape(source), rewrite.image_shape(emitter.node.outputs[0])
    if source is None or shape is None or output is None or shape[1][:2] != (1, 1):
        return False
    batch, rest = output
    if not isinstance(batch, int) and batch != shape[0]:
        return False
    first = batch if isinstance(batch, int) else 0  # 0: the dimension stays
    target = emitter.constant("shape", np.array([first, *rest], np.int64))
    emitter.replace(emitter.emit("Reshape", [source, target], source.dtype, (batch, *rest)))
    return True


def _by_axis(emitter: Emitter, source: ir.Value | None) -> bool:
    """Move behind an operator whose constant operands have a number, or one at each end, for every axis."""
    node, shape = emitter.node, rewrite.known_shape(emitter.node.outputs[0])
    has_axes = "axes" in node.attributes or (node.op_type == "Pad" and any(node.inputs[3:]))
    if source is None or shape is None or len(shape) < LEAST_RANK or has_axes:
        return False
    inputs: list[ir.Value | None] = [source]
    for number, value in enumerate(node.inputs[1:], 1):
        array = rewrite.constant_of(value)
        if value is None or (node.op_type == "Pad" and number == 2) or (array is not None and array.size == 0):
            inputs.append(value)
        elif array is None or array.size % len(shape):
            return False
        else:
            inputs.append(emitter.constant("axes", array.reshape(-1, len(shape))[:, to_last(len(shape))].reshape(-1)))
    return _move_behind(emitter, inputs, shape)


def _reduce(emitter: Emitter, source: ir.Value | None) -> bool:
    node = emitter.node
    output = rewrite.known_shape(node.outputs[0])
    axes = rewrite.constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if source is None or output is None or axes is None:
        return False
    rank = len(rewrite.known_shape(source) or ())
    places = sorted(to_last(rank).index(int(axis) % rank) for axis in axes.reshape(-1))
    keeps = rewrite.attribute_of(node, "keepdims", 1)
    if not keeps and places != [*range(1, rank - 1)]:
        return False
    shape = [output[axis] for axis in to_last(rank)] if keeps else output
    operands = [source, emitter.constant("axes", np.array(places, np.int64))]
    summed = emitter.emit("ReduceSum", operands, node.outputs[0].dtype, shape, keepdims=keeps)
    emitter.replace(moved_axes(emitter, summed, to_first(rank)) if keeps else summed)
    return True


def _pool(emitter: Emitter) -> bool:
    node = emitter.node
    shape = rewrite.known_shape(node.outputs[0])
    users = [use.node for use in node.outputs[0].uses()]
    if (
        shape is None
        or len(shape) < LEAST_RANK
        or any(user.metadata_props.get(MARK) == "channels-last" for user in users)
    ):
        return False
    pooled = emitter.again(node.inputs, node.outputs[0].dtype, shape)
    last = moved_axes(emitter, pooled, to_last(len(shape)))
    emitter.replace(moved_axes(emitter, last, to_first(len(shape))))
    return True
