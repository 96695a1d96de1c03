"""Elementwise operators and moves: several neighbouring elements for each thread, and transpositions through tiles.

An access is coalesced where neighbouring threads are at neighbouring elements. Where a tensor is read along another
axis than the result is stored, a block reads a tile along the one and stores it along the other.
"""

from __future__ import annotations

from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops import flat_stages
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.loops.nest import operations
from graft.core.schedule.parameters import BlockParameters, Parameters, of_family
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.strategies.nests.fused_elementwise import REPEATED, overwritable
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.rewriting.simplify import Simplifier, simplify_statement
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.frames import ACCESS, bound, launched, places

THREADS = 256
TILE, LINES = 32, 8
"""A tile of a transposition, and the rows of it that a block has at one time."""


def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    """Return a kernel of elementwise stages, a launch for each result."""
    kernel = anchor.kernel
    if any(is_sequential(stage) or stage.reduction is not None for stage in kernel.stages):
        return OTHER_FORM
    if any(stage.value.type.is_custom for stage in kernel.stages):
        return OTHER_FORM
    most = REPEATED * sum(operations(stage.value) for stage in kernel.stages)
    stages = inline_stages(kernel.stages, kernel.outputs, lambda stage: operations(stage.value) <= most)
    if sum(operations(stage.value) for stage in stages) > most:
        return Reject("cost", "its stages read each other at many places")
    simplifier, machine = Simplifier(), target.machine
    layout = flat_stages.Layout(simplifier)
    parts: list[ir.Statement] = []
    lanes = []
    wanted = of_family(anchor.parameters, BlockParameters)
    most_lanes = ACCESS if wanted is None or wanted.lanes is None else 1 << wanted.lanes.bit_length() - 1
    for stage in stages:
        flat = flat_stages.collapse_own(flat_stages.flatten(stage, layout), simplifier)
        tiled = transposed(flat, simplifier)
        lanes.append(1 if tiled else min(most_lanes, lanes_of(flat, simplifier, machine.vector_bytes)))
        parts.append(tiled or elements(flat, lanes[-1]))
    body: ir.Statement = ir.Block(tuple(parts))
    for stage in reversed(stages):
        if stage.buffer not in kernel.outputs:
            body = ir.Allocate(layout.flat(stage.buffer), body)
    parameters = tuple(layout.flat(buffer) for buffer in (*kernel.inputs, *kernel.outputs))
    written = instantiate(simplify_statement(body), {})
    in_place = overwritable(kernel) if not _has_tiles(parts) else ()
    function = ir.Function(kernel.name, parameters, len(kernel.outputs), written, kernel.origin, in_place)
    return Scheduled(function, knobs={"lanes": max(lanes), "threads": THREADS})


def _has_tiles(parts: list[ir.Statement]) -> bool:
    return any(isinstance(part, ir.For) and part.binding for part in parts)


def lanes_of(stage: flat_stages.FlatStage, simplifier: Simplifier, most: int) -> int:
    """Return how many neighbouring elements a thread computes: what all accesses can do at one time."""
    if not stage.axes:
        return 1
    axis = stage.axes[-1]
    reads = loads(*stage.expressions)
    widest = max(element_bits(one.dtype) // 8 for one in (stage.target, *(load.buffer for load in reads)))
    steps = [flat_stages.stride(place, axis.variable, simplifier) for place in flat_stages.accesses(stage)]
    masked = any(load.mask is not None for load in reads)
    if (
        masked
        or axis.variable in flat_stages.irregular(stage, simplifier)
        or steps[-1] != 1
        or any(one not in (0, 1) for one in steps)
    ):
        return 1
    lanes = max(1, min(ACCESS, most) // widest)
    while lanes > 1 and (axis.extent % lanes or _size(stage) // lanes < THREADS):
        lanes //= 2
    return lanes


def _size(stage: flat_stages.FlatStage) -> int:
    return prod(axis.extent for axis in stage.axes)


def elements(stage: flat_stages.FlatStage, lanes: int) -> ir.Statement:
    """Return parallel loops over a stage's elements, of which each iteration has ``lanes``."""
    axes = list(stage.axes)
    if lanes == 1:
        body: ir.Statement = ir.Store(stage.target, (stage.place,), stage.value)
    else:
        last = axes.pop()
        group = flat_stages.LoopAxis(ir.Variable(f"{last.variable.name}.group"), last.extent // lanes)
        ramp = {last.variable: ir.Ramp(b.multiply(group.variable, lanes), 1, lanes)}
        first = {last.variable: b.multiply(group.variable, lanes)}
        place = ir.Ramp(substitute(stage.place, first), 1, lanes)
        body = ir.Store(stage.target, (place,), vectorize_expression(stage.value, ramp))
        axes.append(group)
    return loops_over(((axis.variable, b.index(axis.extent)) for axis in axes), body, "parallel")


def transposed(stage: flat_stages.FlatStage, simplifier: Simplifier) -> ir.Statement | None:
    """Return a stage that reads one tensor across through tiles in shared memory; None for any other."""
    if len(stage.axes) < 2:
        return None
    reads = loads(*stage.expressions)
    store = next((axis for axis in stage.axes if flat_stages.stride(stage.place, axis.variable, simplifier) == 1), None)
    if store is None or store.extent < TILE or any(load.mask is not None for load in reads):
        return None
    across = [load for load in reads if flat_stages.stride(load.indices[0], store.variable, simplifier) not in (0, 1)]
    if len(across) != 1 or {one.variable for one in stage.axes} & flat_stages.irregular(stage, simplifier):
        return None
    (load,) = across
    along = next(
        (axis for axis in stage.axes if flat_stages.stride(load.indices[0], axis.variable, simplifier) == 1), None
    )
    if along is None or along is store or along.extent < TILE:
        return None
    return _through_tiles(stage, load, store, along)


def _through_tiles(
    stage: flat_stages.FlatStage, load: ir.Load, store: flat_stages.LoopAxis, along: flat_stages.LoopAxis
) -> ir.Statement:
    """Return blocks of 32 x 8 threads, each with a tile of 32 x 32: a column of padding keeps banks apart."""
    tile = ir.Buffer("tile", load.buffer.dtype, (b.index(TILE), b.index(TILE + 1)), memory="shared", alignment=ACCESS)
    outer = [axis for axis in stage.axes if axis is not store and axis is not along]
    tiles = [-(-store.extent // TILE), -(-along.extent // TILE)]
    block, thread = ir.Variable("tile"), ir.Variable("thread")
    store_tile, along_tile = ir.Variable(f"{store.variable.name}.tile"), ir.Variable(f"{along.variable.name}.tile")
    column, line = b.modulo(thread, TILE), b.divide(thread, TILE)

    def transposed(step: ir.Variable, own: ir.Expression, other: ir.Expression, body: ir.Statement) -> ir.Statement:
        """One turn: the places of both axes, and what is done where they exist."""
        values = [b.add(b.multiply(store_tile, TILE), own), b.add(b.multiply(along_tile, TILE), other)]
        inside = b.both(b.less(store.variable, store.extent), b.less(along.variable, along.extent))
        return ir.For(
            step,
            b.index(TILE // LINES),
            "unrolled",
            bound([store.variable, along.variable], values, ir.If(inside, body)),
        )

    first, second = ir.Variable("turn"), ir.Variable("turn")
    row_in, row_out = b.add(b.multiply(first, LINES), line), b.add(b.multiply(second, LINES), line)
    fill = transposed(first, row_in, column, ir.Store(tile, (row_in, column), load))
    value = ExpressionMap(lambda node: ir.Load(tile, (column, row_out)) if node is load else node)(stage.value)
    empty = transposed(second, column, row_out, ir.Store(stage.target, (stage.place,), value))
    body: ir.Statement = ir.Allocate(tile, ir.Block((fill, ir.Barrier("block"), empty)))
    body = bound([*(axis.variable for axis in outer), store_tile, along_tile],
                 places(block, [*(axis.extent for axis in outer), *tiles]), body)  # fmt: skip
    return launched(block, prod([*(axis.extent for axis in outer), *tiles]), thread, TILE * LINES, body)


def _measured(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return what threads may have of neighbouring elements, in the first stage of tuning."""
    return [BlockParameters(lanes=1 << power) for power in range(ACCESS.bit_length())] if stage == 0 else []


STRATEGY = Strategy(
    "cuda.elements", frozenset({Trait.ELEMENTWISE, Trait.INJECTIVE}), build, candidates=_measured, is_for_integers=True
)
