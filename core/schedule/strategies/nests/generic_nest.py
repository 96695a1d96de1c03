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
    USUAL,
    FlatStage,
    Layout,
    LoopAxis,
    Stored,
    collapse,
    collapse_own,
    flatten,
)
from graft.core.schedule.loops.inline import constant_shape, inline_stages, reads_at_own_index, stage_expressions
from graft.core.schedule.loops.loop_frames import is_shared, lanes_of, outer_loops
from graft.core.schedule.loops.nest import choose_axis, nest, operations, work
from graft.core.schedule.loops.side_by_side import side_by_side
from graft.core.schedule.loops.table_blocks import in_blocks, is_open, read_along
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitution

CHEAP = 4
"""Operations that are rather repeated than kept in memory."""
ROW = 256
"""Elements of a row of stages that do not reduce."""
TABLE = 8
"""How many times as large as a table what reads it must be, to be worth the memory."""
SMALL_TABLE = 1 << 14
"""Elements of a table of several axes."""
SHORT_ROW = 8
"""Elements that a row of stages with reductions should have at least."""


def schedule_generic(kernel: Kernel, target: Target) -> Scheduled:
    """Return loops for a kernel of any stages."""
    stages = fuse(kernel.stages, kernel.outputs)
    return schedule_stages(kernel, stages, target)


def leading_tables(stages: Sequence[ir.Stage]) -> tuple[ir.Stage, ...]:
    """Return the stages in front that read nothing but each other, where something larger reads them.

    They are of one axis, or small and dear.
    """
    tables: list[ir.Stage] = []
    made: set[ir.Buffer] = set()
    for stage in stages[:-1]:
        if not made.issuperset(load.buffer for load in loads(*stage_expressions(stage))):
            break
        is_dear = stage.reduction is not None or operations(stage.value) > CHEAP
        if (len(stage.axes) != 1 or stage.reduction is not None) and not (is_dear and _size(stage) <= SMALL_TABLE):
            break
        tables.append(stage)
        made.add(stage.buffer)
    largest = max(map(_size, tables), default=0)
    return tuple(tables) if largest * TABLE <= max(map(_size, stages), default=0) else ()


def _size(stage: ir.Stage) -> int:
    return counted(stage.buffer.shape)


def counted(extents: Sequence[ir.Expression]) -> int:
    """Return the product of extents, each as choices count it."""
    return prod(int(one.value) if isinstance(one, ir.Constant) else USUAL for one in extents)


def fuse(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> tuple[ir.Stage, ...]:
    """Inline the stages that are cheap to repeat, or whose every element is used once; tables in front stay."""
    uses = {stage.buffer: _uses(stage.buffer, stages) for stage in stages}
    tables = {stage.buffer for stage in leading_tables(stages)}

    def wanted(stage: ir.Stage) -> bool:
        if stage.buffer in tables:
            return False
        readers = uses[stage.buffer]
        once = len(readers) == 1 and space(readers[0]) <= space(stage)
        return once or operations(stage.value) <= CHEAP

    return inline_stages(stages, outputs, wanted)


def with_epilogues(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> tuple[ir.Stage, ...]:
    """Make an elementwise stage that alone reads a reduction, at its own index, the epilogue of that reduction."""
    result = list(stages)
    position = 0
    while position < len(result):
        stage = result[position]
        readers = [other for other in result if other is not stage and _uses(stage.buffer, [other])]
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


def _uses(buffer: ir.Buffer, stages: Sequence[ir.Stage]) -> list[ir.Stage]:
    """Return the stages that read a buffer, once for each distinct load."""
    return [stage for stage in stages for load in loads(*stage_expressions(stage)) if load.buffer is buffer]


def space(stage: ir.Stage) -> int:
    """Return the number of times a stage evaluates its value."""
    axes = () if stage.reduction is None else stage.reduction.axes
    return counted([*stage.buffer.shape, *(axis.extent for axis in axes)])


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
        buffer, readers = stage.buffer, [one for one in stages if _uses(stage.buffer, [one])]
        if buffer in outputs or constant_shape(buffer) is not None or not readers:
            continue
        last = readers[-1]
        alike = last.buffer.shape == buffer.shape and last.buffer.dtype == buffer.dtype and last.reduction is None
        is_free = last.buffer in outputs and last.buffer not in found.values() and not _uses(last.buffer, stages)
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


def common_rows(stages: Sequence[ir.Stage], between: Sequence[ir.Buffer] = ()) -> int:
    """Return the number of leading axes along which the stages are independent of each other.

    Rows are made long enough for vectors where that is possible; a row of what lies ``between`` stages has a size that
    is known, since each thread keeps one.
    """
    shapes = [stage.buffer.shape for stage in stages]
    produced = {stage.buffer for stage in stages}
    if len(stages) == 1:
        return 0
    reduces = any(stage.reduction is not None for stage in stages)
    best = 0
    for rows in range(min(map(len, shapes)), 0, -1):
        same = all(shape[:rows] == shapes[0][:rows] for shape in shapes)
        known = all(isinstance(extent, ir.Constant) for one in between for extent in one.shape[rows:])
        if not same or not known or not all(_stays_in_row(stage, produced, rows) for stage in stages):
            continue
        if max(counted(shape[rows:]) for shape in shapes) >= (SHORT_ROW if reduces else ROW):
            return rows
        best = best or rows
    return best if reduces else 0


def _stays_in_row(stage: ir.Stage, produced: set[ir.Buffer], rows: int) -> bool:
    """Whether a stage reads intermediate results only in the row that it writes."""
    return all(
        all(index is axis for index, axis in zip(load.indices[:rows], stage.axes, strict=False))
        for load in loads(*stage_expressions(stage))
        if load.buffer in produced
    )


STRATEGY = Strategy("generic_nest", frozenset(Trait), of_kernel(schedule_generic), varies=None)
"""The last resort: it takes every kernel."""
