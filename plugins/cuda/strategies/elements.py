"""Elementwise operators and moves: several neighbouring elements for each thread, and transpositions through tiles.

An access is coalesced where neighbouring threads are at neighbouring elements. Where a tensor is read along another
axis than the result is stored, a block reads a tile along the one and stores it along the other.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops import flat_stages
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.loops.loop_frames import nested, taken
from graft.core.schedule.loops.nest import named, operations
from graft.core.schedule.parameters import BlockParameters, Parameters, of_family
from graft.core.schedule.primitives.loop_kinds import Parallel, Vectorize
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.schedule_text import parse_schedule, take
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import instantiate, lower_loops
from graft.core.schedule.strategies.nests.fused_elementwise import REPEATED, overwritable
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.rewriting.simplify import Simplifier, simplify_statement
from graft.core.tensor_ir.visit import ExpressionMap, loads, map_accesses
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.frames import ACCESS

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
        flat = named(flat_stages.collapse_own(flat_stages.flatten(stage, layout), simplifier), simplifier)
        tiled = transposed(flat, simplifier)
        lanes.append(1 if tiled else min(most_lanes, lanes_of(flat, simplifier, machine.vector_bytes, THREADS)))
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


def lanes_of(stage: flat_stages.FlatStage, simplifier: Simplifier, most: int = ACCESS, threads: int = 1) -> int:
    """Return how many neighbouring elements a thread computes, or reduces: what all accesses can do at one time.

    At least so many ``threads`` have something to do.
    """
    axes, reads = stage.reduced or stage.axes, loads(*stage.expressions)
    if not axes or not axes[-1].is_known or any(load.mask is not None for load in reads):
        return 1
    axis = axes[-1]
    steps = {flat_stages.stride(load.indices[0], axis.variable, simplifier) for load in reads}
    is_stored = bool(stage.reduced) or flat_stages.stride(stage.place, axis.variable, simplifier) == 1
    if axis.variable in flat_stages.irregular(stage, simplifier) or not is_stored or not steps <= {0, 1}:
        return 1
    buffers = [stage.target, *(load.buffer for load in reads)]
    outside = [one for one in buffers if one.memory == "host"] or buffers
    lanes = max(1, min(ACCESS, most) // max(element_bits(one.dtype) // 8 for one in outside))
    while lanes > 1 and (axis.extent % lanes or prod(one.extent for one in axes) // lanes < threads):
        lanes //= 2
    return lanes


def elements(stage: flat_stages.FlatStage, lanes: int) -> ir.Statement:
    """Return parallel loops over a stage's elements, of which each iteration has ``lanes``."""
    names = [axis.variable.name for axis in stage.axes]
    steps: list[Step] = list(map(Parallel, names))
    if lanes > 1:
        steps[-1:] = [Split(names[-1], lanes, names[-1], "lane"), Vectorize("lane"), Parallel(names[-1])]
    return lower_loops(taken(nested(stage.axes, ir.Store(stage.target, (stage.place,), stage.value)), steps))


def transposed(stage: flat_stages.FlatStage, simplifier: Simplifier) -> ir.Statement | None:
    """Return a stage that reads one tensor across through tiles in shared memory; None for any other."""
    if len(stage.axes) < 2:
        return None
    reads = loads(*stage.expressions)
    store = next((axis for axis in stage.axes if flat_stages.stride(stage.place, axis.variable, simplifier) == 1), None)
    if store is None or store.extent < TILE:
        return None
    across = [load for load in reads if flat_stages.stride(load.indices[0], store.variable, simplifier) not in (0, 1)]
    if len(across) != 1 or any(load.mask is not None and load not in across for load in reads):
        return None
    (load,) = across
    known = stage.map(ExpressionMap(lambda node: replace(load, mask=None) if node == load else node))
    if {one.variable for one in stage.axes} & flat_stages.irregular(known, simplifier):
        return None
    along = next(
        (axis for axis in stage.axes if flat_stages.stride(load.indices[0], axis.variable, simplifier) == 1), None
    )
    if along is None or along is store or along.extent < TILE // 2:
        return None
    return _through_tiles(stage, load, store, along)


def _through_tiles(
    stage: flat_stages.FlatStage, load: ir.Load, store: flat_stages.LoopAxis, along: flat_stages.LoopAxis
) -> ir.Statement:
    """Return blocks of 32 x 8 threads, each with a tile of 32 x 32: a column of padding keeps banks apart."""
    outer = [axis for axis in stage.axes if axis is not store and axis is not along]
    by_store, by_load = store.variable.name, along.variable.name
    source = replace(load.buffer, name="across")  # which is read there alone
    value = ExpressionMap(lambda node: replace(load, buffer=source) if node is load else node)(stage.value)
    body = nested((*outer, store, along), ir.Store(stage.target, (stage.place,), value))
    steps = f"""
    split {by_store} {TILE} -> column.tile column
    split {by_load} {TILE} -> line.tile line
    reorder column.tile line.tile line column
    fuse {" ".join(axis.variable.name for axis in outer)} column.tile line.tile -> tile
    bind tile block.x
    reindex_cache_read across at tile in shared -> near over column line
    pad near 1 {TILE + 1}
    split near.0 {LINES} -> fill.turn near.0
    fuse near.0 near.1 -> fill
    parallel fill
    split line {LINES} -> empty.turn line
    fuse line column -> empty
    parallel empty
    spmd tile {TILE * LINES} thread.x -> thread
    unroll fill.turn
    unroll empty.turn
    """
    tiled = take(ir.Function("tiles", (source,), 0, body), parse_schedule(steps)).body
    return map_accesses(tiled, {source}, lambda _, indices: (load.buffer, indices))


def _measured(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return what threads may have of neighbouring elements, in the first stage of tuning."""
    return [BlockParameters(lanes=1 << power) for power in range(ACCESS.bit_length())] if stage == 0 else []


STRATEGY = Strategy(
    "cuda.elements", frozenset({Trait.ELEMENTWISE, Trait.INJECTIVE}), build, candidates=_measured, is_for_integers=True
)
