"""Which tensors inside a region are stored with channels last.

Depthwise convolutions are several times faster so, pointwise ones as fast and with full vectors at any size of image;
others are better off with channels first. So a part of a network is stored with channels last as a whole or not at
all: if it has depthwise convolutions, and nothing in it asks for channels first. In bfloat16 every convolution without
groups is better off with channels last, since pairs of channels are what its dot products multiply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from graft.core.machine.target import Precision
from graft.core.model.view import NodeView, ValueView
from graft.core.operators.table import OperatorTable, Trait

FIRST_CHANNELS = 4
"""A convolution of at most so many input channels reads them first and stores its own last."""


def values_last(
    nodes: Sequence[NodeView],
    outputs: Collection[ir.Value],
    table: OperatorTable,
    precision: Precision = "float32",
) -> set[ir.Value]:
    """Return the values to store with channels last; ``outputs`` leave the region and stay as they are."""
    linked = [_linked(node, table, precision) for node in nodes]
    found = {value for values in linked for value in values if value not in outputs}
    made = {value for node in nodes for value in node.node.outputs}
    for node, values in zip(nodes, linked, strict=True):
        inputs = {value for value in node.node.inputs if value is not None}
        if not values and not _reads_any(node, precision):
            found -= inputs
    found &= made
    while bad := [values for values in linked if values and not found.issuperset(values) and found & set(values)]:
        found -= {value for values in bad for value in values}
    gaining = [node for node in nodes if is_depthwise(node) or (precision == "bf16" and _is_plain(node))]
    pools = [_images([node.input(0), *node.outputs]) for node in nodes if precision == "bf16" and _is_pool(node)]
    return _connected(found, gaining, [*linked, *pools])


def _connected(
    found: set[ir.Value], gaining: Sequence[NodeView], linked: Sequence[Collection[ir.Value]]
) -> set[ir.Value]:
    """The values of those connected parts that have nodes which gain by it."""
    reached = {node.node.outputs[0] for node in gaining} & found
    while True:
        more = {value for values in linked if reached & set(values) for value in values} & found - reached
        if not more:
            return reached
        reached |= more


def _linked(node: NodeView, table: OperatorTable, precision: Precision) -> list[ir.Value]:
    """The values of a node that must be stored alike; none if it asks for channels first or does not care."""
    if is_depthwise(node) or _is_pointwise(node) or (precision == "bf16" and _is_plain(node)):
        return _images([node.input(0), *node.outputs])
    if is_first(node):
        return _images(node.outputs)
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and not value.is_constant]
    constants = [value for value in node.inputs if value is not None and value.is_constant]
    single = all(value.static_shape is not None and max((1, *value.static_shape)) == 1 for value in constants)
    images = _images(values)
    return images if table.has(node, Trait.ELEMENTWISE) and single and len(images) == len(values) else []


def _images(values: Iterable[ValueView | None]) -> list[ir.Value]:
    return [
        value.value
        for value in values
        if value is not None and value.dtype == "float32" and len(value.static_shape or ()) == 4
    ]


def _reads_any(node: NodeView, precision: Precision) -> bool:
    """Whether a node reads an image in any order of axes equally well: it reduces rows and columns."""
    if node.op_type == "GlobalAveragePool" or (precision == "bf16" and _is_pool(node)):
        return True
    axes = node.input(1)
    constant = None if axes is None else axes.constant
    return node.op_type == "ReduceMean" and constant is not None and {int(axis) % 4 for axis in constant} == {2, 3}


def _is_pool(node: NodeView) -> bool:
    return node.op_type in ("MaxPool", "AveragePool") and not node.domain and len(node.node.outputs) == 1


def is_depthwise(node: NodeView) -> bool:
    """Whether a node is a float32 Conv of one constant window per channel; no axis of its images has one element."""
    image, window, result = _shapes(node)
    same = len(image) == 4 and image[1] == window[0] == node.attribute("group", 1) and window[1] == 1
    dilated = any(extent != 1 for extent in node.attribute("dilations") or ())
    return same and not dilated and min(*image[1:], *result[1:]) > 1


def _is_pointwise(node: NodeView) -> bool:
    image, window, result = _shapes(node)
    return window[2:] == (1, 1) and node.attribute("group", 1) == 1 and image[2:] == result[2:]


def _is_plain(node: NodeView) -> bool:
    """Whether a node is a Conv without groups, of more channels than few."""
    image, _, result = _shapes(node)
    return len(image) == 4 and image[1] > FIRST_CHANNELS and node.attribute("group", 1) == 1 and min(result) > 0


def is_first(node: NodeView) -> bool:
    """Whether a node is a Conv without groups of few channels."""
    image, _, result = _shapes(node)
    return len(image) == 4 and image[1] <= FIRST_CHANNELS and node.attribute("group", 1) == 1 and min(result) > 0


def _shapes(node: NodeView) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shapes of image, constant weights and result of a float32 Conv; () for all if it is none."""
    if node.op_type != "Conv" or node.domain or node.dtype != "float32":
        return (), (), ()
    shapes = [value.static_shape for value in (node.input(0), node.input(1), node.outputs[0]) if value is not None]
    weights = node.input(1)
    if len(shapes) != 3 or None in shapes or weights is None or not weights.is_constant:
        return (), (), ()
    image, window, result = (shape or () for shape in shapes)
    return image, window, result
