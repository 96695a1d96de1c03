"""Elements that are made from positions, shapes and scalars, and triangles."""

from __future__ import annotations

import math

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.manipulation import INJECTIVE, Indices
from graft.core.tensor_ir.ir import Expression, Stage


def _lower_trilu(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()
    upper = lowering.node.attribute("upper", 1)
    diagonal = b.cast(bound(lowering, 1), "int64") if lowering.optional(1) is not None else b.index(0)

    def value(axes: Indices) -> Expression:
        limit = b.add(axes[-2], diagonal)
        keep = b.greater_equal(axes[-1], limit) if upper else b.less_equal(axes[-1], limit)
        return b.select(keep, b.load(source, *axes), b.constant(0, source.dtype))

    return (b.compute(target, value),)


def _lower_eye(lowering: Lowering) -> tuple[Stage, ...]:
    offset = lowering.node.attribute("k", 0)
    target = lowering.output()

    def value(axes: Indices) -> Expression:
        on_diagonal = b.equal(b.subtract(axes[1], axes[0]), offset)
        return b.select(on_diagonal, b.constant(1, target.dtype), 0)

    return (b.compute(target, value),)


define("Trilu", INJECTIVE, _lower_trilu, moved, varies=anything, shapes=LIKE_FIRST, vjp=derivative.triangle)
define("EyeLike", INJECTIVE, _lower_eye, moved, varies=anything, shapes=LIKE_FIRST)


def _lower_constant_of_shape(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()
    value = lowering.node.attribute("value")
    fill = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    return (b.compute(target, lambda axes: b.constant(fill, target.dtype)),)


def _lower_shape(lowering: Lowering) -> tuple[Stage, ...]:
    shape = b.dims(lowering.input(0))
    start, end = lowering.node.attribute("start", 0), lowering.node.attribute("end")
    extents = shape[start:end]

    def value(axes: Indices) -> Expression:
        result: Expression = b.index(extents[-1] if extents else 0)
        for number in range(len(extents) - 2, -1, -1):
            result = b.select(b.equal(axes[0], number), b.index(extents[number]), result)
        return result

    return (b.compute(lowering.output(), value),)


def _lower_size(lowering: Lowering) -> tuple[Stage, ...]:
    return (b.compute(lowering.output(), lambda axes: b.index(math.prod(b.dims(lowering.input(0))))),)


def _lower_range(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()

    def value(axes: Indices) -> Expression:
        kind = b.wide(target.dtype)
        start, step = (b.cast(bound(lowering, number), kind) for number in (0, 2))
        return b.add(start, b.multiply(b.cast(axes[0], kind), step))

    return (b.compute(target, value),)


SHAPE_ONLY = INJECTIVE | {Trait.SHAPE_ONLY}
define(
    "ConstantOfShape", INJECTIVE, _lower_constant_of_shape, moved, varies=anything,
    shapes=shapes.constant_of_shape, contents=contents.constant_of_shape, stated=Stated(claims.given_by(0), (0,)),
)  # fmt: skip
define(
    "Range", INJECTIVE, _lower_range, moved, varies=anything, shapes=shapes.range_, contents=contents.range_,
    stated=Stated(claims.range_, (0, 1, 2)), attributes=(check.not_zero(2),),
)  # fmt: skip
define("Shape", SHAPE_ONLY, _lower_shape, moved, shapes=shapes.shape_of, contents=contents.shape_of)
define("Size", SHAPE_ONLY, _lower_size, moved, shapes=shapes.size_of, contents=contents.size_of)
