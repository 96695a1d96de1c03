"""Which images of a region lie with channels last: those that only kernels of XNNPACK write and read."""

from __future__ import annotations

from dataclasses import replace

from graft.plugins.json_graph import Entry, JsonGraph, JsonNode
from graft.plugins.xnnpack.operators import ROWS, Row

LAYOUTS = "channels_last"
"""The attribute of a kernel: for its first two inputs and for its output, whether channels are last."""


def with_layouts(graph: JsonGraph) -> JsonGraph:
    """Return the graph, whose kernels have the attribute `LAYOUTS`."""
    last = _channels_last(graph)
    nodes = []
    for number, node in enumerate(graph.nodes):
        if node.op == "kernel":
            flags = [entry in last for entry in (*node.inputs[:2], Entry(number))]
            node = replace(node, attributes=dict(node.attributes) | {LAYOUTS: flags})
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _channels_last(graph: JsonGraph) -> set[Entry]:
    """Return the images that need not lie as ONNX has them.

    At first these are all that a kernel makes and that are no result. A kernel that reads or writes elements in the
    order of memory leaves all its images in one layout; what has none for images leaves its own as they are.
    """
    last = {Entry(number) for number, node in enumerate(graph.nodes) if node.op == "kernel" and _is_image(node)}
    last -= set(graph.heads)
    is_known = False
    while not is_known:
        is_known = True
        for number, node in enumerate(graph.nodes):
            if node.op == "kernel" and not _row(node).takes_layouts:
                is_in_order = _in_order(graph, node)
                count = 2 if _row(node).kind == "binary" else 1
                around = {*node.inputs[: count if is_in_order else None], Entry(number)}
                if around & last and not (is_in_order and around <= last):
                    last -= around
                    is_known = False
    return last


def _is_image(node: JsonNode) -> bool:
    return node.shape[0] is not None and len(node.shape[0]) == 4


def _row(node: JsonNode) -> Row:
    return ROWS[node.body[0].op]


def _in_order(graph: JsonGraph, node: JsonNode) -> bool:
    """Whether the elements of a kernel's images are computed from those at the same places."""
    if _row(node).kind == "binary":
        shapes = {graph.nodes[entry.node].shape[entry.index] for entry in node.inputs[:2]}
        return len(shapes) == 1
    return _row(node).is_elementwise
