"""Loops around statements: parallel or serial, along an axis in vectors with what is left over at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, delinearize
from graft.core.schedule.loops.narrowing import ROUNDING
from graft.core.schedule.loops.vectorize import broadcast, vectorize_expression
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Broadcast,
    Constant,
    Expression,
    For,
    Intrinsic,
    Let,
    Load,
    LoopKind,
    Ramp,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.numerics import FLOAT_INTRINSICS
from graft.core.tensor_ir.visit import walk_expressions
from graft.core.types import INT64, element_bits

TASKS = 32
"""Iterations that a parallel loop should have at least, so that threads share the work evenly."""

Places: TypeAlias = list[tuple[Expression, "Expression | None"]]
"""Vectors (or scalars) of positions along an axis, each with its mask."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """What vectors a machine has."""

    machine: Machine

    @staticmethod
    def of(target: Target) -> Vectors:
        """Return the vectors of a target."""
        return Vectors(target.machine)

    @property
    def masks(self) -> bool:
        """Whether lanes can be switched off cheaply."""
        return self.machine.masks

    def lanes(self, stage: FlatStage) -> int:
        """Return the lanes for a stage: as many of its widest data elements as a register holds; 1 if none can be."""
        nodes = list(walk_expressions(*stage.expressions))
        called = {node.name for node in nodes if isinstance(node, Intrinsic)}
        if not called <= {*FLOAT_INTRINSICS, ROUNDING}:
            return 1
        dtypes = {node.buffer.dtype for node in nodes if isinstance(node, Load)} | {stage.target.dtype}
        data = {max(4 if dtype in ("float16", "bfloat16") else 1, element_bits(dtype) // 8) for dtype in dtypes}
        widest = max({size for size in data if size < 8} or data)
        return max(1, min(32, self.machine.vector_bytes // widest))


# ---- Loops around ------------------------------------------------------------------------------------------------


def outer_loops(axes: Sequence[LoopAxis], body: Statement, parallel: bool) -> Statement:
    """Return loops over axes; with ``parallel`` the outermost ones are fused until there are enough iterations."""
    axes = list(axes)
    if not parallel or not axes:
        return nested(axes, body)
    count = 1
    while count < len(axes) and prod(axis.extent for axis in axes[:count]) < TASKS:
        count += 1
    fused, inner = axes[:count], nested(axes[count:], body)
    if len(fused) == 1:
        return nested(fused, inner, "parallel")
    joint = Variable("task")
    total = Constant(prod(axis.extent for axis in fused), INT64)
    for variable, value in delinearize(joint, fused).items():
        inner = Let(variable, value, inner)
    return For(joint, total, "parallel", inner)


def nested(axes: Sequence[LoopAxis], body: Statement, kind: LoopKind = "serial") -> Statement:
    """Return loops of one kind over axes, the first outermost."""
    for axis in reversed(axes):
        body = For(axis.variable, axis.count or Constant(axis.extent, INT64), kind, body)
    return body


def along(
    outer: Sequence[LoopAxis],
    axis: LoopAxis,
    lanes: int,
    step: int,
    vectors: Vectors,
    body: Callable[[Places], Statement],
    parallel: bool,
) -> Statement:
    """Return loops over the outer axes and, innermost, over an axis in blocks of ``step`` (a multiple of lanes).

    ``body`` gets the vectors of positions of one block, each with its mask. With few outer iterations the blocks
    themselves run in parallel.
    """
    blocks = axis.extent // step
    block = Variable(f"{axis.variable.name}_block")

    def at(start: Expression) -> Statement:
        ramps = [Ramp(plus(start, offset), 1, lanes) for offset in range(0, step, lanes)]
        return body([(ramp, None) for ramp in ramps])

    tail = tail_of(axis.extent % step, blocks * step, lanes, vectors, body)
    many = prod(other.extent for other in outer) >= TASKS
    if parallel and not many and blocks > 1:
        loop = For(block, Constant(blocks, INT64), "parallel", at(times(block, step)))
        if outer:
            task = LoopAxis(block, blocks)
            loop_body = outer_loops([*outer, task], at(times(block, step)), True)
            return Block((loop_body, *((nested(outer, tail, "serial"),) if tail is not None else ())))
        return Block((loop, *(() if tail is None else (tail,))))
    parts: list[Statement] = []
    if blocks:
        parts.append(For(block, Constant(blocks, INT64), "serial", at(times(block, step))))
    if tail is not None:
        parts.append(tail)
    return outer_loops(outer, Block(tuple(parts)), parallel)


def tail_of(
    rest: int,
    start: int,
    lanes: int,
    vectors: Vectors,
    body: Callable[[Places], Statement],
) -> Statement | None:
    """Return the code for the last ``rest`` positions from ``start`` on, None if there are none.

    Whole vectors first; then one masked vector, or (without cheap masks) ever smaller vectors.
    """
    places: Places = []
    while rest >= lanes:
        places.append((Ramp(Constant(start, INT64), 1, lanes), None))
        start, rest = start + lanes, rest - lanes
    if rest and vectors.masks:
        places.append((Ramp(Constant(start, INT64), 1, lanes), first_lanes(rest, lanes)))
        rest = 0
    statements: list[Statement] = [body(places)] if places else []
    while rest:
        lanes //= 2
        if rest >= lanes:
            place = Constant(start, INT64)
            statements.append(body([(Ramp(place, 1, lanes) if lanes > 1 else place, None)]))
            start, rest = start + lanes, rest - lanes
    return Block(tuple(statements)) if statements else None


def first_lanes(count: int, lanes: int) -> Expression:
    """Return the mask that switches on the first ``count`` lanes."""
    return Binary("lt", Ramp(Constant(0, INT64), 1, lanes), Broadcast(Constant(count, INT64), lanes))


def plus(start: Expression, offset: int) -> Expression:
    """Return ``start + offset``."""
    return Binary("add", start, Constant(offset, INT64)) if offset else start


def times(block: Expression, step: int) -> Expression:
    """Return ``block * step``."""
    return Binary("mul", block, Constant(step, INT64))


def store_at(
    stage: FlatStage, values: dict[Variable, Expression], value: Expression, mask: Expression | None
) -> Statement:
    """Store an expression to the stage's place; variables have the values given, which may be vectors."""
    place = vectorize_expression(stage.place, values)
    lanes = max([place.type.lanes, *(other.type.lanes for other in values.values())])
    vector = broadcast(vectorize_expression(value, values, mask), lanes)
    return Store(stage.target, (place,), vector, mask)
