"""Tiles for rows of any length: of as many vectors as long rows are worth, and of fewer for rows that fill no more.

A tile takes its time whether a row fills its vectors or not. Where the length of rows varies, a kernel has the loops of
tiles of each number of vectors, and asks once which are enough (windows of 3 x 3 of 8 to 32 pixels in groups of eight
channels: 0.45 to 0.71 of the time of tiles for long rows, Zen 5).
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.templates.space import first
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum
from graft.core.tensor_ir.ir import Constant, Function, If

USUAL_ROWS = (24, 50, 100, 200, 400)
"""Lengths whose times per element are added up to choose a tile: a single one suits the tiles that divide it.

96 -> 96 of three samples in strides of two take 0.76 of the time so, of one 0.94 (Zen 5, one thread).
"""


def tile_for_rows(tiled: TiledSum, target: Target) -> Tile:
    """Return the tile of the fewest cycles, where the length of rows varies over `USUAL_ROWS`."""
    tiles = first(tiled, target)
    if tiled.axes[tiled.last]:
        return tiles[0]
    rows = [(length, replace(tiled, axes={**tiled.axes, tiled.last: length})) for length in USUAL_ROWS]
    return min(tiles, key=lambda tile: sum(own.cycles(tile, target.machine) / length for length, own in rows))


def scheduled_for_rows(tiled: TiledSum, kernel: Kernel, tile: Tile) -> Scheduled:
    """Return the kernel in tiles of so many vectors, or of fewer where one is enough for a row.

    The text of the schedule is that of the widest tile; the others' are comments in it.
    """
    extent = tiled.epilogue.anchor.buffer.shape[[*tiled.axes].index(tiled.last)]
    widest = tiled.scheduled(kernel, tile)
    if isinstance(extent, Constant):
        return widest
    fewer = {n * tiled.lanes: tiled.scheduled(kernel, replace(tile, vectors=n)) for n in range(1, tile.vectors)}

    def function() -> Function:
        whole = widest.function
        body = whole.body
        for most, one in reversed(fewer.items()):
            own = one.function
            same = dict(zip(own.parameters, whole.parameters, strict=True))
            body = If(b.less_equal(extent, most), instantiate(own.body, {}, same), body)
        return replace(whole, body=body)

    said = [f"# rows of up to {most}:\n# " + "\n# ".join(one.steps.splitlines()) for most, one in fewer.items()]
    return replace(widest, source=function, steps="\n".join((widest.steps.rstrip("\n"), *said, "")))
