"""Elementwise stages along one axis that varies, in one loop: what several of them read comes from memory once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.flat_stages import FlatStage, accesses, stride
from graft.core.schedule.loops.loop_frames import blocked, lanes_of, nested, taken
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import loads, substitution


def side_by_side(stages: Sequence[FlatStage], simplifier: Simplifier, machine: Machine) -> ir.Statement | None:
    """Return one loop over collapsed stages, None where these have other axes or read each other's neighbours."""
    if len(stages) < 2 or any(stage.operator is not None or len(stage.axes) != 1 for stage in stages):
        return None
    axis, targets = stages[0].axes[0], {stage.target for stage in stages}
    moved = []
    for stage in stages:
        (own,) = stage.axes
        if not own.is_open or own.count != axis.count:
            return None
        moved.append(replace(stage.map(substitution({own.variable: axis.variable})), axes=(axis,)))
    for stage in moved:
        read = [load for load in loads(*stage.expressions) if load.buffer in targets]
        steps = [stride(place, axis.variable, simplifier) for place in accesses(stage)]
        if any(step not in (0, 1) for step in steps) or any(load.indices != (axis.variable,) for load in read):
            return None
    lanes = min(lanes_of(stage, machine) for stage in moved)
    if lanes < 2 or any(stage.place is not axis.variable for stage in moved):
        return None
    body = ir.Block(tuple(ir.Store(stage.target, (stage.place,), stage.value) for stage in moved))
    return taken(nested((axis,), body), blocked((axis,), lanes, lanes, machine, threads=True), (axis,))
