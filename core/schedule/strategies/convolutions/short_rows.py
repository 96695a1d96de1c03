"""Tiles for rows of any length: of as many vectors as long rows are worth, and of fewer for rows that fill no more.

A tile takes its time whether a row fills its vectors or not. Where the length of rows varies, a kernel has the loops of
tiles of each number of vectors, and asks once which are enough (windows of 3 x 3 of 8 to 32 pixels in groups of eight
channels: 0.45 to 0.71 of the time of tiles for long rows, Zen 5).
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum
from graft.core.tensor_ir.ir import Constant, Function, If


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
