"""Depthwise convolutions, and those of groups of few channels, by tiles of rows or of pixels (`templates.tiled_sum`).

The window is written out, and the loops over a tile and along the window are skewed: what is loaded of the image serves
all places that look at it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.products.convolution import FEW_CHANNELS, Convolution
from graft.core.schedule.products.tiling import least_overlapping
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order, saved
from graft.core.schedule.strategies.convolutions.short_rows import scheduled_for_rows
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.schedule.templates.space import points
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum, tiled_sum
from graft.core.tensor_ir.anchors import VARIES, Window

SPARE_REGISTERS = 4
"""What a tile leaves besides its sums and the weights of one row of a window."""
PIXELS = 8
"""Pixels of a tile of a longer row, or of one whose length varies, at the most: code of more is slow to fetch."""
ROW = 16
"""Pixels of a row that one tile computes as a whole, if it has registers for that."""
MOST_TERMS = 800
"""Vectors of products of a tile that are written out; more would take long to compile."""
SMALL_WINDOW = 9
"""Terms of a window up to which tiles go along rows. Those of larger ones go down columns, for they share more rows.

Ten shapes take 0.83 of the time so, eleven with AVX2, where windows that move by several pixels stay, 0.88 (0.78 to
1.13; a Zen 5).
"""
MOST_OF_WINDOW = 64
"""Terms of a window that are written out where a plane has fewer results than a window terms, as of a gradient."""
MOST_OF_ROW = 25
"""Terms of a row of a window that are written out where the window is not."""


def _pixels(found: Convolution, target: Target) -> int:
    """Return the pixels of a tile: as many as fit the registers, where few of a row are computed twice."""
    most, width = max(1, target.machine.registers - SPARE_REGISTERS - found.windows.kernel[1]), found.shape[2]
    usual = max(1, PIXELS // found.windows.strides[1])
    return min(usual, most) if width == VARIES else least_overlapping(width, min(most, ROW if width <= ROW else usual))


def _of_vectors_of_channels(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise:
        return Reject("shape", "no depthwise convolution")
    is_last = found.window.reads_channels_last and found.window.stores_channels_last
    return True if is_last else Reject("layout", "channels are not last")


def _build_last(anchor: Anchor, target: Target) -> Scheduled | Reject:
    found, tiled = anchor.convolution, tiled_sum(anchor.kernel, target)
    if found is None or tiled is None or found.windows.rank != 2:
        return OTHER_FORM
    kind, kernel = found.anchor.value.type, anchor.kernel
    weights = found.weights(kernel, anchor.stages or (), kind.dtype, kind.dtype if kind.is_float else None)
    if weights is None or (kind.is_float and found.image(kind.dtype) is None):
        return OTHER_FORM
    tile = Tile(1, "x", _pixels(found, target), order=1, unroll=found.windows.kernel[1], skew=True)
    return tiled.scheduled(kernel, tile)


def _of_vectors_of_pixels(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.has_few_channels:
        return Reject("shape", f"no convolution of groups of fewer than {FEW_CHANNELS} output channels")
    pixels, terms, are_apart = found.shape[2], found.windows.kernel[-1], found.windows.dilations[-1] > 1
    if pixels != VARIES and pixels < target.machine.vector_bytes // 4 <= terms and not are_apart:
        return Reject("shape", f"rows of {pixels} pixels fill no vector, but rows of {terms} of a window do")
    return Reject("layout", "channels are last") if found.window.stores_channels_last else True


def _of_vectors_of_own_pixels(anchor: Anchor, target: Target) -> Answer:
    is_depthwise = anchor.convolution is not None and anchor.convolution.window.is_depthwise
    return _of_vectors_of_pixels(anchor, target) if is_depthwise else Reject("shape", "no depthwise convolution")


def _build_first(anchor: Anchor, target: Target) -> Scheduled | Reject:
    tiled = tiled_sum(anchor.kernel, target)
    return OTHER_FORM if tiled is None else scheduled_for_rows(tiled, anchor.kernel, _tile(tiled, target))


def _tile(tiled: TiledSum, target: Target) -> Tile:
    """Return the tile of fewest cycles by the model whose window is written out as far as that is not too much."""
    window, inner = math.prod(tiled.reduced.values()), list(tiled.reduced.values())[-1]
    unroll = inner if inner <= MOST_OF_ROW else 1
    moves = tiled.overlaps and tiled.skewed is not None and tiled.skewed[1] > 1
    order = 1 if window <= SMALL_WINDOW or moves else 0
    all_of_order = [tile for tile in points(tiled, target, [unroll]) if tile.order == order]
    skewed = [tile for tile in all_of_order if tile.skew and tile.vectors * tile.count * _written(tiled) <= MOST_TERMS]
    results = math.prod(tiled.axes.get(axis, 1) for axis in "zyx")  # 0 where it varies
    is_long = window > MOST_OF_WINDOW and 0 < results < window
    found = (not is_long and skewed) or [tile for tile in all_of_order if not tile.skew]
    return min(found, key=lambda tile: tiled.cycles(tile, target.machine))


def _written(tiled: TiledSum) -> int:
    """Return the terms of a window that skewed tiles write out: those along its sliding axis, and inside."""
    names = list(tiled.reduced)
    inside = names[names.index(f"k{tiled.skewed[0]}") :] if tiled.skewed else []
    return math.prod(tiled.reduced[name] for name in inside)


def _prefers(window: Window, target: Target) -> Preference | None:
    w = window.windows
    if not window.is_depthwise or w.rank != 2 or w.dilations != (1, 1):
        return None
    if w.is_open:
        return Preference("last", "last", gains=True)
    if min(window.groups, *w.source, *w.target) == 1:
        return None
    return Preference("last", "last", gains=not has_any_order(target), saves=saved(window, target))


LAST = Strategy("depthwise_nhwc", CONVOLUTIONS, _build_last, _of_vectors_of_channels, prefers=_prefers, varies=None)
"""Takes depthwise convolutions of neighbouring pixels with channels last; `direct_nhwc` takes the others."""
FIRST = Strategy("depthwise_nchw", CONVOLUTIONS, _build_first, _of_vectors_of_pixels)
VARYING_FIRST = replace(FIRST, name="varying_depthwise_nchw", applies=_of_vectors_of_own_pixels, varies=True)
