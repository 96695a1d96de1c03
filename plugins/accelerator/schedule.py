"""The schedule of a stage: a template of shared steps brings its plain loops into tiles of the memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.schedule_text import take
from graft.core.schedule.primitives.staging import CacheRead, ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import WEIGHT, Intrinsic, machine
from graft.plugins.accelerator.nests import Nest, nest_of
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Kind, Tiling


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A function, the intrinsics that it calls, and the steps that were taken on it."""

    function: Function
    intrinsics: Mapping[str, Intrinsic]
    steps: tuple[Step, ...]


def scheduled(stage: Stage, tiling: Tiling, configuration: Configuration) -> Scheduled:
    """Return a stage's loops in tiles, its operands in the accelerator's memories, its loops over lanes instructions.

    What steps are taken here never changes the order of dependent accesses, so none is asked about (a test asks about
    each); the whole is verified for the machine.
    """
    nest = nest_of(stage, configuration)
    steps = tuple(template(stage, nest, tiling))
    function = take(nest.function, steps)
    verify(function, machine(configuration))
    return Scheduled(function, {one.name: one for one in nest.intrinsics.values()}, steps)


def template(stage: Stage, nest: Nest, tiling: Tiling) -> Iterator[Step]:
    """Yield the steps: outputs in tiles, what they need brought to a tile or a part of its sum, instructions."""
    for suffix, order in nest.orders.items():
        yield Reorder(tuple(f"{loop}.{suffix}" for loop in order))
    for axis, extent in (("o", tiling.outputs), ("r", tiling.rows), ("c", tiling.columns)):
        yield Split(axis, extent, f"{axis}0", f"{axis}1")
    outside = ("o0", "r0", "c0") if tiling.outputs_outside else ("r0", "c0", "o0")
    yield Reorder(("n", *outside, "o1", "r1", "c1", "m"))
    tile = outside[-1]
    for buffer in (
        "total",
        *(["beside", "moved"] if stage.moved else []),
        *(["wide"] if "max0" in nest.orders else []),
    ):
        yield ComputeAt(buffer, tile)
    places = dict.fromkeys(nest.orders, tile)
    # Several inputs take turns in the places of one.
    is_one_sum = stage.shape.kind is Kind.BLOCKS and not stage.shape.step
    if is_one_sum and (tiling.inputs < stage.shape.inputs or len(stage.inputs) > 1):
        for suffix in nest.orders:
            yield Split(f"i.{suffix}", tiling.inputs, f"i0.{suffix}", f"i1.{suffix}")
            places[suffix] = f"i0.{suffix}"
    for name, reader in nest.inputs.items():
        yield ComputeAt(name, places.get(reader, tile))
    if stage.weights:
        readers = dict.fromkeys(place for suffix, place in places.items() if suffix != "right")
        for number, place in enumerate(readers):
            yield CacheRead("w", place, WEIGHT, f"weights{number}")
    for suffix, intrinsic in nest.intrinsics.items():
        yield intrinsic.at(f"m.{suffix}")
