"""Convolutions in NCHW whose windows are read where they lie, by register tiles of channels and of pixels of a row.

A product of weights and patches (`direct_convolution`) copies the patches first, which pays where many channels use
them; here they are not copied, but vectors end where a row does (`graft.core.schedule.templates.tiled_sum`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.convolutions.channel_order import PATCHED, direct_cycles
from graft.core.schedule.strategies.convolutions.short_rows import scheduled_for_rows, tile_for_rows
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.schedule.templates.space import first
from graft.core.schedule.templates.tiled_sum import PAIRS, TiledSum, tiled_sum
from graft.core.tensor_ir.anchors import VARIES, Window

TILE_CYCLES, PRODUCT_CYCLES = 1.33, 1.0
"""What the model's cycles of a tile and a multiply-add of a product take, where a copied vector takes `PATCHED`.

Fitted to 52 random convolutions of one to three spatial axes, windows of 1 to 7 and 64-byte vectors: the 32 that it
gives tiles take 0.84 of a product's time, and none more than 1.01; of the others 9 would have been faster, too. Of 26
in groups, which it was not fitted to, it gives 18 tiles, which take 0.59 to 0.89 of the time.
"""
NEARLY = 0.99
"""Of a product's cycles, what tiles take at the most where they are chosen."""
OVERLAPPING_CYCLES, OVERLAPPING_COPY_CYCLES = 1.55, 3.4
"""The same of a tile on a machine without masks, whose last tiles of a row overlap, and of copies of two axes and more.

Fitted to 22 convolutions of odd channels, windows and dilations and 32-byte vectors.
"""
APART_CYCLES, APART_COPY_CYCLES = 1.1, 8.4
"""What tiles take more whose windows move by several pixels along a row, and a copied vector of their patches.

Of 43 such convolutions, 3 to 512 channels, it gives 29 tiles with 64-byte vectors, which take 0.57 to 1.00 of a
product's time, and 5 with 32-byte ones, which take 0.76 to 0.90 (Zen 5, one thread).
"""
LEAST_FILLED = 0.8
"""The part of their vectors that channels of a volume fill at least where they are on the lanes: of 12 to 24 channels
tiles of rows take 0.3 to 0.9 of the time, but 1.1 to 1.3 in rows of 6 pixels; of 16, 32 and 48 they take 0.5 to 1.9."""
WEIGHTS_SHARE = 0.5
"""What weights may be of the second-level cache, so that tiles read them again, where windows move by several pixels:
others took up to 1.6 of the time."""


def _tiled(anchor: Anchor, target: Target, *, any_window: bool = False) -> TiledSum | Reject:
    found = anchor.convolution
    if anchor.parameters is not None:
        return Reject("user-excluded", "its tiles are tuned as schedules, and other parameters are given")
    if found is None or found.window.stores_channels_last or not found.window.reads_channels_first:
        return Reject("layout", "channels do not come first")
    if target.precision != "float32":
        return Reject("dtype", "products are rounded, which pays where patches are copied")
    if not any_window and (found.has_few_channels or found.window.is_pointwise):
        return Reject("shape", "its windows are single pixels, or its groups have few channels")
    if not any_window and not _are_known(found, anchor):
        return Reject("shape", "the weights are no constant")
    if not (target.machine.masks or target.machine.masked_loads):
        return Reject("unavailable", "the machine reads no vector in part, as at the sides of a padded image")
    tiled = tiled_sum(anchor.kernel, target)
    if tiled is None:
        return Reject("layout", "vectors of a row cannot be read and stored at once")
    if tiled.overlaps and 0 < tiled.axes[tiled.last] < tiled.lanes:
        return Reject("size", "a row has fewer pixels than a vector")
    return tiled


def _applies(anchor: Anchor, target: Target) -> Answer:
    tiled, found = _tiled(anchor, target), anchor.convolution
    if isinstance(tiled, Reject) or found is None:
        return tiled if isinstance(tiled, Reject) else OTHER_FORM
    if tiled.apart > 1 and not _are_weights_near(found.window, target):
        return Reject("cost", "windows move by several pixels, and weights do not stay in the second-level cache")
    cycles, direct = _cycles(tiled, target), _product_cycles(tiled, found, target)
    if cycles >= direct:
        return Reject("cost", f"{cycles:,.0f} cycles, where a product of copied patches takes {direct:,.0f}")
    return True


def _cycles(tiled: TiledSum, target: Target) -> float:
    factor = TILE_CYCLES if target.machine.masks else OVERLAPPING_CYCLES
    factor *= APART_CYCLES if tiled.apart > 1 else 1
    return factor * tiled.cycles(first(tiled, target)[0], target.machine)


def _product_cycles(tiled: TiledSum, found: Convolution, target: Target) -> float:
    """Return the cycles of a product of copied patches."""
    window = found.window
    patches = found.shape[0] * window.groups * math.prod(window.windows.target) * math.prod(window.extents)
    is_flat = target.machine.masks or found.windows.rank == 1
    copies = APART_COPY_CYCLES if tiled.apart > 1 else PATCHED if is_flat else OVERLAPPING_COPY_CYCLES
    return patches / tiled.lanes * (window.outputs * PRODUCT_CYCLES + copies)


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles of one image: fewer than the product's, or the strategy does not apply."""
    tiled, found = _tiled(anchor, target), anchor.convolution
    if isinstance(tiled, Reject) or found is None:
        return None
    return min(_cycles(tiled, target) / found.shape[0], NEARLY * direct_cycles(found.window, target))


def _are_few(window: Window, target: Target) -> bool:
    """Whether so few channels come out, of a group where there are such, that vectors of them would be half empty."""
    return window.outputs <= lanes_of("float32", target) // 2 and not window.is_depthwise


def _prefers_varying(window: Window, target: Target) -> Preference | None:
    """Channels first where few come out of windows, of a group or of all, of pixels that are at most every second one.

    What windows of one pixel gain, moving the image costs.
    """
    w = window.windows
    is_wide = w.rank == 2 and w.strides[-1] <= PAIRS and (window.groups > 1 or math.prod(w.kernel) > 1)
    return Preference(gains=True) if w.is_open and is_wide and _are_few(window, target) else None


def _applies_to_varying(anchor: Anchor, target: Target) -> Answer:
    """Whether a row of an open image is long enough for vectors, and vectors of channels would cost more.

    Those would be empty for the most part where few channels come out; where few come in, as in a picture, a copy with
    channels last has no vectors to read. Where images have one axis, what they cost is
    that both image and result are transposed, which products by weights of a cache's size hide no more; volumes are
    transposed, too, but have many products for each element, so that it counts whether channels fill vectors.
    """
    found, lanes = anchor.convolution, lanes_of("float32", target)
    if found is None or (_are_known(found, anchor) and not _suits(found, target)):
        return Reject("shape", "no convolution of few channels, nor one of such axes and weights that stay in a cache")
    if found.shape[-1] != VARIES and found.shape[-1] < lanes:
        return Reject("size", "a row has few pixels")
    tiled = _tiled(replace(anchor, parameters=None), replace(target, precision="float32"), any_window=True)
    return tiled if isinstance(tiled, Reject) else True


def _are_known(found: Convolution, anchor: Anchor) -> bool:
    """Whether the weights are a constant, which is laid out for tiles."""
    return found.weights(anchor.kernel, anchor.stages or (), found.weight.type.dtype) is not None


def _suits(found: Convolution, target: Target) -> bool:
    return _are_few(found.window, target) or _are_near(found, target) or found.window.is_first


def _are_near(found: Convolution, target: Target) -> bool:
    """Whether all weights stay in the second-level cache for each tile of a row.

    Of images with one axis, and of volumes whose channels leave much of vectors empty.
    """
    rank, lanes, channels = found.windows.rank, lanes_of("float32", target), found.window.outputs
    is_less = rank == 1 or (rank == 3 and channels < LEAST_FILLED * -(-channels // lanes) * lanes)
    return is_less and _are_weights_near(found.window, target)


def _are_weights_near(window: Window, target: Target) -> bool:
    """Whether all weights stay in the second-level cache, beside more pixels where windows move by several."""
    weights = 4 * window.groups * window.outputs * math.prod(window.extents)
    share = WEIGHTS_SHARE if window.windows.strides[-1] > 1 else 1
    return weights <= share * target.machine.working_set(2)


def _build_varying(anchor: Anchor, target: Target) -> Scheduled | Reject:
    tiled = tiled_sum(anchor.kernel, target)
    return OTHER_FORM if tiled is None else scheduled_for_rows(tiled, anchor.kernel, tile_for_rows(tiled, target))


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    tiled = _tiled(anchor, target)
    return tiled if isinstance(tiled, Reject) else tiled.scheduled(anchor.kernel, first(tiled, target)[0])


STRATEGY = Strategy("register_tiles", CONVOLUTIONS, _build, _applies, cost=_cost)
VARYING = replace(
    STRATEGY,
    name="varying_register_tiles",
    build=_build_varying,
    applies=_applies_to_varying,
    cost=None,
    prefers=_prefers_varying,
    varies=True,
)
