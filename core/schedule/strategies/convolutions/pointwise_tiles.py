"""Convolutions of single pixels whose channels come first: tiles of channels x pixels of a whole image, by steps.

Pixels are one axis, so that vectors end where an image does, not a row (`graft.core.schedule.templates.tiled_sum`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import with_sources
from graft.core.schedule.products.accumulation import EXACT_TERMS
from graft.core.schedule.products.factors import USUAL_VECTORS
from graft.core.schedule.products.product_axes import analyse
from graft.core.schedule.products.tiling import RegisterTile, ranked_tiles, split_evenly
from graft.core.schedule.strategies.convolutions.direct_convolution import channels_innermost
from graft.core.schedule.strategies.convolutions.flat_images import flatten
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.schedule.templates.rewrites import Rewritten
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum, tiled_sum

MOST_WASTED = 1.05
"""The vectors of all tiles by those of an image, at the most: a product has a narrower tile for what is left over."""
HEAVY_REGISTERS = 8
"""A tile has a vector for so many registers, or more, where an activation is long: they are computed side by side."""
STREAMED = 1.5
"""What a wide tile takes longer whose pixels do not stay in the first-level cache for the next channels ..."""
WIDE = 6
"""... if it has so many vectors."""
FEW_TILES = 4
"""Tiles of channels below which no copy of pixels pays, since so few read it."""
FLAT_PIXELS = "flat_pixels"
FEW_SETS = 2
"""Rows that begin in so few sets of the first-level cache are copied (Zen 5)."""


@dataclass(frozen=True, slots=True)
class _Pixels:
    """A convolution over flat pixels taken apart."""

    flat: Rewritten
    tiled: TiledSum
    target: Target

    @property
    def channels(self) -> int:
        """The output channels."""
        *_, count, _ = self.tiled.axes.values()
        return count

    @property
    def pixels(self) -> int:
        """The pixels of an image."""
        return self.tiled.axes[self.tiled.last]

    @property
    def terms(self) -> int:
        """The input channels."""
        (count,) = self.tiled.reduced.values()
        return count

    def tile(self) -> RegisterTile | None:
        """Return the tile of the fewest cycles, the last of an image being as wide as others; None if none is good."""
        parts = analyse(self.tiled.epilogue)
        busy = 0 if parts is None else parts.held_vectors(USUAL_VECTORS)
        ranked = ranked_tiles(self.channels, self.pixels, "float32", self.target, busy)
        heavy = self.target.machine.registers // HEAVY_REGISTERS if self.tiled.epilogue.is_heavy else 1
        least = max(1, min(heavy, self._vectors))
        able = [(cycles * self._slower(one), one) for cycles, one in ranked if one.vectors >= least]
        _, tile = min(able, key=lambda one: one[0])
        is_alone = self.channels <= tile.rows and self.lies_apart
        if self._wasted(tile) > MOST_WASTED or is_alone:
            return None
        return replace(tile, rows=split_evenly(self.channels, tile.rows).sizes[0][1])

    @property
    def _vectors(self) -> int:
        return -(-self.pixels // self.tiled.lanes)

    def _wasted(self, tile: RegisterTile) -> float:
        return -(-self._vectors // tile.vectors) * tile.vectors / self._vectors

    def _slower(self, tile: RegisterTile) -> float:
        size = 4 * self.terms * tile.columns
        is_streamed = tile.vectors >= WIDE and tile.columns < self.pixels and size > self.target.machine.working_set(1)
        return self._wasted(tile) * (STREAMED if is_streamed else 1.0)

    @property
    def lies_apart(self) -> bool:
        """Whether what a tile reads competes for the same lines of the first-level cache, and with what it stores."""
        return self.target.machine.cache(1).sets_of(4 * self.pixels) <= FEW_SETS

    def span(self, unroll: int) -> int:
        """Return after how many terms a sum begins anew; 0 if it does not."""
        if self.terms < 2 * EXACT_TERMS:
            return 0
        even = -(-self.terms // (self.terms // EXACT_TERMS))
        return -(-even // unroll) * unroll

    def scheduled(self, own: RegisterTile) -> Scheduled:
        """Return the kernel in tiles."""
        tiles, rows = -(-self.channels // own.rows), list(self.tiled.axes)[-2]
        shape = Tile(own.vectors, rows if own.rows > 1 else "", own.rows, unroll=own.unroll)
        shape = replace(shape, near=tiles >= FEW_TILES and self.lies_apart, span=self.span(own.unroll))
        return with_sources(self.tiled.scheduled(self.flat.kernel, shape), self.flat.sources)


def flat_pixels(kernel: Kernel, target: Target) -> Rewritten | None:
    """Return a convolution of single pixels whose channels come first, with all pixels of an image as one axis."""
    anchor = Anchor(kernel)
    found, stages = anchor.convolution, anchor.stages
    if found is None or stages is None or not found.window.is_pointwise or not found.window.reads_channels_first:
        return None
    flat = flatten(kernel, (channels_innermost(stages[0], found.window), *stages[1:]), found.window.groups)
    return None if flat is None else Rewritten(replace(flat.kernel, stages=flat.stages, anchor_stage=0), flat.original)


def _taken(anchor: Anchor, target: Target) -> _Pixels | Reject:
    found = anchor.convolution
    if anchor.parameters is not None:
        return Reject("user-excluded", "its tiles are not tuned, and parameters are given")
    if found is None or anchor.stages is None or not found.window.is_pointwise or found.window.inputs == 1:
        return Reject("shape", "no convolution of single pixels")
    if found.window.stores_channels_last or not found.window.reads_channels_first:
        return Reject("layout", "channels do not come first")
    if target.precision != "float32" or found.anchor.value.type.dtype != "float32":
        return Reject("dtype", "products are rounded, or not in float32")
    if not (target.machine.masks or target.machine.masked_loads) or not target.machine.caches:
        return Reject("unavailable", "the machine reads no vector in part, as at the end of an image, or has no caches")
    flat = flat_pixels(anchor.kernel, target)
    tiled = None if flat is None else tiled_sum(flat.kernel, target)
    if flat is None or tiled is None or len(tiled.reduced) != 1 or 0 in tiled.axes.values():
        return OTHER_FORM
    if tiled.axes[tiled.last] < tiled.lanes:
        return Reject("size", "an image has fewer pixels than a vector")
    return _Pixels(flat, replace(tiled, rewrite=FLAT_PIXELS), target)


def _applies(anchor: Anchor, target: Target) -> Answer:
    taken = _taken(anchor, target)
    if isinstance(taken, Reject):
        return taken
    if taken.tile() is None:
        return Reject("cost", "pixels leave too much of the last tile empty, or lie apart for few channels")
    return True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    taken = _taken(anchor, target)
    tile = None if isinstance(taken, Reject) else taken.tile()
    return OTHER_FORM if isinstance(taken, Reject) or tile is None else taken.scheduled(tile)


STRATEGY = Strategy("pointwise_tiles", CONVOLUTIONS, _build, _applies, rewrites={FLAT_PIXELS: flat_pixels})
"""Takes those whose images fill their vectors; the others are products (`direct_convolution`)."""
