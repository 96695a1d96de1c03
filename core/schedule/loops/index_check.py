"""The check that an index input stays in its range, as a function of its own that runs before what reads it.

Each index is tested by itself. A processor tests vectors of them at once and looks at each only where one is wrong, so
that the check costs one pass over the indices; on a device each has a unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.operators.definition.index_bounds import IndexBound, Size
from graft.core.schedule.loops.flat_stages import Layout, LoopAxis
from graft.core.schedule.loops.loop_frames import nested, taken
from graft.core.schedule.primitives.loop_kinds import Parallel
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.skipping import Skip
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import finished
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.types import element_bits

VECTORS = 8
"""Vectors of indices that are tested at once."""
TASK = 256
"""Such tests that a task makes."""


def index_check(
    name: str,
    dtype: str,
    shape: Sequence[b.Count],
    bounds: Sequence[IndexBound],
    sources: Mapping[int, tuple[str, int]],
    machine: Machine,
) -> ir.Function:
    """Return the function ``name`` that fails if one of the indices lies outside of what ``bounds`` say.

    The inputs behind the indices are ``sources`` by number, of a type and a rank: their extents say ranges that vary.
    """
    layout, indices = Layout(Simplifier()), ir.Buffer("indices", dtype, tuple(map(b.extent, shape)))
    others = {
        number: ir.Buffer(f"source{number}", kind, b.variables(axes, f"source{number}_"))
        for number, (kind, axes) in sources.items()
    }

    def value(size: Size) -> ir.Expression:
        if isinstance(size, int):
            return b.index(size)
        total: ir.Expression = b.index(size.number)
        for number, axis, factor in size.extents:
            total = b.add(b.multiply(others[number].shape[axis], factor), total)
        return total

    flat, parts = layout.flat(indices), list[ir.Statement]()
    for bound in bounds:
        columns, column = (1, 0) if bound.column is None else (shape[-1], bound.column)
        place, count = ir.Variable("i"), layout.simplifier(b.divide(flat.shape[0], columns))
        found = b.cast(ir.Load(flat, (b.add(b.multiply(place, columns), column),)), "int64")
        low, high = value(bound.low), value(bound.high)
        wrong = b.either(b.less(found, low), b.greater(found, high))
        refused = ir.CallExtern("fail_index", (found, b.index(bound.axis), value(bound.extent), low, high))
        axis = LoopAxis.over(place, count)
        steps = [Parallel("i")] if machine.is_device else _in_vectors(axis, dtype, machine)
        parts.append(taken(nested([axis], ir.If(wrong, refused)), steps, [axis]))
    parameters = (flat, *others.values())
    return ir.Function(name, parameters, 0, finished(ir.Block(tuple(parts)), parameters))


def _in_vectors(axis: LoopAxis, dtype: str, machine: Machine) -> list[Step]:
    """Return the steps that test some vectors at once, and what is left one by one; threads share what is long."""
    lanes = max(1, machine.vector_bytes * 8 // element_bits(dtype))
    size = VECTORS * lanes
    if lanes == 1 or (axis.is_known and axis.extent < size):
        return []
    steps: list[Step] = [Split("i", size, "part", "i", ("rest",)), Skip("i")]
    if axis.is_open or axis.extent >= 2 * TASK * size:
        steps += [Split("part", TASK, "task", "part"), Parallel("task")]
    return steps
