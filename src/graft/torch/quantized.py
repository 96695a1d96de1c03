"""Quantised weights: what torchao's tensors decompose into, as one operator that becomes a DequantizeLinear.

Of the weights' arithmetic a compiler would make float32 constants; of a DequantizeLinear Graft keeps the narrow ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from graft.torch.aten.quantized import CODES, NARROW, dequantized
from graft.torch.conversion import fake

aten = torch.ops.aten
RESHAPED = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def name_dequantisation(module: GraphModule) -> None:
    """Put `dequantized` for ``(float32(x) - float32(zero)) * scale``, also where the scale stands behind a product."""
    for node in reversed(module.graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
        if not all(isinstance(one, Node) for one in node.args) or fake(node).dtype != torch.float32:
            continue
        wide, scale = node.args
        if (parts := _shifted(wide)) is not None and _fits(parts, scale):
            node.target, node.args = dequantized, (parts[0], scale, parts[1])
            _erase_unread(module, wide)
        elif (product := _product(wide)) is not None:
            _scale_weights(module, node, product)


def _shifted(node: Node) -> tuple[Node, Node | None] | None:
    """Return the narrow tensor that a node widens and the zero point that it takes off."""
    if node.target is not aten.sub.Tensor:
        narrow = _widened(node)
        return None if narrow is None else (narrow, None)
    narrow, zero = (_widened(one) for one in node.args)
    if narrow is None or zero is None or node.kwargs or not fake(narrow).dtype == fake(zero).dtype in CODES:
        return None
    return narrow, zero


def _widened(node: Any) -> Node | None:
    if not isinstance(node, Node) or node.target is not aten._to_copy.default or fake(node).dtype != torch.float32:
        return None
    (source,) = node.args
    return source if fake(source).dtype in NARROW else None


def _fits(parts: tuple[Node, Node | None], scale: Node) -> bool:
    extents = fake(parts[0]).shape
    shapes = [fake(one).shape for one in (scale, parts[1]) if one is not None]
    return fake(scale).dtype == torch.float32 and all(
        len(shape) == len(extents) and all(one in (1, extent) for one, extent in zip(shape, extents, strict=True))
        for shape in shapes
    )


def _product(node: Node) -> Node | None:
    """Return the product with widened weights that a node is, or is a view of whose last axis is the product's."""
    width = fake(node).shape[-1:]
    while node.target in RESHAPED and len(node.users) == 1:
        node = node.args[0]
    is_product = node.target is aten.mm.default and len(node.users) == 1 and _widened(node.args[1]) is not None
    return node if is_product and fake(node).shape[-1:] == width else None


def _scale_weights(module: GraphModule, node: Node, product: Node) -> None:
    """Scale the weights instead of their product, where there is a scale for each column."""
    found, scale = node.args
    columns = fake(product).shape[1]
    assert isinstance(found, Node) and isinstance(scale, Node)
    if fake(scale).shape[-1:] != (columns,) or fake(scale).numel() != columns or fake(scale).dtype != torch.float32:
        return
    while scale.target in RESHAPED:
        scale = scale.args[0]
    if scale.op not in ("placeholder", "get_attr") or fake(scale).numel() not in fake(scale).shape:
        return
    left, wide = product.args
    narrow = _widened(wide)
    assert isinstance(wide, Node) and narrow is not None
    with module.graph.inserting_before(product):
        row = module.graph.call_function(aten.reshape.default, (scale, [1, columns]))
        row.meta = {**product.meta, "val": fake(scale).reshape(1, columns)}
        weights = module.graph.call_function(dequantized, (narrow, row))
        weights.meta = {**product.meta, "val": fake(wide)}
    product.args = (left, weights)
    node.replace_all_uses_with(found)
    module.graph.erase_node(node)
    _erase_unread(module, wide)


def _erase_unread(module: GraphModule, node: Node) -> None:
    if node.op == "call_function" and not node.users:
        sources = node.all_input_nodes
        module.graph.erase_node(node)
        for one in sources:
            _erase_unread(module, one)
