"""Horizontal fusion: kernels that read one input become one kernel.

1. Products of one left factor by constants, side by side (`graft.core.schedule.horizontal`).
2. Convolutions of one image, stacked (`graft.plugins.llvm.stacking`).

A shared kernel stands where the first of its groups stood, so the others may read nothing that is computed after that.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod

import onnx_ir as ir

from graft.core.operators.table import Trait
from graft.core.schedule.horizontal import beside_pays, fits, stacking_pays
from graft.core.target import Target
from graft.core.view import NodeView
from graft.plugins.llvm.fusion import Group
from graft.plugins.llvm.stacking import family_of_convolution, stacked

PRODUCTS = ("MatMul", "Gemm")
DTYPES = ("float32", "float64")


def join_horizontally(groups: Sequence[Group], target: Target, apart: Collection[ir.Value]) -> list[Group]:
    """Return the groups of a region, in execution order, with those that share an input together where that pays.

    The values in ``apart`` are no parts of others: they leave the region, or are not stored as the model has them.
    """
    place = {node.node: number for number, group in enumerate(groups) for node in group.nodes}
    families: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        key = _family_of_product(group, target) or family_of_convolution(group, apart)
        if key is not None:
            families.setdefault(key, []).append(number)
    result: dict[int, Group] = dict(enumerate(groups))
    for first, *others in families.values():
        beside = [number for number in others if _can_move(groups[number], first, place)]
        whole = _together(groups[first], [groups[number] for number in beside], target) if beside else None
        if whole is not None:
            result[first] = whole
            for number in beside:
                del result[number]
    return list(result.values())


def _together(first: Group, beside: list[Group], target: Target) -> Group | None:
    """Return groups of one family as one; None if that does not pay."""
    node = first.anchor
    shapes = [group.anchor.outputs[0].static_shape or () for group in (first, *beside)]
    if first.trait is Trait.CONVOLUTION:
        pays = stacking_pays([shape[1] for shape in shapes], prod(shapes[0][2:]), node.dtype, target)
        return stacked([first, *beside]) if pays else None
    height = shapes[0][-2] if len(shapes[0]) > 1 else 1
    pays = beside_pays(height, [shape[-1] for shape in shapes], node.dtype, target)
    return replace(first, beside=beside) if pays else None


def _family_of_product(group: Group, target: Target) -> Hashable:
    """Return what products have in common that may stand side by side; None for a group that is no such product."""
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
