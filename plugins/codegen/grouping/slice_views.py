"""Parts of a tensor that lie in one piece of its memory: results of Slice, Split and Gather that need no kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.movement.manipulation import integers

Axis = tuple[int, int, int]
"""Which positions along an axis are read: the first, how many, and how far one is from the next."""


def slices_in_memory(node: NodeView) -> list[tuple[ir.Value, int]] | None:
    """Return the outputs of a node with the number of elements of its first input before each.

    None unless every output is a piece of the memory of that input.
    """
    source = node.input(0)
    shape = None if source is None else source.static_shape
    if node.domain or shape is None or math.prod(shape) == 0:
        return None
    found = [(value, _offset(shape, box)) for value, box in _boxes(node, shape)]
    pieces = [(value, offset) for value, offset in found if offset is not None]
    return pieces if pieces and len(pieces) == len(found) else None


def _boxes(node: NodeView, shape: Sequence[int]) -> Iterator[tuple[ir.Value, list[Axis]]]:
    """Yield the outputs of a node that reads boxes of its first input, each with its box; nothing for other nodes."""
    box = [(0, extent, 1) for extent in shape]
    constants = [None if value is None else value.constant for value in node.inputs[1:]]
    if node.op_type == "Slice":
        starts, ends, axes, steps = [integers(array) for array in (*constants, None, None)][:4]
        if starts is None or ends is None:
            return
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            axis = normal_axis(number if axes is None else axes[number], len(shape))
            first, last, step = slice(start, end, 1 if steps is None else steps[number]).indices(shape[axis])
            box[axis] = (first, len(range(first, last, step)), step)
        if tuple(count for _, count, _ in box) == node.outputs[0].static_shape:  # else steps back are clamped otherwise
            yield node.node.outputs[0], box
    elif node.op_type == "Split":
        axis, begin = normal_axis(node.attribute("axis", 0), len(shape)), 0
        for value in node.outputs:
            extent = (value.static_shape or shape)[axis]
            if value.name:
                yield value.value, [*box[:axis], (begin, extent, 1), *box[axis + 1 :]]
            begin += extent
    elif node.op_type == "Gather" and constants and constants[0] is not None and constants[0].size == 1:
        axis = normal_axis(node.attribute("axis", 0), len(shape))
        chosen = int(constants[0].reshape(-1)[0])
        box[axis] = (min(max(chosen + shape[axis] * (chosen < 0), 0), shape[axis] - 1), 1, 1)
        yield node.node.outputs[0], box


def _offset(shape: Sequence[int], box: Sequence[Axis]) -> int | None:
    """The number of elements before a box that is one piece of memory, None for another."""
    offset, size, whole = 0, 1, True
    for extent, (begin, count, step) in zip(reversed(shape), reversed(box), strict=True):
        if count > 1 and not (whole and step == 1):
            return None
        whole = whole and count == extent
        offset += begin * size
        size *= extent
    return offset if all(count for _, count, _ in box) else None
