"""The schedule for everything that has none of its own, and the frame of the simple ones: rows of fused stages.

Stages that cannot be inlined run one after another. Where they agree on their leading axes (*rows*) and read each
other's results only within a row, the whole chain runs row by row: rows in parallel, what lies between the stages in
scratch memory of one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import (
    FlatStage,
    Layout,
    LoopAxis,
    Stored,
    collapse,
    collapse_own,
    flatten,
)
from graft.core.schedule.loops.fused_stages import common_rows, fuse, leading_tables
from graft.core.schedule.loops.inline import constant_shape, inline_stages, reads_at_own_index, stage_expressions
from graft.core.schedule.loops.loop_frames import is_shared, lanes_of, outer_loops
from graft.core.schedule.loops.nest import choose_axis, nest, work
from graft.core.schedule.loops.side_by_side import side_by_side
from graft.core.schedule.loops.table_blocks import in_blocks, is_open, read_along
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitution


def schedule_generic(kernel: Kernel, target: Target) -> Scheduled:
    """Return loops for a kernel of any stages."""
    stages = fuse(kernel.stages, kernel.outputs)
    return schedule_stages(kernel, stages, target)


def with_epilogues(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> tuple[ir.Stage, ...]:
    """Make an elementwise stage that alone reads a reduction, at its own index, the epilogue of that reduction."""
    result = list(stages)
    position = 0
    while position < len(result):
        stage = result[position]
        readers = [other for other in result if other is not stage and uses_of(stage.buffer, [other])]
        joined = None
        if len(readers) == 1 and stage.reduction is not None and stage.buffer not in outputs:
            joined = with_epilogue(stage, readers[0])
        if joined is None:
            position += 1
        else:
            result[result.index(readers[0])] = joined
            del result[position]
    return tuple(result)


def with_epilogue(stage: ir.Stage, reader: ir.Stage) -> ir.Stage | None:
    """Return the reduction with its only reader as epilogue, None if the reader is not elementwise behind it."""
    same = stage.buffer.shape == reader.buffer.shape
    if stage.reduction is None or reader.reduction is not None or not same:
        return None
    if not reads_at_own_index(reader, stage.buffer):
        return None
    variable = stage.epilogue_variable or ir.Variable("total", stage.value.type)
    moved = substitution(dict(zip(stage.axes, reader.axes, strict=True)))
    total = moved(stage.epilogue if stage.epilogue is not None else variable)

    def rule(node: ir.Expression) -> ir.Expression:
        return total if isinstance(node, ir.Load) and node.buffer is stage.buffer else node

    axes = tuple(ir.Axis(axis.variable, moved(axis.extent)) for axis in stage.reduction.axes)
    reduction = replace(stage.reduction, axes=axes, initial=moved(stage.reduction.initial))
    epilogue = ExpressionMap(rule)(reader.value)
    origin = tuple(dict.fromkeys((*stage.origin, *reader.origin)))
    return ir.Stage(
        reader.buffer, reader.axes, moved(stage.value), reduction, variable, epilogue, origin, stage.structure
    )


def schedule_stages(kernel: Kernel, stages: Sequence[ir.Stage], target: Target) -> Scheduled:
    """Return loops that run the stages as they are, row by row where that is possible."""
    stages = with_epilogues(stages, kernel.outputs)
    machine, simplifier = target.machine, Simplifier()
    tables = leading_tables(stages)
    stages = stages[len(tables) :]
    varying = [table for table in tables if is_open(table)]
    tables = tuple(table for table in tables if not is_open(table))
    along = read_along(varying, stages)
    if along is None:
        stages, varying = inline_stages((*varying, *stages), kernel.outputs), []
    homes = _homes(stages, kernel.outputs)
    between = [stage.buffer for stage in stages if stage.buffer not in (*kernel.outputs, *homes)]
    rows = common_rows(stages, between)
    layout = Layout(simplifier, rows, between, homes)
    extents = stages[0].buffer.shape[:rows]
    row_axes = [LoopAxis.over(ir.Variable(f"row{number}"), extent) for number, extent in enumerate(extents)]
    made = [flatten(stage, layout) for stage in tables]
    flat = [flatten(stage, layout, row_axes) for stage in stages]
    memory = [layout.flat(buffer) for buffer in between]
    if along:
        body = in_blocks(varying, along, stages[0], layout, machine)
    elif rows:
        body = _row_by_row(flat, row_axes, memory, simplifier, machine)
    else:
        body = side_by_side([collapse_own(stage, simplifier) for stage in flat], simplifier, machine) or ir.Block(
            tuple(_in_step(run, layout, machine) for run in _runs(zip(stages, flat, strict=True)))
        )
        body = allocate(memory, body)
    if tables:
        first = (nest(stage, simplifier, machine, parallel=False) for stage in made)
        body = allocate([layout.flat(table.buffer) for table in tables], ir.Block((*first, body)))
    parameters = tuple(layout.flat(buffer) for buffer in (*kernel.inputs, *kernel.outputs))
    # Tails repeat the loops inside them: fresh variables, so that each is bound once.
    body = finished(body, parameters)
    return Scheduled(ir.Function(kernel.name, parameters, len(kernel.outputs), body, kernel.origin))


Run: TypeAlias = list[tuple[ir.Stage, FlatStage]]
"""Stages that run in step, each with its flat form."""


def _runs(stages: Iterable[tuple[ir.Stage, FlatStage]]) -> list[Run]:
    """Return the stages in runs, one behind the other: neighbours that reduce parts of one buffer are together."""
    runs: list[Run] = []
    for stage, flat in stages:
        if not (runs and _reduces_along(runs[-1][-1][0], stage)):
            runs.append([])
        runs[-1].append((stage, flat))
    return runs


def _reduces_along(first: ir.Stage, second: ir.Stage) -> bool:
    """Whether two reductions read parts of the same buffers and have one element for each."""
    alike = first.buffer.shape == second.buffer.shape and len(first.buffer.shape) == 1
    read = [{load.buffer for load in loads(*stage_expressions(one))} for one in (first, second)]
    return alike and None not in (first.reduction, second.reduction) and read[0] == read[1]


def _in_step(run: Run, layout: Layout, machine: Machine) -> ir.Statement:
    """Return the loops of a stage, or one loop over the parts that several read, which are in a cache then."""
    simplifier = layout.simplifier
    (first, flat), *more = run
    if not more:
        return nest(flat, simplifier, machine, parallel=True)
    part = LoopAxis.over(ir.Variable("part"), first.buffer.shape[0])
    stages = [collapse_own(flatten(stage, layout, [part]), simplifier) for stage, _ in run]
    body = ir.Block(tuple(nest(stage, simplifier, machine, parallel=False) for stage in stages))
    return outer_loops([part], body, part.extent * sum(map(work, stages)) >= machine.costs.task, machine)


def _homes(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> dict[ir.Buffer, ir.Buffer]:
    """Return what lies between stages, of a size that varies, but may lie in a result until that is computed."""
    found = dict[ir.Buffer, ir.Buffer]()
    for stage in stages:
        buffer, readers = stage.buffer, [one for one in stages if uses_of(stage.buffer, [one])]
        if buffer in outputs or constant_shape(buffer) is not None or not readers:
            continue
        last = readers[-1]
        alike = last.buffer.shape == buffer.shape and last.buffer.dtype == buffer.dtype and last.reduction is None
        is_free = last.buffer in outputs and last.buffer not in found.values() and not uses_of(last.buffer, stages)
        if alike and is_free and reads_at_own_index(last, buffer):
            found[buffer] = last.buffer
    return found


def _row_by_row(
    stages: Sequence[FlatStage],
    row_axes: Sequence[LoopAxis],
    memory: Sequence[ir.Buffer],
    simplifier: Simplifier,
    machine: Machine,
) -> ir.Statement:
    axes, stages = collapse(row_axes, stages, simplifier)
    stages = stored_beside([collapse_own(stage, simplifier) for stage in stages], simplifier, machine)
    body = ir.Block(tuple(nest(stage, simplifier, machine, parallel=False) for stage in stages))
    total = sum(map(work, stages)) * prod(axis.extent for axis in axes)
    return outer_loops(axes, allocate(memory, body), is_shared(axes, total, machine), machine)


def stored_beside(stages: Sequence[FlatStage], simplifier: Simplifier, machine: Machine) -> list[FlatStage]:
    """Join an elementwise stage with the reduction that follows it and reads it: one pass computes, stores and reduces.

    The stages' axes are collapsed. Softmax sums its exponentials this way while it stores them.
    """
    result: list[FlatStage] = []
    for stage in stages:
        joined = _with_stored(result[-1], stage, simplifier, machine) if result else None
        result[-1 if joined else len(result) :] = [joined or stage]
    return result


def _with_stored(first: FlatStage, second: FlatStage, simplifier: Simplifier, machine: Machine) -> FlatStage | None:
    if first.operator is not None or second.operator is None or second.axes or second.stored is not None:
        return None
    if [axis.extent for axis in first.axes] != [axis.extent for axis in second.reduced] or len(first.axes) != 1:
        return None
    (mine,), (axis,) = first.axes, second.reduced
    moved = substitution({mine.variable: axis.variable})
    place = simplifier(moved(first.place))
    reads = [load for load in loads(*second.expressions) if load.buffer is first.target]
    if axis.count is not None or mine.count is not None or not reads:
        return None
    if any(load.mask is not None or simplifier(load.indices[0]) != place for load in reads):
        return None
    variable = ir.Variable(first.target.name, first.value.type)

    def rule(node: ir.Expression) -> ir.Expression:
        return variable if isinstance(node, ir.Load) and node.buffer is first.target else node

    stored = Stored(variable, first.target, place, simplifier(moved(first.value)))
    joined = replace(second, value=ExpressionMap(rule)(second.value), stored=stored)
    lanes = lanes_of(joined, machine)
    return joined if choose_axis(joined, simplifier, lanes, machine.costs.latency) is axis else None


STRATEGY = Strategy("generic_nest", frozenset(Trait), of_kernel(schedule_generic), varies=None)
"""The last resort: it takes every kernel."""
