"""The schedule of recurrent layers: in chunks of units, constant weights packed at compile time.

What a layer is, its stages say (`graft.core.schedule.strategies.sequential.recurrence`). Products over whole
sequences, as those of its inputs, are computed likewise; all other stages run in the loops of `sequential_loops`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.strategies.sequential.recurrence import Phase, Recurrence, Sums, parts_of, product_of
from graft.core.schedule.strategies.sequential.recurrent_loops import PhaseTiling, Places, recurrent_loops
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer, Function, Stage
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import loads


def schedule_recurrent(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the loops of a kernel with a recurrent layer, None if it has none or the machine has no vectors.

    Weights that are known at compile time, and read as such alone, are packed; others are so in every call.
    """
    parts = list(parts_of(kernel)) if target.machine.vectors else []
    if not any(isinstance(part, Recurrence) for part in parts):
        return None
    phases = [phase for part in parts if not isinstance(part, tuple) for phase in phases_of(part)]
    read = {load.buffer for phase in phases for sums in phase.sums for load in loads(*sums.weights)}
    if not read.isdisjoint(stage.buffer for stage in kernel.stages):
        return None  # weights that the kernel computes would be packed before they are there
    tiles = PhaseTiling.of(phases, target.machine)
    places: Places = {}
    contents: dict[Buffer, np.ndarray] = {}
    made: dict[Buffer, Buffer] = {}
    for source, found in _constant(kernel, phases).items():
        pieces = [_pack(sums, phase, source, kernel.constants[source], tiles) for phase, sums in found]
        contents[source] = np.concatenate(pieces)
        made[source] = Buffer(f"{source.name}_packed", source.dtype, (b.index(contents[source].size),))
        begins = np.cumsum([0, *(piece.size for piece in pieces)])
        places |= {sums: (made[source], int(begin)) for (_, sums), begin in zip(found, begins, strict=False)}
    parameters = (*(made.get(buffer, buffer) for buffer in kernel.inputs), *kernel.outputs)

    def function() -> Function:
        body = instantiate(
            simplify_statement(recurrent_loops(parts, kernel.outputs, tiles, places, target.threads)), {}
        )
        return Function(kernel.name, parameters, len(kernel.outputs), body, kernel.origin)

    return Scheduled(function, contents)


def _constant(kernel: Kernel, phases: Sequence[Phase]) -> dict[Buffer, list[tuple[Phase, Sums]]]:
    """Return the constants that are read as the weights of sums and nothing else, with these sums."""
    found: dict[Buffer, list[tuple[Phase, Sums]]] = {}
    for phase in phases:
        for sums in phase.sums:
            sources = {load.buffer for load in loads(*sums.weights)}
            for source in sources if len(sources) == 1 else ():
                found.setdefault(source, []).append((phase, sums))
    packed = {stage.buffer for sums in found.values() for _, one in sums for stage in one.stages}
    known: set[Buffer] = set()
    for stage in kernel.stages:
        product = product_of(stage) if stage.buffer in packed else None
        value, *others = stage_expressions(stage)
        known |= {load.buffer for load in loads(value if product is None else product[0], *others)}
    return {source: sums for source, sums in found.items() if source in kernel.constants and source not in known}


def _pack(sums: Sums, phase: Phase, source: Buffer, array: np.ndarray, tiles: PhaseTiling) -> np.ndarray:
    """Return weights by chunk, term, gate and unit, zeros beyond the last unit."""
    gates, size, chunks = len(sums.stages), tiles.chunk(phase), tiles.chunks(phase)
    rows = Buffer("rows", source.dtype, (b.index(phase.units), sums.term.extent))
    result = np.zeros((gates, chunks * size, sums.terms), array.dtype)
    for gate, weights in enumerate(sums.weights):
        stage = Stage(rows, (phase.axes[-1], sums.term.variable), weights)
        result[gate, : phase.units] = run_stages([stage], {source: array})[rows]
    whole = result.reshape(gates, chunks, size, sums.terms).transpose(1, 3, 0, 2)
    return np.ascontiguousarray(whole).reshape(-1)


def phases_of(part: Recurrence | Phase) -> tuple[Phase, ...]:
    """Return the phases of a part."""
    return part.phases if isinstance(part, Recurrence) else (part,)


STRATEGY = Strategy("recurrent_layers", frozenset({Trait.RECURRENT}), of_kernel(schedule_recurrent), varies=None)
