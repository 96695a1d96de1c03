"""Convolutions that store channels last, as steps: vectors of channels, and pixels of a row side by side in registers.

One template serves images of known extents and others. Of the window only the rows inside of the image are run; tiles
whose windows stay between its sides, which are nearly all of a large one, are one body without a condition. Where each
channel has a window of its own, the loops over a row of it and over the tile are skewed: each vector of the image is
loaded once for all pixels that look at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.bounds import Clip, Guard, Overlap, Skew, Unswitch
from graft.core.schedule.primitives.loop_kinds import Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.schedule_text import print_schedule, take
from graft.core.schedule.primitives.staging import ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.plain_kernel import plain_products
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir.ir import Buffer

TILE_COST = 0.5
"""Pixels that a tile costs besides its own."""


def least_overlapping(width: int, most: int) -> int:
    """Return the pixels of tiles, half of ``most`` or more, that compute the fewest of a row twice."""
    sizes = range(max(1, min(most, width) // 2), min(most, width) + 1)
    return min(sizes, key=lambda size: (-(-width // size) * (size + TILE_COST), -size))


@dataclass(frozen=True, slots=True)
class PixelTiles:
    """A convolution taken apart; a tile has ``tile.rows`` pixels of a row as rows, output channels as columns."""

    epilogue: Epilogue
    found: Convolution
    weights: Buffer
    tile: RegisterTile

    def scheduled(self, kernel: Kernel) -> Scheduled:
        """Return the kernel after all steps."""
        packed = {self.weights: self.pack.contents(kernel.constants[self.weights])}
        return Scheduled(
            lambda: replace(lowered(take(plain_products(kernel, self.epilogue), self.steps())), origin=kernel.origin),
            packed,
            knobs={"pixels": self.tile.rows, "vectors": self.tile.vectors},
            steps=print_schedule(tuple(self.steps())),
        )

    @property
    def pack(self) -> Pack:
        """The order of the weights: panels of the channels of a tile."""
        return Pack(self.weights.name, 0, self.tile.columns, f"{self.weights.name}_packed")

    def steps(self) -> Iterator[Step]:
        """Yield the schedule."""
        width, pixels, heavy = self.found.shape[2], self.tile.rows, self.epilogue.is_heavy
        nests = (".zero", ".sum", "", *([".copy"] if heavy else []))
        yield Split("c", self.tile.columns, "c0", "c")
        if width == pixels:
            yield Reorder(("c0", "x", "c"))
        else:
            yield Overlap("x", pixels, "x0", "x")
            yield Reorder(("x0", "c0", "x", "c"))
        yield from (ComputeAt(name, "c0") for name in ([*(["sums"] if heavy else []), "total"]))
        yield from (Split(f"c{nest}", self.tile.lanes, f"v{nest}", f"c{nest}") for nest in nests)
        yield from self._order()
        if width == pixels:
            yield Guard("total")
        yield self.pack
        yield from (Vectorize(f"c{nest}") for nest in nests)
        unrolled = [f"{axis}{nest}" for axis in "xv" for nest in nests if nest != ".sum" and (nest or not heavy)]
        yield from map(Unroll, (*unrolled, "v.sum"))
        yield Unswitch("c0", "last")
        if width != pixels:
            yield Unswitch("x0", "border")
        yield from (Parallel("n"), Parallel("y"))

    def _order(self) -> Iterator[Step]:
        """Yield the order of the loops that sum."""
        windows = self.found.windows
        if self.found.window.is_depthwise:
            yield Reorder(("g", "ky", "v.sum", "x.sum", "kx", "c.sum"))
            yield Skew("x.sum", windows.strides[1], "kx", windows.dilations[1], "column")
            yield Clip("ky")
            yield from (Unroll("column"), Unroll("kx"))
        else:
            yield Reorder(("g", "ky", "kx", "x.sum", "v.sum", "c.sum"))
            yield Clip("ky")
            yield from (Unroll("kx"), Unroll("x.sum"))
