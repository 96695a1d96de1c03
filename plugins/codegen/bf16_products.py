"""Which nodes of a region have their products in bfloat16, for plans: what the schedules decide, without scheduling."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from graft.core.machine.target import Target
from graft.core.model.view import NodeView
from graft.core.operators.table import OperatorTable, Trait
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.depthwise_nchw import MIN_CHANNELS
from graft.core.schedule.strategies.first_convolution_bf16 import gains
from graft.plugins.codegen.fusion import fuse
from graft.plugins.codegen.image_layout import is_first, values_last


def rounded_nodes(
    nodes: Sequence[NodeView], outputs: Collection[ir.Value], table: OperatorTable, target: Target
) -> Iterator[str]:
    """Yield the names of the nodes whose float32 factors are rounded to bfloat16."""
    last = set() if "channels-last" in target.without else values_last(nodes, outputs, table, target.precision)
    for group in fuse(nodes, outputs, table, target.without):
        node = group.anchor
        if group.trait is Trait.ATTENTION and node.dtype == "float32" and "attention" not in target.without:
            yield from (
                one.name for one in group.nodes if table.has(one, Trait.CONTRACTION) or one.op_type == "Attention"
            )
        if group.trait not in (Trait.CONTRACTION, Trait.CONVOLUTION) or node.dtype != "float32":
            continue
        is_long = _is_convolution(node, last, target) if node.op_type == "Conv" else _is_product(node)
        if is_long:
            yield node.name


def _is_convolution(node: NodeView, last: Collection[ir.Value], target: Target) -> bool:
    shape, weights = node.outputs[0].static_shape or (), node.input(1)
    window = None if weights is None else weights.static_shape
    groups = int(node.attribute("group", 1))
    if window is None or len(shape) < 2:
        return False
    if is_first(node) and node.node.outputs[0] in last:
        return gains(window[1], (window[2], window[3]), window[0], lanes_of("float32", target))
    is_wide = node.node.outputs[0] in last or math.prod(shape[2:]) > 1
    return is_wide and (groups == 1 or shape[1] // groups >= MIN_CHANNELS)


def _is_product(node: NodeView) -> bool:
    """Whether a product has several rows, or a constant that is packed before."""
    shape, right = node.outputs[0].static_shape or (), node.input(1)
    return (len(shape) > 1 and shape[-2] > 1) or (right is not None and right.is_constant)
