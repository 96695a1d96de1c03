"""Reductions into registers: one accumulator per kept position, or several along a reduced axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import in_vectors, nested, taken
from graft.core.schedule.primitives.bounds import Unswitch
from graft.core.schedule.primitives.loop_kinds import Jam, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Peel, Split, divides
from graft.core.schedule.primitives.plain_nest import reduced_element
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.skipping import Skip
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute

UNROLL = 16
"""Iterations of reduction axes beside the vector axis that are unrolled (windows of pooling)."""


def finish(stage: FlatStage, total: ir.Expression) -> ir.Statement:
    """Store a reduced value through the epilogue."""
    if stage.epilogue is not None:
        assert stage.epilogue_variable is not None, f"the stage of '{stage.target.name}' has an epilogue of no variable"
        total = substitute(stage.epilogue, {stage.epilogue_variable: total})
    return ir.Store(stage.target, (stage.place,), total)


def element(stage: FlatStage) -> ir.Statement:
    """Return what computes one element; of a reduction as many inner loops are unrolled as stay small.

    Of a custom datatype none are: the roundings of one term are long code.
    """
    if stage.operator is None:
        return ir.Store(stage.target, (stage.place,), stage.value)
    body, axes = _reduced(stage, stage.reduced), stage.reduced
    first = len(axes)
    while first and axes[first - 1].is_known and prod(axis.extent for axis in axes[first - 1 :]) <= UNROLL:
        first -= 1
    is_custom = stage.value.type.is_custom
    return body if is_custom else taken(body, [Unroll(axis.variable.name) for axis in axes[first:]], axes)


def reduce_inner(
    stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine, beside: Sequence[LoopAxis] = ()
) -> ir.Statement:
    """Reduce along the vector axis into several accumulators, then across their lanes.

    All elements along the axes ``beside`` are reduced side by side: what they have in common is loaded once.
    """
    axes = (*(other for other in stage.reduced if other is not axis), axis)
    outer = [other.variable.name for other in axes[:-1]]
    enough = max(1, machine.costs.latency // prod(other.extent for other in beside))
    steps = (*_across(axis, outer, lanes, machine, enough), *(Jam(one.variable.name) for one in reversed(beside)))
    return taken(nested(beside, _reduced(stage, axes)), steps, (*beside, *axes))


def _reduced(stage: FlatStage, axes: Sequence[LoopAxis]) -> ir.Statement:
    """Return the plain loops that reduce one element over some axes, and store what is stored beside."""
    operator, stored = stage.operator, stage.stored
    assert operator is not None and stage.initial is not None, "not a reduction"

    def beside(store: ir.Statement) -> ir.Statement:
        if stored is None:
            return store
        own = ir.Store(stored.target, (stored.place,), stored.variable)
        return ir.Let(stored.variable, stored.value, ir.Block((own, store)))

    return reduced_element(
        stage.initial,
        [(axis.variable, axis.iterations) for axis in axes],
        lambda total: ir.Binary(operator, total, stage.value),
        lambda total: finish(stage, total),
        beside,
    )


def _across(axis: LoopAxis, outer: Sequence[str], lanes: int, machine: Machine, enough: int) -> tuple[Step, ...]:
    """Return the steps that reduce along an axis, the innermost, in vectors that are joined behind all loops.

    So many vectors have sums of their own as are ``enough`` to hide the latency of one addition; what is left goes on
    with these.
    """
    name = axis.variable.name
    block, vectors = f"{name}.block", max(1, min(enough, axis.extent // lanes))
    size = lanes << vectors.bit_length() - 1
    whole, rest = divmod(axis.extent, size)
    if axis.is_open and not machine.masks:
        left = f"{name}.rest"
        return (
            Split(name, size, block, name, (left,)),
            *_joined(name, block, "parts"),
            *in_vectors(name, size, lanes, machine),
            Split(left, lanes, f"{left}.vector", left, (f"{left}.tail",)),
            *_joined(left, f"{left}.vector", "left"),
            Vectorize(left),
        )
    steps = [Split(name, size, block, name), *_joined(name, [*outer, block][0], "parts")]
    if axis.is_open and not divides(size, axis.iterations):
        vector, lane = f"{name}.cut.vector", f"{name}.cut.lane"
        steps += [Unswitch(block, "cut"), Split(f"{name}.cut", lanes, vector, lane), Unswitch(vector, "last")]
        steps += [Skip(f"{lane}.last"), Vectorize(lane), Vectorize(f"{lane}.last"), Unroll(vector)]
    elif rest and not axis.is_open:
        steps += [Peel(block, whole, "rest")] if whole else []
        left = f"{name}.rest" if whole else name
        steps += [Peel(left, rest, "none"), *in_vectors(left, rest, lanes, machine)]
    if whole or axis.is_open:
        steps += in_vectors(name, size, lanes, machine)
    return (*steps, Unroll(block)) if 0 < whole <= 2 and not axis.is_open else tuple(steps)


def _joined(lane: str, around: str, parts: str) -> tuple[Step, ...]:
    """Return the steps that give each iteration of a loop a sum of its own, and join them across lanes behind it."""
    split = Rfactor("total", lane, "register", parts, (around,))
    return split, Vectorize(f"{parts}.in"), Horizontal(f"{parts}.turn")


def joined(operator: ir.BinaryOperator, left: ir.Expression, right: ir.Expression) -> ir.Expression:
    """Return two partial results of one reduction as one.

    Every schedule that splits a reduction joins its parts here, so that none splits one whose terms are ordered.
    """
    assert not ir.is_ordered(operator, left.type), f"partial results of {left.type} are joined: its terms are ordered"
    return ir.Binary(operator, left, right)
