"""Horizontal fusion: kernels that read one input become one kernel.

1. Products of one left factor by constants, side by side (`graft.core.schedule.products.joined_products`).
2. Convolutions of one image, stacked (`graft.plugins.codegen.grouping.stacked_convolutions`).

A shared kernel stands where the first of its groups stood, so the others may read nothing that is computed after that,
but what a product among them computes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import prod

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import is_recomputed
from graft.core.schedule.products.factors import USUAL
from graft.core.schedule.products.joined_products import beside_pays, fits, stacking_pays
from graft.plugins.codegen.grouping.fusion import Group
from graft.plugins.codegen.grouping.stacked_convolutions import family_of_convolution, stacked

PRODUCTS = ("MatMul", "Gemm")
DTYPES = ("float32", "float64")


def join_horizontally(groups: Sequence[Group], target: Target, apart: Collection[ir.Value]) -> list[Group]:
    """Return the groups of a region, in execution order, with those that share an input together where that pays.

    The values in ``apart`` are no parts of others: they leave the region, or are not stored as the model has them.
    What computes again, to save memory, stays where it is.
    """
    place = {node.node: number for number, group in enumerate(groups) for node in group.nodes}
    families: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        key = _family_of_product(group, target) or family_of_convolution(group, apart)
        if key is not None and not is_recomputed(group.anchor.node):
            families.setdefault(key, []).append(number)
    result: dict[int, Group] = dict(enumerate(groups))
    for numbers in families.values():
        members = _paying([(number, groups[number]) for number in _movable(numbers, groups, place)], target)
        whole = _together([group for _, group in members])
        if whole is not None:
            result[members[0][0]] = whole
            for number, _ in members[1:]:
                del result[number]
    return list(result.values())


def _movable(numbers: Sequence[int], groups: Sequence[Group], place: Mapping[ir.Node, int]) -> list[int]:
    """Return those groups that can run where the first of them stands: what they read is there, or one of them."""
    members = [numbers[0]]
    for number in numbers[1:]:
        sources = {place.get(producer, -1) for producer in _producers_of(groups[number])}
        if all(source < numbers[0] or source in members for source in sources):
            members.append(number)
    return members


def _paying(members: Sequence[tuple[int, Group]], target: Target) -> Sequence[tuple[int, Group]]:
    """Return those of the numbered groups that are no slower together; none if there are no two such groups."""
    if members[0][1].trait is Trait.CONVOLUTION:
        shapes = [group.anchor.outputs[0].static_shape or () for _, group in members]
        heights, pixels = [shape[1] for shape in shapes], prod(shapes[0][2:])
        return members if stacking_pays(heights, pixels, members[0][1].anchor.dtype, target) else ()
    made = {node.node for _, group in members for node in group.nodes}
    free = [(number, group) for number, group in members if not _producers_of(group) & made]
    for chosen in (members, free):
        if _beside_pays([group for _, group in chosen], len(chosen) > len(free), target):
            return chosen
    return ()


def _together(members: Sequence[Group]) -> Group | None:
    """Return groups of one family as one; None for a single one, and for convolutions that cannot be stacked."""
    if len(members) < 2:
        return None
    if members[0].trait is Trait.CONVOLUTION:
        return stacked(members)
    return replace(members[0], beside=list(members[1:]))


def _beside_pays(groups: Sequence[Group], turns: bool, target: Target) -> bool:
    shapes = [group.anchor.outputs[0].shape or () for group in groups]
    rows = [extent for extent in shapes[0][:-1] if isinstance(extent, int)]
    height = prod(rows) if len(rows) == len(shapes[0]) - 1 else USUAL
    widths = [shape[-1] for shape in shapes if isinstance(shape[-1], int)]
    return beside_pays(height, widths, groups[0].anchor.dtype, target, turns=turns)


def _family_of_product(group: Group, target: Target) -> Hashable:
    """Return what products have in common that may stand side by side; None for a group that is no such product."""
    node = group.anchor
    left, right = node.input(0), node.input(1)
    shape = node.outputs[0].shape
    width = shape[-1] if shape else None
    if group.trait is not Trait.CONTRACTION or group.before or node.op_type not in PRODUCTS or node.domain:
        return None
    if left is None or right is None or left.is_constant or not right.is_constant or right.rank != 2:
        return None
    if not shape or 0 in shape or None in shape or node.dtype not in DTYPES:
        return None
    if not isinstance(width, int) or not fits(width, node.dtype, target):
        return None
    turns = node.attribute("transA", 0), node.attribute("transB", 0)
    return node.op_type, left.value, node.dtype, turns


def _producers_of(group: Group) -> set[ir.Node]:
    """Return the nodes outside of a group whose values it reads."""
    return {producer for node in group.nodes for producer in _producers(node)} - {node.node for node in group.nodes}


def _producers(node: NodeView) -> list[ir.Node]:
    values = (value.value.producer() for value in node.inputs if value is not None)
    return [producer for producer in values if producer is not None]
