"""The register tiles and blocks of products that are worth measuring, by the model of cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.schedule.parameters import PACKINGS, ContractionParameters
from graft.core.schedule.products.tiling import RegisterTile, ranked_tiles, split_evenly

TILES, OF_A_WIDTH = 6, 2
"""Register tiles that are measured in one stage, and those of one width among them."""
UNROLLS = (1, 4, 8)
BLOCK_SHARES = (1 / 16, 1 / 4, 1 / 2, 1, 4)
"""Blocks of rows, as parts of the second-level cache."""
SPAN_SHARES = (1 / 32, 1 / 16, 1 / 4, 32)
"""Spans of a sum, as parts of the first-level cache."""


def best_tiles(height: int, width: int, dtype: str, target: Target) -> list[RegisterTile]:
    """Return the tiles of fewest cycles, few of each width, and only one of those that cut the rows alike."""
    ranked = (tile for _, tile in ranked_tiles(height, width, dtype, target))
    different = dict.fromkeys(replace(tile, rows=split_evenly(height, tile.rows).sizes[0][1]) for tile in ranked)
    found: list[RegisterTile] = []
    for tile in different:
        if sum(one.vectors == tile.vectors for one in found) < OF_A_WIDTH:
            found.append(tile)
    return found[:TILES]


def product_candidates(
    own: ContractionParameters, height: int, width: int, dtype: str, target: Target, stage: int
) -> list[ContractionParameters]:
    """Return what to measure for a product of matrices in a stage of tuning: tiles, then blocks, then what is left."""
    match stage:
        case 0:
            return [
                replace(own, rows=tile.rows, vectors=tile.vectors) for tile in best_tiles(height, width, dtype, target)
            ]
        case 1:
            return list(blocks(own, target))
        case _:
            packings = [replace(own, packing=one) for one in PACKINGS] if height > 1 else []
            return [*(replace(own, unroll=unroll) for unroll in UNROLLS), *packings]


def blocks(own: ContractionParameters, target: Target) -> Iterator[ContractionParameters]:
    """Yield parameters with other blocks."""
    first, second = (target.machine.working_set(level) for level in (1, 2))
    for share in BLOCK_SHARES:
        yield replace(own, block_bytes=int(share * second))
    for share in SPAN_SHARES:
        yield replace(own, span_bytes=int(share * first))
