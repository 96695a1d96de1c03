"""Depthwise convolutions between two Transposes, which are fused with them: channels stay last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graft.core.model.view import NodeView
from graft.plugins.codegen.image_layout import is_depthwise

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
    if source is None or producer is None or not is_depthwise(node) or len(following) != 1:
        return None
    before, (after,) = NodeView(producer), following
    inner = (source.value, node.node.outputs[0])
    if any(value in outputs or len(readers[value]) != 1 for value in inner) or before.input(0) is None:
        return None
    if before.op_type != "Transpose" or after.op_type != "Transpose":
        return None
    orders = [list(one.attribute("perm") or ()) for one in (before, after)]
    return (before, after) if orders == [TO_FIRST, TO_LAST] else None
