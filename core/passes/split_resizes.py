"""Images of any size, enlarged along one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, is_operator
from graft.core.rewriting.writer import Writer

FEW = 64
"""Channels below which a linear Resize gains by two steps, whatever the order of its axes: 16 channels take 0.5 to 0.7
of the time, 64 1.0 to 1.2, 128 1.3 to 1.6 (channels last; with channels first 19 take 0.2 to 0.5)."""


@dataclass(frozen=True)
class SplitResizes(NodePass):
    """Write a Resize of an image of unknown size that interpolates along several axes as one for each, innermost first.

    A kernel of known extents keeps what the first axis gives in memory of that size; one of any size would read all
    elements around each of its result. Between two nodes there is memory of any size.

    1. cubic: of any channels
    2. linear: of few channels, or where the result leaves the model, with channels first
    """

    name: ClassVar[str] = "split-resizes"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        axes = _axes(node) if is_operator(node, "Resize") else ()
        image, result = (node.inputs[0], node.outputs[0]) if axes else (None, None)
        if image is None or image.shape is None or result is None or result.shape is None:
            return False
        write, extents = Writer(node, rewriter.names), list(image.shape)
        number = 3 if len(node.inputs) > 3 and node.inputs[3] is not None else 2
        places = list(attribute_of(node, "axes", range(len(extents))))
        for axis in reversed(axes):
            extents[axis] = result.shape[axis]
            own = _element(write, node.inputs[number], places.index(axis))
            operands = [image, None, *([None] if number == 3 else []), own]
            image = write.again(operands, image.dtype, extents, axes=[axis])
        write.replace(image)
        return True


def _element(write: Writer, numbers: ir.Value | None, place: int) -> ir.Value:
    """Return one of the scales or sizes of a Resize, as a vector."""
    assert numbers is not None, "a Resize without scales and sizes"
    known = numbers.const_value
    if known is not None:
        return write.constant("along", known.numpy().reshape(-1)[place : place + 1])
    return write("Gather", numbers, write.ints(place), axis=0)


def _axes(node: ir.Node) -> Sequence[int]:
    """Return the axes along which an image is enlarged that is split; none of any other."""
    image, result = node.inputs[0], node.outputs[0]
    mode = attribute_of(node, "mode", "nearest")
    plain = attribute_of(node, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    plain &= attribute_of(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
    if image is None or image.shape is None or result.shape is None or mode == "nearest" or not plain:
        return ()
    if attribute_of(node, "antialias", 0) or image.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return ()
    rank, channels = image.shape.rank(), image.shape[1] if image.shape.rank() > 1 else 0
    listed = attribute_of(node, "axes", range(rank))
    if list(listed) != sorted(axis % rank for axis in listed):
        return ()
    axes = [axis for axis in listed if image.shape[axis] != result.shape[axis]]
    is_open = any(not isinstance(image.shape[axis], int) for axis in axes)
    is_few = isinstance(channels, int) and channels < FEW
    return axes if is_open and (mode == "cubic" or is_few or result.is_graph_output()) else ()
