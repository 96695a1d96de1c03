"""Tables of what varies along one axis of an open extent: those of a block of its places at a time.

Positions and weights of `Resize` are worth a table, since all other axes read each of them again. A block keeps its
memory of constant size, and in a near cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, Layout, LoopAxis, flatten
from graft.core.schedule.loops.inline import stage_expressions
from graft.core.schedule.loops.loop_frames import nested
from graft.core.schedule.loops.nest import nest
from graft.core.tensor_ir.ir import Block, Buffer, Constant, Expression, Load, Stage, Statement, Variable
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitution

BLOCK = 256
"""Places of a block."""


def is_open(stage: Stage) -> bool:
    """Whether a table has so many rows as are known only when a kernel runs."""
    return not isinstance(stage.buffer.shape[0], Constant)


def read_along(tables: Sequence[Stage], stages: Sequence[Stage]) -> dict[Buffer, Variable] | None:
    """Return the axis along which a single stage reads each table; None of tables with more axes or other readers."""
    buffers = {table.buffer for table in tables}
    if not buffers:
        return {}
    if len(stages) != 1 or any(load.buffer in buffers for table in tables for load in loads(*stage_expressions(table))):
        return None
    (stage,) = stages
    found: dict[Buffer, Variable] = {}
    for load in loads(*stage_expressions(stage)):
        if load.buffer not in buffers:
            continue
        index = load.indices[0] if len(load.indices) == 1 else None
        axis = next((one for one in stage.axes if one is index), None)
        if axis is None or found.setdefault(load.buffer, axis) is not axis:
            return None
    return found


def in_blocks(
    tables: Sequence[Stage], along: Mapping[Buffer, Variable], stage: Stage, layout: Layout, machine: Machine
) -> Statement:
    """Return the loops of an elementwise stage, in blocks of the axes that have tables, each behind its tables."""
    flat = flatten(stage, layout)
    around: list[tuple[Variable, Expression, list[FlatStage]]] = []
    for axis in flat.axes:
        own = [flatten(table, layout) for table in tables if along.get(table.buffer) is axis.variable]
        if not own:
            continue
        block, last = Variable(f"{axis.variable.name}_block"), axis.iterations
        begin = b.multiply(block, BLOCK)
        length = layout.simplifier(b.minimum(b.subtract(last, begin), BLOCK))
        parts = {one.target: replace(one.target, shape=(b.index(BLOCK),), tensor=None) for one in own}
        flat = _part(flat, axis, begin, length, parts, layout)
        made = [_part(one, one.axes[0], begin, length, parts, layout) for one in own]
        made = [replace(one, target=parts[one.target], place=one.axes[0].variable) for one in made]
        around.append((block, b.divide(b.add(last, BLOCK - 1), BLOCK), made))
    body = nest(flat, layout.simplifier, machine, parallel=True)
    for block, count, made in reversed(around):
        filled = (nest(one, layout.simplifier, machine, parallel=False) for one in made)
        inside = allocate([one.target for one in made], Block((*filled, body)))
        body = nested([LoopAxis.over(block, b.extent(count))], inside)
    return body


def _part(
    stage: FlatStage,
    axis: LoopAxis,
    begin: Expression,
    length: Expression,
    parts: Mapping[Buffer, Buffer],
    layout: Layout,
) -> FlatStage:
    """Return what a stage does from one place of an axis on, with the tables of these places."""
    own = LoopAxis.over(Variable(axis.variable.name), length, BLOCK)
    layout.simplifier.with_range(own.variable, (0, BLOCK - 1))
    moved = substitution({axis.variable: b.add(own.variable, begin)})

    def rule(node: Expression) -> Expression:
        known = isinstance(node, Load) and node.buffer in parts
        return Load(parts[node.buffer], (own.variable,), node.mask) if known and isinstance(node, Load) else node

    tables = ExpressionMap(rule)
    changed = stage.map(lambda expression: layout.simplifier(tables(moved(expression))))
    return replace(changed, axes=tuple(own if one is axis else one for one in stage.axes))
