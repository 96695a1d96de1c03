"""The template of the accelerator's layers: steps that bring a stage's plain loops into tiles of its memories."""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.staging import CacheRead, ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.plugins.accelerator.intrinsics import WEIGHT
from graft.plugins.accelerator.nests import Nest
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Kind, Tiling


def steps_of(stage: Stage, nest: Nest, tiling: Tiling) -> Iterator[Step]:
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
