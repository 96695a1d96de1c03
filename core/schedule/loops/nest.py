"""Loop nests for one flat stage: which axis becomes vectors, what the accumulators are, what runs in parallel.

Choices come from one cost model (`choose_axis`): what an access costs when an axis becomes vectors depends on its
stride along that axis only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.accumulate import element, reduce_inner
from graft.core.schedule.loops.column_reduction import reads_row_by_row, reduce_columns
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, accesses, collapse_own, stride
from graft.core.schedule.loops.loop_frames import (
    TASKS,
    blocked,
    is_shared,
    lanes_of,
    nested,
    outer_loops,
    shared,
    taken,
)
from graft.core.schedule.loops.narrowing import ROUNDING
from graft.core.schedule.loops.periods import split_periods
from graft.core.schedule.loops.segments import branches, part, segments, transposed_rows
from graft.core.schedule.loops.small_images import joined_pixels, written_out
from graft.core.schedule.loops.tiled_transpose import find_transposition, transposing_nest
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import children, free_variables, loads, substitute

FEW = 64
"""Terms of sums that need no others beside them: those of the next vector begin before they end."""
BESIDE, SUMS = 4, 8
"""Vectors of elements, and of sums, that are computed side by side."""
SPARE = 4
"""Registers besides those of sums that are computed side by side."""
LARGE = 96
"""Operations of an element that are written once."""
INTRINSIC_WORK = 15
"""Operations that an intrinsic counts for."""
CUSTOM_WORK = 15
"""Operations of one rounding to a custom datatype."""


def nest(stage: FlatStage, simplifier: Simplifier, machine: Machine, parallel: bool) -> ir.Statement:
    """Return the loops that compute a stage, none where it has no element; ``parallel`` allows threads."""
    if any(axis.extent == 0 for axis in stage.axes):
        return ir.Block(())
    stage = named(_in_periods(stage, simplifier, lanes_of(stage, machine)), simplifier)
    branched = branches(stage, simplifier)
    if branched is not None:
        innermost, sides = branched
        outer = tuple(other for other in stage.axes if other is not innermost)
        made = [(c, nest(replace(one, axes=(innermost,)), simplifier, machine, parallel=False)) for c, one in sides]
        body = made[-1][1]
        for condition, row in reversed(made[:-1]):
            body = ir.If(condition, row, body)
        return outer_loops(outer, body, parallel and is_shared(stage.axes, work(stage), machine), machine)
    parts = segments(stage, simplifier)
    if len(parts) > 1:
        return ir.Block(tuple(nest(one, simplifier, machine, parallel) for one in parts))
    threads = parallel and is_shared(stage.axes, work(stage), machine)
    transposed = transposed_rows(stage, simplifier)
    if transposed is not None:
        innermost, rows = transposed
        outer = tuple(other for other in stage.axes if other is not innermost)
        within = [replace(row, axes=tuple(own for own in row.axes if own not in outer)) for row in rows]
        body = ir.Block(tuple(nest(row, simplifier, machine, parallel=False) for row in within))
        return outer_loops(outer, body, threads, machine)
    lanes = lanes_of(stage, machine)
    transposition = find_transposition(stage, simplifier, lanes)
    if transposition is not None:
        tiles, rest = transposing_nest(stage, transposition, simplifier, machine, threads)
        return ir.Block((tiles, *(nest(one, simplifier, machine, parallel) for one in rest)))
    small = joined_pixels(stage, simplifier, lanes)
    if small is not None:
        *around, pixels = small.axes
        steps = (*(shared(around, machine) if threads and around else ()), *written_out(pixels, lanes, machine))
        return taken(nested(small.axes, element(small)), steps, small.axes)
    axis = choose_axis(stage, simplifier, lanes, machine.costs.latency)
    outer = tuple(other for other in stage.axes if other is not axis)
    if axis is None:
        return outer_loops(outer, element(stage), threads, machine)
    if axis in stage.reduced:
        return _reduced_along(stage, axis, outer, lanes, machine, threads)
    if stage.operator is not None and reads_row_by_row(stage, axis, lanes, machine):
        return reduce_columns(stage, outer, axis, lanes, machine, threads)
    step = lanes * _side_by_side(stage, axis, lanes, machine)

    def along(stage: FlatStage, axis: LoopAxis, threads: bool) -> ir.Statement:
        loops = (*(other for other in stage.axes if other is not axis), axis)
        if axis.is_known and axis.extent == 1:  # its place is known, so nothing differs from lane to lane
            return outer_loops(loops, element(stage), threads, machine)
        again = stage.operator is not None and len(machine.levels) < 2
        return taken(nested(loops, element(stage)), blocked(loops, step, lanes, machine, threads, again), loops)

    whole = axis.extent // step * step
    if threads and axis.is_known and step < whole < axis.extent and prod(other.extent for other in outer) < TASKS:
        # Blocks are shared, and what is left of them is computed behind them.
        ends, place = (0, whole, axis.extent), stage.axes.index(axis)
        first, last = (part(stage, axis, *two, simplifier) for two in pairwise(ends))
        return ir.Block((along(first, first.axes[place], True), along(last, last.axes[place], False)))
    return along(stage, axis, threads)


def _reduced_along(
    stage: FlatStage, axis: LoopAxis, outer: Sequence[LoopAxis], lanes: int, machine: Machine, threads: bool
) -> ir.Statement:
    """Return the loops of a stage that is reduced in vectors along an axis."""
    beside = _summed_beside(stage, outer, machine, threads)
    inside = reduce_inner(stage, axis, lanes, machine, beside)
    return outer_loops(outer[: len(outer) - len(beside)], inside, threads, machine)


def _side_by_side(stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine) -> int:
    """Return how many vectors along an axis are computed together: of sums as many as fit, in blocks of like size."""
    vectors = -(-axis.extent // lanes)
    if stage.operator is None:
        is_long = axis.is_known and axis.extent >= BESIDE * lanes and operations(*stage.expressions) <= LARGE
        return BESIDE if is_long and len(machine.levels) < 2 else 1
    if axis.is_open:
        return 1 if _terms(stage) <= FEW else min(machine.costs.latency, vectors)
    return -(-vectors // -(-vectors // SUMS)) if vectors else 1


def _summed_beside(
    stage: FlatStage, outer: Sequence[LoopAxis], machine: Machine, threads: bool
) -> tuple[LoopAxis, ...]:
    """Return the innermost axes whose elements are reduced side by side, in vectors along what is reduced.

    Along each of them the elements have a load in common, and all of their sums fit the registers; where threads share
    the axes around, these keep iterations enough.
    """
    if len(machine.levels) > 1 or stage.stored is not None or any(axis.is_open for axis in stage.reduced):
        return ()
    found, sums, (*around,) = list[LoopAxis](), 1, outer
    reads = [free_variables(*load.indices) for load in loads(stage.value)]
    while around:
        axis = around.pop()
        sums *= axis.extent
        fits = axis.is_known and sums + SPARE <= machine.registers
        if not fits or all(axis.variable in places for places in reads) or axis.variable in _counted(stage):
            break
        if threads and prod(other.least for other in around) < TASKS:
            break
        found.insert(0, axis)
    return tuple(found)


def _counted(stage: FlatStage) -> frozenset[ir.Variable]:
    """Return the variables on which depends how many terms are reduced."""
    return frozenset(free_variables(*(axis.count for axis in stage.reduced if axis.count is not None)))


def _in_periods(stage: FlatStage, simplifier: Simplifier, lanes: int) -> FlatStage:
    """Return a stage with axes of its periods, collapsed; with those of a few neighbours where it transposes then."""
    stage = split_periods(stage, simplifier)
    short = split_periods(stage, simplifier, shortest=2)
    if short is not stage:
        short = collapse_own(short, simplifier)
        if find_transposition(short, simplifier, lanes) is not None:
            return short
    return collapse_own(stage, simplifier)


def named(stage: FlatStage, simplifier: Simplifier, prefix: str = "") -> FlatStage:
    """Return the stage with a name of its own for each axis, which begins with a prefix if one is given."""
    axes = (*stage.axes, *stage.reduced)
    if not prefix and len({axis.variable.name for axis in axes}) == len(axes):
        return stage
    names = (prefix or f"{axis.variable.name}." for axis in axes)
    fresh = {
        axis.variable: ir.Variable(f"{name}{number}")
        for number, (axis, name) in enumerate(zip(axes, names, strict=True))
    }
    for axis in axes:
        simplifier.with_range(fresh[axis.variable], axis.range)
    renamed = stage.map(lambda expression: simplifier(substitute(expression, fresh)))

    def own(axes: tuple[LoopAxis, ...]) -> tuple[LoopAxis, ...]:
        return tuple(replace(axis, variable=fresh[axis.variable]) for axis in axes)

    return replace(renamed, axes=own(stage.axes), reduced=own(renamed.reduced))


def _terms(stage: FlatStage) -> int:
    return prod(axis.extent for axis in stage.reduced)


def work(stage: FlatStage) -> int:
    """Return the number of element operations of a stage."""
    size = prod(axis.extent for axis in (*stage.axes, *stage.reduced))
    return size * max(1, operations(*stage.expressions))


def operations(*expressions: ir.Expression) -> int:
    """Return the number of operations on data in expressions; index arithmetic is not counted."""
    seen: set[int] = set()
    count = 0
    stack = list(expressions)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ir.Load):
            count += 1
            continue
        if isinstance(node, ir.Intrinsic):
            count += 1 if node.name in ("fma", ROUNDING) else INTRINSIC_WORK
        elif isinstance(node, ir.Unary | ir.Binary | ir.Cast) and node.type.is_custom:
            count += CUSTOM_WORK
        elif children(node):
            count += 1
        stack.extend(children(node))
    return count


# ---- The choice of the vector axis --------------------------------------------------------------------------------


def choose_axis(stage: FlatStage, simplifier: Simplifier, lanes: int, latency: int) -> LoopAxis | None:
    """Return the axis whose vectors make the stage cheapest, None if scalar code is as good."""
    if lanes == 1:
        return None
    amount = operations(*stage.expressions)
    best: tuple[float, LoopAxis | None] = (amount + 1.0, None)
    ordered = stage.operator is not None and ir.is_ordered(stage.operator, stage.value.type)
    regrouped = () if ordered else stage.reduced
    counts = [axis.count for axis in stage.reduced if axis.count is not None and not axis.is_open]
    of_counts = free_variables(*counts)  # the lanes of a vector take as many turns of a loop
    for axis in (*reversed(stage.axes), *reversed(regrouped)):
        if not axis.is_whole or axis.variable in of_counts:
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
