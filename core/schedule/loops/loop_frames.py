"""Loops around statements, and the steps by which a machine runs them: shared by its units, in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.narrowing import ROUNDING
from graft.core.schedule.primitives.bounds import Overlap, Unswitch
from graft.core.schedule.primitives.loop_kinds import Bind, Jam, Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Fuse, Split
from graft.core.schedule.primitives.schedule_text import take
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.numerics import FLOAT_INTRINSICS
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import walk_expressions
from graft.core.types import element_bits

TASKS = 32
"""Iterations that a parallel loop should have at least, so that threads share the work evenly."""
LONG = 1 << 17
"""What an axis that varies counts for at least, to be shared in place of those around it that vary."""
LANES = 32
"""Units of a level that does not say how many it has, where other levels are around it."""


def lanes_of(stage: FlatStage, machine: Machine) -> int:
    """Return the lanes for a stage: as many of its widest data elements as a register holds; 1 if none can be."""
    nodes = list(walk_expressions(*stage.expressions))
    called = {node.name for node in nodes if isinstance(node, ir.Intrinsic)}
    if not called <= {*FLOAT_INTRINSICS, ROUNDING}:
        return 1
    dtypes = {node.buffer.dtype for node in nodes if isinstance(node, ir.Load)} | {stage.target.dtype}
    data = {max(4 if dtype in ("float16", "bfloat16") else 1, element_bits(dtype) // 8) for dtype in dtypes}
    widest = max({size for size in data if size < 8} or data)
    return max(1, min(32, machine.vector_bytes // widest))


# ---- Steps -------------------------------------------------------------------------------------------------------


def taken(body: ir.Statement, steps: Sequence[Step], axes: Sequence[LoopAxis] = ()) -> ir.Statement:
    """Return a statement after some steps, unchecked: iterations of a stage's axes never depend on each other.

    What schedules return is verified as a whole, by who asks for it. What extents of ``axes`` are made of is no less
    than 0.
    """
    known = ir.Buffer("extents", "bool", tuple(axis.iterations for axis in axes))
    return take(ir.Function("nest", (known,), 0, body), steps).body


def is_shared(axes: Sequence[LoopAxis], work: int, machine: Machine) -> bool:
    """Whether so much work, as it is counted, may be worth several threads: axes that vary may be long."""
    return work >= machine.costs.task or any(axis.is_open for axis in axes)


def shared(axes: Sequence[LoopAxis], machine: Machine | None) -> tuple[Step, ...]:
    """Return the steps that share the iterations of loops, the first outermost, among the units of a machine.

    Threads take the outermost loops, fused until there are enough iterations. Where levels are in each other, as blocks
    and lanes are, all loops are fused, and neighbouring iterations go to neighbouring units of the innermost level.
    """
    levels = () if machine is None else machine.levels
    count = len(axes) if len(levels) > 1 else 1
    while count < len(axes) and prod(axis.least for axis in axes[:count]) < TASKS:
        count += 1
    names, task = tuple(axis.variable.name for axis in axes[:count]), "task"
    steps: list[Step] = [Fuse(names, task)] if count > 1 else []
    if count == 1:
        (task,) = names
    if len(levels) < 2:
        return (*steps, Parallel(task))
    for level in reversed(levels[1:]):
        unit = f"{task}.{level.name}"
        steps += [Split(task, level.count or LANES, task, unit), Bind(unit, f"{level.name}.x")]
    return (*steps, Bind(task, f"{levels[0].name}.x"))


def in_vectors(name: str, extent: int, lanes: int, machine: Machine) -> tuple[Step, ...]:
    """Return the steps that make a loop of vectors, all side by side, and of what is left a masked vector.

    Without masks ever smaller vectors take what is left.
    """
    whole, rest = divmod(extent, lanes)
    if extent == lanes:
        return (Vectorize(name) if lanes > 1 else Unroll(name),)
    if not whole and not machine.masks:
        return in_vectors(name, extent, lanes // 2, machine)
    vector, lane, tail = f"{name}.vector", f"{name}.lane", f"{name}.tail"
    if not rest or machine.masks:
        return (Split(name, lanes, vector, lane), Vectorize(lane), Jam(vector))
    steps = (Split(name, lanes, vector, lane, (tail,)), Vectorize(lane), Jam(vector))
    return (*steps, *in_vectors(tail, rest, lanes // 2, machine))


def open_vectors(name: str, lanes: int, machine: Machine) -> tuple[Step, ...]:
    """Return the steps that make a loop of vectors one after the other, where its extent varies: the last is masked.

    Without masks what is left is done one by one.
    """
    vector, lane = f"{name}.vector", f"{name}.lane"
    tail = () if machine.masks else (f"{name}.tail",)
    return (Split(name, lanes, vector, lane, tail), Vectorize(lane))


def blocked(
    axes: Sequence[LoopAxis], step: int, lanes: int, machine: Machine, threads: bool = False, again: bool = False
) -> tuple[Step, ...]:
    """Return the steps that make blocks of ``step`` positions of the innermost of some loops, in vectors.

    With ``threads`` the loops around are shared, and where these have few iterations, the blocks themselves
    (those alone if they have a tail, which stands beside them). Where positions may be computed ``again``, the last
    vector of an axis that varies ends where that does, and vectors that no condition cuts are told apart.
    """
    *outer, axis = axes
    name, (blocks, rest) = axis.variable.name, divmod(axis.extent, step)
    block = LoopAxis(ir.Variable(f"{name}.block"), blocks, is_open=axis.is_open)
    overlaps = again and axis.is_open and step == lanes
    has_tail, left = (rest > 0 or axis.is_open) and not overlaps, f"{name}.rest" if blocks else name
    steps: list[Step] = [Split(name, step, block.variable.name, name, (left,) if has_tail else ())] if blocks else []
    if overlaps:
        steps = [Overlap(name, step, block.variable.name, name), Vectorize(name), Unswitch(block.variable.name, "cut")]
    if prod(other.least for other in outer) < TASKS and (blocks > 1 or (axis.is_open and (blocks or overlaps))):
        if any(other.is_open for other in outer):
            outer = [block] if axis.is_open and axis.extent >= LONG else outer
        else:
            outer = [block] if has_tail else [*outer, block]
    if threads and outer:
        steps += shared(outer, machine)
    if overlaps:
        return tuple(steps)
    if blocks:
        steps += in_vectors(name, step, lanes, machine)
    if axis.is_open:
        return (*steps, *open_vectors(left, lanes, machine))
    return (*steps, *in_vectors(left, rest, lanes, machine)) if rest else tuple(steps)


# ---- Loops around ------------------------------------------------------------------------------------------------


def outer_loops(
    axes: Sequence[LoopAxis], body: ir.Statement, parallel: bool, machine: Machine | None = None
) -> ir.Statement:
    """Return loops over axes; with ``parallel`` the units of a machine (threads, if none is given) share them."""
    return taken(nested(axes, body), shared(axes, machine) if parallel and axes else (), axes)


def nested(axes: Sequence[LoopAxis], body: ir.Statement) -> ir.Statement:
    """Return loops over axes, the first outermost."""
    return loops_over(((axis.variable, axis.iterations) for axis in axes), body)
