"""Convolutions of one image as one convolution over all their output channels.

Of a batch of one image the channels of each stand together in the result, so what reads one of them reads a part of
that memory: nothing is copied. They must be alike in all but weights and numbers per channel, and so must be what is
fused behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import channels_of_weights
from graft.plugins.codegen.grouping.fusion import Group


def family_of_convolution(group: Group, apart: Collection[ir.Value]) -> Hashable:
    """Return what convolutions have in common that may be stacked; None for a group that is no such convolution.

    The results in ``apart`` are wanted in memory of their own.
    """
    node, result, weights = group.anchor, group.tail.outputs[0], group.anchor.input(1)
    if group.trait is not Trait.CONVOLUTION or group.before or group.lead or channels_of_weights(node.node) != 0:
        return None
    if weights is None or not weights.is_constant or node.attribute("group", 1) != 1 or result.value in apart:
        return None
    shape = node.outputs[0].static_shape or ()
    if len(shape) < 3 or shape[0] != 1 or 0 in shape or shape[1] < 2 or node.dtype != "float32":
        return None
    if any(one.outputs[0].static_shape != shape or len(one.outputs) > 1 for one in group.nodes):
        return None
    return group.trait, shape[2:], (weights.static_shape or ())[2:], tuple(_alike(one, group) for one in group.nodes)


def _alike(node: NodeView, group: Group) -> Hashable:
    """What a node has in common with the same node of another group: all but the contents of constants."""
    attributes = {name: node.attribute(name) for name in sorted(node.node.attributes)}
    texts = tuple(
        (name, value.tobytes() if isinstance(value, np.ndarray) else str(value)) for name, value in attributes.items()
    )
    return node.op_type, node.domain, texts, tuple(_source(value, group) for value in node.inputs)


def _source(value: ValueView | None, group: Group) -> Hashable:
    """Where an input comes from: the number of a node of the group, a value from outside, a constant or nothing."""
    if value is None or value.is_constant:
        return "nothing" if value is None else "constant"
    numbers = {node.node.outputs[0]: number for number, node in enumerate(group.nodes)}
    return numbers.get(value.value, value.value)


def stacked(groups: Sequence[Group]) -> Group | None:
    """Return groups of one family as one of whose result theirs are parts; None if other inputs cannot be joined."""
    results = [group.tail.outputs[0] for group in groups]
    channels = [(result.static_shape or ())[1] for result in results]
    made: dict[ir.Value, ir.Value] = {}
    nodes: list[NodeView] = []
    for same in zip(*(group.nodes for group in groups), strict=True):
        first = same[0]
        inputs: list[ir.Value | None] = []
        for values in zip(*(node.inputs for node in same), strict=True):
            known = [value for value in values if value is not None]
            if known and known[0].is_constant:
                joined = _joined(
                    known, channels, None if first is groups[0].anchor else len(first.outputs[0].shape or ())
                )
                if joined is None:
                    return None
                inputs.append(joined)
            elif known and known[0].value not in made and first is not groups[0].anchor:
                return None  # an image beside the convolution's own: it has the channels of one of them
            else:
                inputs.append(made.get(known[0].value, known[0].value) if known else None)
        node = _like(first.node, inputs, sum(channels))
        made[first.node.outputs[0]] = node.outputs[0]
        nodes.append(NodeView(node))
    sizes = [prod(result.static_shape or ()) for result in results]
    parts = [(result, sum(sizes[:number])) for number, result in enumerate(results)]
    return Group(nodes, groups[0].trait, parts=parts, origin=tuple(one.name for group in groups for one in group.nodes))


def _joined(values: Sequence[ValueView], channels: Sequence[int], rank: int | None) -> ir.Value | None:
    """Return a constant with the numbers of all channels, or the one number that all have; None if there is neither.

    Channels are the first axis if ``rank`` is None, else the second of an image of that rank to which it is broadcast.
    """
    arrays = [array for value in values if (array := value.constant) is not None]
    if all(array.size == 1 and np.array_equal(array, arrays[0]) for array in arrays):
        return values[0].value
    axis = 0 if rank is None else arrays[0].ndim - rank + 1
    if axis < 0 or any(array.ndim != arrays[0].ndim for array in arrays):
        return None
    shapes = [(array.shape[:axis], array.shape[axis + 1 :]) for array in arrays]
    if any(shape != shapes[0] for shape in shapes) or [array.shape[axis] for array in arrays] != list(channels):
        return None
    contents = np.concatenate(arrays, axis=axis)
    name = f"{values[0].name}_stacked"
    tensor = ir.tensor(contents, name=name)
    return ir.Value(name=name, shape=ir.Shape(contents.shape), type=values[0].value.type, const_value=tensor)


def _like(node: ir.Node, inputs: Sequence[ir.Value | None], channels: int) -> ir.Node:
    """Return a node like another one, of an image of so many channels."""
    output = node.outputs[0]
    shape = ValueView(output).static_shape or ()
    new = ir.Value(name=f"{output.name}_stacked", type=output.type, shape=ir.Shape((shape[0], channels, *shape[2:])))
    return ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=[new], name=node.name)
