"""Operators that move elements without changing them: the position in the output says the position in one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.facts import Facts
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import anything, fixed
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Expression, Stage

INJECTIVE = frozenset({Trait.INJECTIVE})
MOVEMENT = INJECTIVE | {Trait.DATA_MOVEMENT}
Indices = Sequence[Expression]


def constants_required(*numbers: int) -> Callable[[NodeView], Reject | None]:
    """Return the check that the inputs of these numbers, where present, are known at compile time."""

    def accepts(node: NodeView) -> Reject | None:
        for number in numbers:
            value = node.input(number)
            if value is not None and not value.is_constant:
                return Reject("constant-required", f"input '{value.name}' of {node.op_type} is computed at run time")
        return None

    return accepts


def integers(array: np.ndarray | None) -> list[int] | None:
    """Return the elements of a constant input as ints, None where it is absent."""
    return None if array is None else [int(value) for value in array.reshape(-1)]


def _lower_transpose(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    rank = len(source.shape)
    order = lowering.node.attribute("perm") or list(reversed(range(rank)))
    place = [order.index(dimension) for dimension in range(rank)]
    return (b.compute(lowering.output(), lambda axes: b.load(source, *(axes[p] for p in place))),)


def _channel(block: int, depth: int, position: Sequence[Expression], mode: str) -> Expression:
    """The channel of the deep image where channel, row and column of a block stand; ``depth`` is the shallow one's."""
    c, row, column = position
    within = b.add(b.multiply(row, block), column)
    return b.add(b.multiply(within, depth), c) if mode == "DCR" else b.add(b.multiply(c, block * block), within)


def _lower_depth_to_space(lowering: Lowering) -> tuple[Stage, ...]:
    source, target, block = lowering.input(0), lowering.output(), lowering.node.attribute("blocksize")
    depth, mode = b.numbers(target, 1, 2)[0], lowering.node.attribute("mode", "DCR")

    def value(i: Indices) -> Expression:
        within = (i[1], *(b.modulo(place, block) for place in i[2:]))
        channel = _channel(block, depth, within, mode)
        return b.load(source, i[0], channel, *(b.divide(place, block) for place in i[2:]))

    return (b.compute(target, value),)


def _lower_space_to_depth(lowering: Lowering) -> tuple[Stage, ...]:
    source, block = lowering.input(0), lowering.node.attribute("blocksize")
    depth, mode = b.numbers(source, 1, 2)[0], lowering.node.attribute("mode", "DCR")

    def value(i: Indices) -> Expression:
        if mode == "DCR":
            c, within = b.modulo(i[1], depth), b.divide(i[1], depth)
        else:
            c, within = b.divide(i[1], block * block), b.modulo(i[1], block * block)
        places = (b.divide(within, block), b.modulo(within, block))
        spread = (b.add(b.multiply(place, block), offset) for place, offset in zip(i[2:], places, strict=True))
        return b.load(source, i[0], c, *spread)

    return (b.compute(lowering.output(), value),)


def _permutation(node: NodeView) -> str | None:
    """``perm`` holds each axis once."""
    rank, given = check.rank_of(node, 0), node.attribute("perm")
    if rank is None or given is None or sorted(given) == list(range(rank)):
        return None
    return f"perm {list(given)} is no order of the {rank} axes of its input"


_IMAGE_ORDER = check.one_of("mode", "DCR", "CRD")


def _keeps_order(facts: Facts) -> bool:
    """Whether a Transpose moves only axes of length 1."""
    shape = facts.shape(0)
    if shape is None or not facts.keeps_shape:
        return False
    moved = [axis for axis in facts.attribute("perm") or reversed(range(len(shape))) if shape[axis] != 1]
    return moved == sorted(moved)


define(
    "Transpose", MOVEMENT, _lower_transpose, moved, varies=anything,
    shapes=shapes.transpose, contents=contents.transpose, identity=_keeps_order, attributes=(_permutation,),
    vjp=derivative.transposed,
)  # fmt: skip
define(
    "DepthToSpace", MOVEMENT, _lower_depth_to_space, moved, varies=fixed(1), shapes=shapes.depth_to_space,
    attributes=(check.divides("blocksize", 1, lambda block: block * block), _IMAGE_ORDER),
    vjp=derivative.blocks_back,
)  # fmt: skip
define(
    "SpaceToDepth", MOVEMENT, _lower_space_to_depth, moved, varies=fixed(1), shapes=shapes.space_to_depth,
    attributes=(check.divides("blocksize", 2), check.divides("blocksize", 3), _IMAGE_ORDER),
    vjp=derivative.by("DepthToSpace", "blocksize", "mode"),
)  # fmt: skip
