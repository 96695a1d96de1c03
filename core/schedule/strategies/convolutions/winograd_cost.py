"""Whether Winograd's algorithm pays for a convolution, with which pieces and blocks: a model of cycles.

The model counts vector instructions, and memory beyond the second-level cache by the bytes. Its constants were fitted
to measurements of 50 plans for kernels of ResNet-50, VGG-19 and others with 64-byte vectors (Zen 4), of which it finds
the fastest or one that takes at most 3 % longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.schedule.products.tiling import RegisterTile, choose_tile, lanes_of
from graft.core.schedule.strategies.convolutions.channel_order import direct_cycles
from graft.core.schedule.strategies.convolutions.winograd_plan import INPUT_CYCLES, OUTPUT_CYCLES, PRODUCT_CYCLES
from graft.core.schedule.strategies.convolutions.winograd_transform import (
    MIN_CHANNELS,
    MIN_LANES,
    POINTS,
    WINDOW,
    Transform,
)
from graft.core.tensor_ir.anchors import Windows

NEAR_SHARE = 0.25
"""Weights that are read again after so much of the third-level cache are still there."""
MIN_PARALLEL_BLOCKS = 8
"""At least so many blocks are shared out among threads; of fewer, each is worked on by all threads together,
which costs them `Costs.meeting`, for they wait for each other, and find what others have written."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``rows`` rows of ``across`` pieces form one of ``blocks`` blocks; a block is ``vectors`` vectors of pieces."""

    transform: Transform
    rows: int
    across: int
    blocks: int
    vectors: int
    tile: RegisterTile

    @property
    def lanes(self) -> int:
        """The lanes of a vector."""
        return self.tile.lanes

    def is_apart(self, images: int) -> bool:
        """Whether each block of so many images is one thread's."""
        return self.blocks * images >= MIN_PARALLEL_BLOCKS


def choose_plan(outputs: int, source: Sequence[int], windows: Windows, target: Target) -> Plan | None:
    """Return the plan that takes the fewest cycles for an image of shape ``source``; None if direct is faster."""
    channels = source[1]
    if channels < MIN_CHANNELS:
        return None
    direct = direct_cycles(outputs * channels * WINDOW**2, windows, target)
    cycles, plan = next(iter(ranked_plans(outputs, source, windows, target)), (direct, None))
    return plan if cycles < direct else None


def ranked_plans(outputs: int, source: Sequence[int], windows: Windows, target: Target) -> list[tuple[float, Plan]]:
    """Return all plans for an image of shape ``source`` with their cycles, the fewest first; none for short vectors."""
    if lanes_of("float32", target) < MIN_LANES:
        return []
    plans = [
        plan_of(pieces, rows, outputs, windows, target)
        for pieces in POINTS[windows.strides[0]]
        for rows in range(1, -(-windows.target[0] // pieces) + 1)
    ]
    meeting = target.machine.costs.meeting * (target.threads != 1)
    rows = [
        (
            _cycles(plan, source[1], outputs, target.machine)
            + (0 if plan.is_apart(source[0]) else (plan.blocks - 1) * meeting),
            plan,
        )
        for plan in plans
    ]
    return sorted(rows, key=lambda row: row[0])


def plan_of(pieces: int, rows: int, outputs: int, windows: Windows, target: Target) -> Plan:
    """Return the plan with pieces of ``pieces x pieces`` pixels and blocks of ``rows`` rows of pieces."""
    lanes = lanes_of("float32", target)
    down, across = (-(-extent // pieces) for extent in windows.target)
    vectors = -(-rows * across // lanes)
    tile = choose_tile(outputs, vectors * lanes, "float32", target)
    return Plan(Transform(pieces, windows.strides[0]), rows, across, -(-down // rows), vectors, tile)


def _cycles(plan: Plan, channels: int, outputs: int, machine: Machine) -> float:
    """The cycles of all blocks of one image.

    What the third-level cache has comes fetched ahead; what goes to and fro, or comes from memory, does not.
    """
    transform, vectors = plan.transform, plan.vectors
    products = transform.products * channels * outputs * vectors * PRODUCT_CYCLES
    inputs, results = (table[transform.stride][transform.outputs] for table in (INPUT_CYCLES, OUTPUT_CYCLES))
    moved = vectors * (channels * inputs + outputs * results)
    weights = transform.products * channels * outputs * 4
    block = transform.products * (channels + outputs) * vectors * plan.lanes * 4
    own, shared, far = machine.working_set(2), machine.cache(3), machine.far.bandwidth
    again = 0 if weights + block <= own else (plan.blocks - 1) * weights
    beyond = plan.blocks * 2 * max(0, block - own)
    rate = shared.bandwidth if weights + block <= NEAR_SHARE * machine.working_set(3) else far
    return plan.blocks * (products + moved) + again / rate + (weights + beyond) / far
