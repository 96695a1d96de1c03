"""Expand and Tile: elements that are repeated."""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.shape_rules import is_filled_with
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.manipulation import MOVEMENT, Indices
from graft.core.tensor_ir.ir import Expression, Stage


def _lower_expand(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    shape = b.extents(lowering.output())
    return (b.compute(lowering.output(), lambda axes: b.broadcast(source, axes, shape)),)


def _lower_tile(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()

    def value(axes: Indices) -> Expression:
        pairs = zip(axes, b.extents(source), b.extents(target), strict=True)
        return b.load(source, *(axis if inner == outer else b.modulo(axis, inner) for axis, inner, outer in pairs))

    return (b.compute(target, value),)


define(
    "Expand", MOVEMENT, _lower_expand, moved, varies=anything, demands=demand.expanding_to_result(0),
    shapes=shapes.expand, contents=contents.expand, bounds=shapes.expand_bounds,
    identity=lambda facts: facts.keeps_shape, stated=Stated(claims.expand), vjp=derivative.expanded,
)  # fmt: skip
define(
    "Tile", MOVEMENT, _lower_tile, moved, varies=anything,
    demands=demand.counted(1, 0, lambda node: demand.rank_of(node.input(0))),
    shapes=shapes.tile, contents=contents.tile,
    identity=lambda facts: facts.keeps_shape and is_filled_with(facts, 1, 1), stated=Stated(claims.tile),
    vjp=derivative.tiled,
)  # fmt: skip
