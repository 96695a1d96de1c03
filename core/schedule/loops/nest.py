"""Loop nests for one flat stage: which axis becomes vectors, what the accumulators are, what runs in parallel.

Choices come from one cost model (`choose_axis`): what an access costs when an axis becomes vectors depends on its
stride along that axis only.
"""

from __future__ import annotations

from math import prod

from graft.core.schedule.loops.accumulate import reduce_inner, reduce_kept, reduce_scalar
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, accesses, collapse_own, stride
from graft.core.schedule.loops.loop_frames import Places, Vectors, along, outer_loops, store_at
from graft.core.schedule.loops.narrowing import ROUNDING
from graft.core.schedule.loops.segments import segments
from graft.core.schedule.strategies.column_reduction import reads_row_by_row, reduce_columns
from graft.core.schedule.strategies.tiled_transpose import find_transposition, transposing_nest
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Cast,
    Expression,
    Intrinsic,
    Load,
    Statement,
    Store,
    Unary,
    is_ordered,
)
from graft.core.tensor_ir.simplify import Simplifier
from graft.core.tensor_ir.visit import children

INTRINSIC_WORK = 15
"""Operations that an intrinsic counts for."""
CUSTOM_WORK = 15
"""Operations of one rounding to a custom datatype."""


def nest(stage: FlatStage, simplifier: Simplifier, vectors: Vectors, parallel: bool) -> Statement:
    """Return the loops that compute a stage; ``parallel`` allows threads."""
    stage = collapse_own(stage, simplifier)
    parts = segments(stage, simplifier)
    if len(parts) > 1:
        return Block(tuple(nest(part, simplifier, vectors, parallel) for part in parts))
    transposition = find_transposition(stage, simplifier, vectors)
    if transposition is not None:
        threads = parallel and work(stage) >= vectors.machine.costs.task
        tiles, rest = transposing_nest(stage, transposition, simplifier, threads)
        return Block((tiles, *(nest(part, simplifier, vectors, parallel) for part in rest)))
    axis = choose_axis(stage, simplifier, vectors)
    outer = tuple(other for other in stage.axes if other is not axis)
    threads = parallel and work(stage) >= vectors.machine.costs.task
    if axis is None:
        body = _scalar(stage) if stage.operator is None else reduce_scalar(stage)
        return outer_loops(outer, body, threads)
    lanes = vectors.lanes(stage)
    if axis in stage.reduced:
        return outer_loops(outer, reduce_inner(stage, axis, lanes, vectors), threads)
    if stage.operator is not None and reads_row_by_row(stage, axis, lanes, vectors):
        return reduce_columns(stage, outer, axis, lanes, vectors, threads)
    if stage.operator is not None:
        make, step = reduce_kept(stage, axis), lanes * vectors.machine.costs.latency
        if axis.extent < step:
            step = -(-axis.extent // lanes) * lanes
        return along(outer, axis, lanes, step, vectors, lambda places: make(places), threads)
    return along(outer, axis, lanes, lanes, vectors, lambda places: _map(stage, axis, places), threads)


def work(stage: FlatStage) -> int:
    """Return the number of element operations of a stage."""
    size = prod(axis.extent for axis in (*stage.axes, *stage.reduced))
    return size * max(1, operations(*stage.expressions))


def operations(*expressions: Expression) -> int:
    """Return the number of operations on data in expressions; index arithmetic is not counted."""
    seen: set[int] = set()
    count = 0
    stack = list(expressions)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Load):
            count += 1
            continue
        if isinstance(node, Intrinsic):
            count += 1 if node.name in ("fma", ROUNDING) else INTRINSIC_WORK
        elif isinstance(node, Unary | Binary | Cast) and node.type.is_custom:
            count += CUSTOM_WORK
        elif children(node):
            count += 1
        stack.extend(children(node))
    return count


# ---- The choice of the vector axis --------------------------------------------------------------------------------


def choose_axis(stage: FlatStage, simplifier: Simplifier, vectors: Vectors) -> LoopAxis | None:
    """Return the axis whose vectors make the stage cheapest, None if scalar code is as good."""
    lanes = vectors.lanes(stage)
    if lanes == 1:
        return None
    amount, latency = operations(*stage.expressions), vectors.machine.costs.latency
    best: tuple[float, LoopAxis | None] = (amount + 1.0, None)
    ordered = stage.operator is not None and is_ordered(stage.operator, stage.value.type)
    regrouped = () if ordered else stage.reduced
    for axis in (*reversed(stage.axes), *reversed(regrouped)):
        if axis.count is not None:
            continue
        cost = _vector_cost(stage, axis, simplifier, lanes, amount, latency)
        if cost < best[0]:
            best = (cost, axis)
    return best[1]


def _vector_cost(
    stage: FlatStage, axis: LoopAxis, simplifier: Simplifier, lanes: int, amount: int, latency: int
) -> float:
    """Return the cost per element, in operations, when ``axis`` becomes vectors."""
    *reads, write = [stride(place, axis.variable, simplifier) for place in accesses(stage)]
    cost = float(amount)
    for step in reads:
        cost += 0.0 if step in (0, 1) else 0.5 * lanes if step is not None and abs(step) <= 4 else float(lanes)
    is_reduced = axis in stage.reduced
    if is_reduced:
        cost += 1.0
    else:
        cost += 1.0 if write == 1 else 1.5 * lanes
    vectors = -(-axis.extent // lanes)
    extra = 3.0 * latency if is_reduced else 0.0
    return (cost * vectors + extra) / max(axis.extent, 1)


# ---- What stands inside -------------------------------------------------------------------------------------------


def _scalar(stage: FlatStage) -> Statement:
    return Store(stage.target, (stage.place,), stage.value)


def _map(stage: FlatStage, axis: LoopAxis, places: Places) -> Statement:
    """Store the values at some positions along the axis."""
    return Block(tuple(store_at(stage, {axis.variable: place}, stage.value, mask) for place, mask in places))
