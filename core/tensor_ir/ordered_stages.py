"""Stages whose elements are not computed each by itself: what walks, reads and groups them.

The order of a stage (`graft.core.tensor_ir.ir.Scan`, `Scatter`, `Selection`) is stated by its lowering, given its
meaning by the interpreter, and turned into loops by a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from graft.core.tensor_ir.ir import Axis, Buffer, Expression, Load, Order, Scan, Scatter, Selection, Stage
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute


def is_sequential(stage: Stage) -> bool:
    """Whether the elements of a stage depend on each other: it is neither inlined nor computed in any order."""
    return stage.order is not None


def order_axes(order: Order | None) -> tuple[Axis, ...]:
    """Return the axes that an order binds beside those of its stage."""
    match order:
        case Scatter(axes):
            return axes
        case Selection(candidate=candidate):
            return (candidate,)
        case Scan() | None:
            return ()
        case _:
            assert_never(order)


def order_expressions(order: Order | None) -> tuple[Expression, ...]:
    """Return the expressions of an order."""
    match order:
        case Scan(_, initial):
            return () if initial is None else (initial,)
        case Scatter(_, indices, _, update):
            return (*indices, update)
        case Selection() | None:
            return ()
        case _:
            assert_never(order)


def map_order(order: Order | None, function: Callable[[Expression], Expression]) -> Order | None:
    """Return the order with a function applied to its expressions."""
    match order:
        case Scan(_, initial):
            return order if initial is None else replace(order, initial=function(initial))
        case Scatter(_, indices, _, update):
            return replace(order, indices=tuple(map(function, indices)), update=function(update))
        case Selection() | None:
            return order
        case _:
            assert_never(order)


def stage_expressions(stage: Stage) -> tuple[Expression, ...]:
    """Return the expressions of a stage: value, initial value, epilogue, those of its order."""
    initial = () if stage.reduction is None else (stage.reduction.initial,)
    epilogue = () if stage.epilogue is None else (stage.epilogue,)
    return (stage.value, *initial, *epilogue, *order_expressions(stage.order))


def uses_of(buffer: Buffer, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that read a buffer, once for each distinct load."""
    return [stage for stage in stages for load in loads(*stage_expressions(stage)) if load.buffer is buffer]


def map_stage(stage: Stage, function: Callable[[Expression], Expression]) -> Stage:
    """Return the stage with a function applied to its value, initial value, epilogue and order."""
    reduction = stage.reduction
    if reduction is not None:
        reduction = replace(reduction, initial=function(reduction.initial))
    epilogue = None if stage.epilogue is None else function(stage.epilogue)
    order = map_order(stage.order, function)
    return replace(stage, value=function(stage.value), reduction=reduction, epilogue=epilogue, order=order)


# ---- Loops of stages ------------------------------------------------------------------------------------------------


def stage_loops(stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """Return the stages in groups: those of one scan together, every other stage by itself."""
    groups: list[list[Stage]] = []
    for stage in stages:
        scan, before = stage.order, groups[-1][-1].order if groups else None
        if isinstance(scan, Scan) and isinstance(before, Scan) and scan.carried is before.carried:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return [tuple(group) for group in groups]


def scan_of(stage: Stage) -> Scan:
    """Return the order of a stage that is part of a scan."""
    assert isinstance(stage.order, Scan), stage.buffer.name
    return stage.order


def carried_dimension(stage: Stage) -> int:
    """Return the dimension of the buffer of a scan's stage along which the scan runs."""
    return stage.axes.index(scan_of(stage).carried)


def reads_before(loop: Sequence[Stage], load: Load) -> Stage | None:
    """Return the stage of a scan whose buffer a load reads at the position before the one that is computed, if any."""
    for stage in loop:
        if load.buffer is stage.buffer and load.indices[carried_dimension(stage)] == scan_of(stage).previous:
            return stage
    return None


def with_carried(loop: Sequence[Stage], value: Callable[[Stage, Load], Expression]) -> tuple[Stage, ...]:
    """Return a scan's stages with what they read from the position before replaced by ``value(stage, load)``."""

    def rule(node: Expression) -> Expression:
        source = reads_before(loop, node) if isinstance(node, Load) else None
        return node if source is None or not isinstance(node, Load) else value(source, node)

    change = ExpressionMap(rule)
    return tuple(
        replace(map_stage(replace(stage, order=None), change), order=stage.order)
        if any(reads_before(loop, load) for load in loads(*stage_expressions(stage)))
        else stage
        for stage in loop
    )


def at_first(stage: Stage, load: Load) -> Expression:
    """Return what a load from before the first position of a scan gives: the initial value of ``stage`` there."""
    initial = scan_of(stage).initial
    assert initial is not None, f"'{stage.buffer.name}' is read before its first position and has no initial value"
    return substitute(initial, dict(zip(stage.axes, load.indices, strict=True)))
