"""Horizontal fusion: products of one factor that become one kernel, side by side.

A shared kernel stands where the first of its groups stood, so the others may read nothing that is computed after that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import onnx_ir as ir

from graft.core.operators.table import Trait
from graft.core.schedule.horizontal import fits, pays
from graft.core.target import Target
from graft.core.view import NodeView
from graft.plugins.llvm.fusion import Group

PRODUCTS = ("MatMul", "Gemm")
DTYPES = ("float32", "float64")


def side_by_side(groups: Sequence[Group], target: Target) -> list[Group]:
    """Return the groups of a region, in execution order, with products of one factor together where that pays."""
    place = {node.node: number for number, group in enumerate(groups) for node in group.nodes}
    families: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        key = _family(group, target)
        if key is not None:
            families.setdefault(key, []).append(number)
    joined: set[int] = set()
    for first, *others in families.values():
        beside = [number for number in others if _can_move(groups[number], first, place)]
        shapes = [groups[number].anchor.outputs[0].static_shape or () for number in (first, *beside)]
        height = shapes[0][-2] if len(shapes[0]) > 1 else 1
        if beside and pays(height, [shape[-1] for shape in shapes], groups[first].anchor.dtype, target):
            groups[first].beside = [groups[number] for number in beside]
            joined.update(beside)
    return [group for number, group in enumerate(groups) if number not in joined]


def _family(group: Group, target: Target) -> Hashable:
    """Return what groups have in common that may stand side by side; None for a group that may not."""
    node = group.anchor
    left, right = node.input(0), node.input(1)
    shape = node.outputs[0].static_shape
    if group.trait is not Trait.CONTRACTION or group.before or node.op_type not in PRODUCTS or node.domain:
        return None
    if left is None or right is None or left.is_constant or not right.is_constant or right.rank != 2:
        return None
    if not shape or 0 in shape or node.dtype not in DTYPES or not fits(shape[-1], node.dtype, target):
        return None
    turns = node.attribute("transA", 0), node.attribute("transB", 0)
    return node.op_type, left.value, node.dtype, turns


def _can_move(group: Group, to: int, place: Mapping[ir.Node, int]) -> bool:
    """Whether all that a group reads is there before group number ``to`` runs."""
    own = {node.node for node in group.nodes}
    return all(
        place.get(producer, -1) < to for node in group.nodes for producer in _producers(node) if producer not in own
    )


def _producers(node: NodeView) -> list[ir.Node]:
    values = (value.value.producer() for value in node.inputs if value is not None)
    return [producer for producer in values if producer is not None]
