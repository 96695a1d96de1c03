"""The schedule of a stage: steps of the tensor IR that make a tiling of its plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.staging import CacheRead, ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import WEIGHT, Intrinsic, machine
from graft.plugins.accelerator.nests import Nest, nest_of
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Kind, Tiling


@dataclass(slots=True)
class Scheduled:
    """A function, the intrinsics that it calls, and the steps that were taken on it."""

    function: Function
    intrinsics: Mapping[str, Intrinsic]
    steps: list[Step] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """Take one more step."""
        self.function = step.change(self.function)
        self.steps.append(step)


def scheduled(stage: Stage, tiling: Tiling, configuration: Configuration) -> Scheduled:
    """Return a stage's loops in tiles, its operands in the accelerator's memories, its loops over lanes instructions.

    What steps are taken here never changes the order of dependent accesses, so none is asked about; the whole is
    verified for the machine.
    """
    nest = nest_of(stage, configuration)
    done = Scheduled(nest.function, {one.name: one for one in nest.intrinsics.values()})
    for suffix, order in nest.orders.items():
        done.take(Reorder(tuple(f"{loop}.{suffix}" for loop in order)))
    for axis, extent in (("o", tiling.outputs), ("r", tiling.rows), ("c", tiling.columns)):
        done.take(Split(axis, extent, f"{axis}0", f"{axis}1"))
    outside = ("o0", "r0", "c0") if tiling.outputs_outside else ("r0", "c0", "o0")
    done.take(Reorder(("n", *outside, "o1", "r1", "c1", "m")))
    done.take(ComputeAt("total", outside[-1]))
    _bring_near(done, nest, stage, tiling, outside[-1])
    for suffix, intrinsic in nest.intrinsics.items():
        done.take(intrinsic.at(f"m.{suffix}"))
    verify(done.function, machine(configuration))
    return done


def _bring_near(done: Scheduled, nest: Nest, stage: Stage, tiling: Tiling, tile: str) -> None:
    """Move copies to where a tile, or a part of its sum, reads them."""
    if stage.moved is not None:
        done.take(ComputeAt("beside", tile))
        done.take(ComputeAt("moved", tile))
    if stage.shape.kind is Kind.MAXIMUM and stage.shape.taps > 1:
        done.take(ComputeAt("wide", tile))
    # Several inputs take turns in the places of one.
    in_parts = stage.shape.kind is Kind.BLOCKS and not stage.shape.step
    in_parts &= tiling.inputs < stage.shape.inputs or len(stage.inputs) > 1
    places = {}
    for suffix in nest.intrinsics:
        if in_parts and suffix.startswith(("sum", "right", "left")):
            done.take(Split(f"i.{suffix}", tiling.inputs, f"i0.{suffix}", f"i1.{suffix}"))
            places[suffix] = f"i0.{suffix}"
    for name, reader in nest.inputs.items():
        done.take(ComputeAt(name, places.get(reader, tile)))
    if stage.weights:
        readers = [places[one] for one in places if one != "right"] or [tile]
        for number, place in enumerate(readers):
            done.take(CacheRead("w", place, WEIGHT, f"weights{number}"))
