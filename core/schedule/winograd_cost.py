"""Whether Winograd's algorithm pays for a convolution, with which pieces and blocks: a model of cycles.

The model counts vector instructions on a core with two multiply-add units, and memory beyond the second-level cache by
the bytes. Its constants were fitted to measurements of the kernels of ResNet-50 and VGG-19 with 64-byte vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.operators.windows import Windows
from graft.core.schedule.parameters import WinogradParameters
from graft.core.schedule.tiling import Tile, adjusted_tile, choose_tile, lanes_of
from graft.core.schedule.winograd_transform import POINTS, WINDOW, Transform
from graft.core.target import Target

CACHE_BYTES = 1 << 20
"""What a block may take up in the second-level cache before its transport counts."""
MIN_LANES = 4
BYTES_PER_CYCLE = 6
"""What comes from beyond the second-level cache."""
PRODUCT_CYCLES, DIRECT_CYCLES = 0.6, 0.65
"""Cycles per vector multiply-add, half of one at best."""
INPUT_CYCLES = {1: {2: 60, 4: 220}, 2: {2: 130}}
OUTPUT_CYCLES = {1: {2: 50, 4: 200}, 2: {2: 90}}
"""Cycles to transform a vector of pieces of one channel, by the stride and the extent of a piece of the output."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``rows`` rows of ``across`` pieces form one of ``blocks`` blocks; a block is ``vectors`` vectors of pieces."""

    transform: Transform
    rows: int
    across: int
    blocks: int
    vectors: int
    tile: Tile

    @property
    def lanes(self) -> int:
        """The lanes of a vector."""
        return self.tile.lanes


def choose_plan(outputs: int, source: Sequence[int], windows: Windows, target: Target) -> Plan | None:
    """Return the plan that takes the fewest cycles for an image of shape ``source``; None if direct is faster."""
    channels, lanes = source[1], lanes_of("float32", target)
    direct = -(-math.prod(windows.target) // lanes) * outputs * channels * WINDOW**2 * DIRECT_CYCLES
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
    return sorted(((_cycles(plan, source[1], outputs), plan) for plan in plans), key=lambda row: row[0])


def described_plan(parameters: WinogradParameters, outputs: int, windows: Windows, target: Target) -> Plan | None:
    """Return the plan of some parameters, as far as they fit; None for vectors that are too short."""
    if lanes_of("float32", target) < MIN_LANES:
        return None
    pieces = min(POINTS[windows.strides[0]], key=lambda known: abs(known - parameters.pieces))
    lines = min(parameters.lines, -(-windows.target[0] // pieces))
    plan = plan_of(pieces, lines, outputs, windows, target)
    width = plan.vectors * plan.lanes
    return replace(plan, tile=adjusted_tile(plan.tile, outputs, width, parameters.rows, parameters.vectors))


def plan_of(pieces: int, rows: int, outputs: int, windows: Windows, target: Target) -> Plan:
    """Return the plan with pieces of ``pieces x pieces`` pixels and blocks of ``rows`` rows of pieces."""
    lanes = lanes_of("float32", target)
    down, across = (-(-extent // pieces) for extent in windows.target)
    vectors = -(-rows * across // lanes)
    tile = choose_tile(outputs, vectors * lanes, "float32", target)
    return Plan(Transform(pieces, windows.strides[0]), rows, across, -(-down // rows), vectors, tile)


def _cycles(plan: Plan, channels: int, outputs: int) -> float:
    """The cycles of all blocks of one image."""
    transform, vectors = plan.transform, plan.vectors
    products = transform.products * channels * outputs * vectors * PRODUCT_CYCLES
    inputs, results = (table[transform.stride][transform.outputs] for table in (INPUT_CYCLES, OUTPUT_CYCLES))
    moved = vectors * (channels * inputs + outputs * results)
    weights = transform.products * channels * outputs * 4
    block = transform.products * (channels + outputs) * vectors * plan.lanes * 4
    far = weights * (1 if plan.blocks == 1 or weights + block <= CACHE_BYTES else plan.blocks) / plan.blocks
    far += 2 * max(0, block - CACHE_BYTES)
    return plan.blocks * (products + moved + far / BYTES_PER_CYCLE)
