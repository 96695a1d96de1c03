"""Depthwise convolutions between two Transposes, which are fused with them: channels stay last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graft.core.view import NodeView, ValueView

TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
"""The orders of axes that put the last axis behind the first, and back."""


def transposes_around(
    node: NodeView, readers: Mapping[ir.Value, Sequence[NodeView]], outputs: Collection[ir.Value]
) -> tuple[NodeView, NodeView] | None:
    """Return the Transposes before and after a depthwise convolution; None unless both serve it alone.

    ``readers`` has the nodes of the region that read a value, ``outputs`` the values that leave it.
    """
    source, following = node.input(0), readers.get(node.node.outputs[0], ())
    producer = None if source is None else source.value.producer()
    if source is None or producer is None or not _is_depthwise(node) or len(following) != 1:
        return None
    before, (after,) = NodeView(producer), following
    inner = (source.value, node.node.outputs[0])
    if any(value in outputs or len(readers[value]) != 1 for value in inner) or before.input(0) is None:
        return None
    if before.op_type != "Transpose" or after.op_type != "Transpose":
        return None
    orders = [list(one.attribute("perm") or ()) for one in (before, after)]
    return (before, after) if orders == [TO_FIRST, TO_LAST] else None


def _is_depthwise(node: NodeView) -> bool:
    """Whether a node is a float32 Conv of one constant window per channel; no axis of its images has one element."""
    if node.op_type != "Conv" or node.dtype != "float32":
        return False
    shapes = [value.static_shape for value in (node.input(0), node.input(1), node.outputs[0]) if value is not None]
    weights = node.input(1)
    if None in shapes or not isinstance(weights, ValueView) or not weights.is_constant:
        return False
    image, window, result = (shape or () for shape in shapes)
    same = len(image) == 4 and image[1] == window[0] == node.attribute("group", 1) and window[1] == 1
    dilated = any(extent != 1 for extent in node.attribute("dilations") or ())
    return same and not dilated and min(*image[1:], *result[1:]) > 1
