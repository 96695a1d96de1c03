"""Convolutions with channels last, of images of any extents, known or not: register tiles of pixels x output channels.

Vectors are of output channels, which are numbers; pixels of all images are counted through, so that neither a narrow
image nor a small batch leaves a tile half empty. Where windows leave the image, it is copied into one with a border of
zeros first, so that nothing is masked in the loops that count; a copy is small beside the products that read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import itemgetter

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout, flatten
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.parameters import ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.image_elements import ImageElements, elements_of, rounds
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import (
    Ranked,
    RegisterTile,
    adjusted_tile,
    arriving,
    lanes_of,
    ranked_tiles,
    with_dot,
)
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order, saved
from graft.core.schedule.strategies.strategy import (
    CONVOLUTIONS,
    OTHER_FORM,
    Anchor,
    Answer,
    Channels,
    Preference,
    Strategy,
)
from graft.core.schedule.templates.pixel_tiles import PixelTiles
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.types import element_bits

USUAL = 128
"""The pixels that tiles are chosen for."""
NEAR = 1.005
"""Tiles that take so much of the fewest cycles are as good: one that leaves no channels over needs half the code."""
MOST_PIXELS = 8
"""Pixels of a tile at the most: where each begins stays in a register for addresses."""
DEPTHWISE_PIXELS = 8
"""Pixels of a tile of a depthwise convolution."""
LEAST_EMPTY = 1 / 13
"""Vectors are of channels, wherever these are, if so much of vectors of pixels is empty.

Beside vectors of pixels, the ten of 20 odd convolutions without groups that this takes need 0.92 of the time with
64-byte vectors, the eleven with 32-byte ones 0.86 (a Zen 5).
"""
NEAR_SHARE = 0.5
"""Weights that fill no more than this part of the first-level cache are read whole for each tile of pixels."""
BLOCK_SHARE = 0.5
"""Pixels are taken in blocks whose inputs fill this part of the second-level cache, where they stay for all panels."""
LEAST_TILES = 4
"""The tiles of a block at the least, but where threads would have none."""
FETCHED_SHARE = 2 / 3
"""What weights come with that are not fetched ahead, as a part of the bandwidth of memory."""
MOVED = 3
"""Cycles to round an element of an image and to put it where channels are last."""
TASKS = 4
"""Blocks that there should be for several threads."""


def schedule_images(
    kernel: Kernel, stages: Sequence[ir.Stage], target: Target, parameters: ContractionParameters | None = None
) -> Scheduled | None:
    """Return a kernel around a convolution by constant weights; None for any other."""
    tiles = direct_sums(kernel, stages, target, parameters)
    if tiles is None:
        return None
    weights, image, source = tiles.elements.weights, tiles.elements.image, tiles.elements.source
    dot, knobs = tiles.elements.multiply.dot, {"pixels": tiles.tile.rows, "vectors": tiles.tile.vectors}

    def function() -> ir.Function:
        layout = Layout(Simplifier())
        given = {weights: tiles.panels, **({} if source is None else {source: image})}
        return layout.function(kernel.function(direct_loops(tiles, target, layout), given))

    return Scheduled(function, {weights: tiles.packed()}, knobs={**knobs, "dot": dot} if dot else dict(knobs))


def direct_sums(
    kernel: Kernel, stages: Sequence[ir.Stage], target: Target, parameters: ContractionParameters | None = None
) -> PixelTiles | None:
    """Take apart a convolution by constant weights; None if it is none."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor)
    if epilogue is None or found is None or epilogue.branches or epilogue.picks:
        return None
    elements = elements_of(stages, found, kernel, target)
    if elements is None:
        return None
    kind, window = epilogue.anchor.value.type.dtype, found.window
    columns = window.groups if window.is_depthwise else window.outputs
    shaped, busy = with_dot(elements.multiply.dot, target)
    tiled = [row for row in ranked_tiles(USUAL, columns, kind, shaped, busy) if row[1].rows <= MOST_PIXELS]
    ranked = [(_cycles(row, columns, elements, found, target), row[1]) for row in tiled]
    good = [tile for cycles, tile in ranked if cycles <= NEAR * min(ranked, key=itemgetter(0))[0]]
    tile = min(good, key=lambda tile: -(-columns // tile.lanes) % tile.vectors > 0)
    if window.is_depthwise:
        tile = RegisterTile(min(DEPTHWISE_PIXELS, tile.rows * tile.vectors), 1, tile.lanes)
    elif parameters is not None:
        tile = adjusted_tile(tile, MOST_PIXELS, columns, parameters.rows, parameters.vectors)
    return PixelTiles.of(epilogue, found, elements, tile)


def _cycles(ranked: Ranked, columns: int, elements: ImageElements, found: Convolution, target: Target) -> float:
    """Return the cycles of a term of `USUAL` pixels in tiles, of which the last ends where all pixels end."""
    (cycles, tile), machine = ranked, target.machine
    weights = elements.contents.nbytes // len(elements.contents)  # of a channel
    if machine.caches and weights * tile.columns > machine.working_set(1):
        line = -(-columns // tile.lanes) * machine.vector_bytes
        cycles = arriving(cycles, line * USUAL / tile.rows, machine.cache(2))
    pixels = prod(extent for axis, extent in zip(found.window.result, found.shape, strict=True) if axis != 1)
    return cycles if VARIES in found.shape else cycles * -(-pixels // tile.rows) * tile.rows / pixels


def direct_loops(tiles: PixelTiles, target: Target, layout: Layout) -> ir.Statement:
    """Return the copy of the image, if it needs one, and the loops over tiles of pixels and panels of weights."""
    elements, window = tiles.elements, tiles.found.window
    is_there = window.reads_channels_last and window.groups * window.inputs == _channels(tiles)
    if (is_there or elements.source is not None) and not elements.is_copied and not window.windows.leaves:
        return tiles.loops(elements.image, window.windows.begins, _block(tiles, target))
    padded = _padded(tiles)
    flat = flatten(_copy(tiles, padded), layout)
    copy = finished(nest(flat, layout.simplifier, target.machine, True))
    body = tiles.loops(padded, [0] * window.windows.rank, _block(tiles, target))
    return ir.Allocate(layout.flat(padded), ir.Block((copy, body)))


def _channels(tiles: PixelTiles) -> int:
    """The channels of the image, with those that fill the last group of what is multiplied at a time."""
    width, window = tiles.elements.width, tiles.found.window
    return -(-window.groups * window.inputs // width) * width


def _block(tiles: PixelTiles, target: Target) -> int:
    """Return how many tiles of pixels a block has, for which panels of weights are gone through; 0 for no blocks.

    There are none where all weights stay in the nearest cache; nor where they stay in the second, if groups have one
    panel each, or if threads share tiles whose number varies.
    """
    machine, rows, pixels = target.machine, tiles.tile.rows, tiles.pixels
    is_shared = target.threads != 1 and not isinstance(pixels, ir.Constant)
    level = 2 if is_shared or (tiles.groups > 1 and tiles.outputs <= tiles.tile.columns) else 1
    if tiles.found.window.is_depthwise or tiles.bytes <= NEAR_SHARE * machine.working_set(level):
        return 0
    each = _channels(tiles) * prod(tiles.found.windows.strides) * element_bits(tiles.elements.dtype) // 8
    most = max(LEAST_TILES, int(BLOCK_SHARE * machine.working_set(2)) // (each * rows))
    shared = -(-int(pixels.value) // (TASKS * rows)) if isinstance(pixels, ir.Constant) else LEAST_TILES
    return most if target.threads == 1 else max(min(shared, most), 1)


def _padded(tiles: PixelTiles) -> ir.Buffer:
    """Return the image that windows read: channels last, as much of each axis as they see."""
    w = tiles.found.windows
    shape = [tiles.extents[0]]
    for d in range(w.rank):
        reach = (w.kernel[d] - 1) * w.dilations[d] + 1
        last = b.multiply(b.subtract(tiles.extents[2 + d], 1), w.strides[d])
        shape.append(b.maximum(b.add(last, reach), 0))
    name, channels = f"{tiles.elements.image.name}_padded", b.index(_channels(tiles))
    return ir.Buffer(name, tiles.elements.dtype, (*shape, channels), None, "scratch", 64)


def _copy(tiles: PixelTiles, padded: ir.Buffer) -> ir.Stage:
    elements, window = tiles.elements, tiles.found.window
    axes = b.variables(len(padded.shape), "p")
    w, extents = window.windows, dict(zip(window.layout, elements.image.shape, strict=True))
    places: dict[int, ir.Expression] = {0: axes[0], 1: axes[-1]}
    channels = window.groups * window.inputs
    conditions: list[ir.Expression] = [] if _channels(tiles) == channels else [b.less(axes[-1], channels)]
    for d in range(w.rank):
        place = places[2 + d] = b.subtract(axes[1 + d], w.begins[d])
        conditions += [b.greater_equal(place, 0)] if w.begins[d] > 0 else []
        conditions += [b.less(place, extents[2 + d])] if w.passes(d) else []
    raw = b.masked_load(elements.image, [places[number] for number in window.layout], conditions)
    element, mask = elements.element(raw), b.all_of(conditions)
    if mask is not None and elements.border is not None:
        element = b.select(mask, element, elements.border)
    return ir.Stage(padded, axes, element)


def _prefers(window: Window, target: Target) -> Preference | None:
    """Channels last, but for the image of a network's first convolution, which is copied anyway.

    Of known extents only where that saves something, or pairs of channels are multiplied; not where few channels leave,
    of a group or of all.
    """
    image: Channels = "first" if window.is_first else "last"
    if window.windows.rank != 2:
        return None
    if window.windows.is_open or (target.precision == "bf16" and window.groups == 1 and not window.is_first):
        return Preference(image, "last", gains=True)
    if not has_any_order(target) or window.groups > 1 or window.outputs <= lanes_of("float32", target) // 2:
        return None
    return Preference(image, "last", saves=saved(window, target))


def _applies(anchor: Anchor, target: Target) -> Answer:
    """Take any convolution of extents that vary, and those with channels last of others."""
    found = anchor.convolution
    if anchor.varies or (found is not None and found.window.stores_channels_last):
        return True
    return Reject("layout", "extents are known, and channels do not leave last")


def _applies_first(anchor: Anchor, target: Target) -> Answer:
    """Take windows of few pixels, which would leave much of the last vector of pixels empty."""
    found, wanted = anchor.convolution, of_family(anchor.parameters, ContractionParameters)
    lanes = lanes_of("float32", target)
    if found is None or found.window.is_pointwise or found.window.outputs % lanes or lanes == 1:
        return Reject("shape", "no convolution of windows whose channels fill vectors")
    if wanted is not None and wanted.columns is not None:
        return True if wanted.columns == "channels" else Reject("user-excluded", "vectors of pixels are wanted")
    if found.window.groups > 1:
        return Reject("cost", "an image is copied, of which channels of one group read little")
    if found.anchor.value.type.is_integer:
        elements = elements_of(anchor.stages or (), found, anchor.kernel, target)
        if elements is None or not elements.multiply.dot:
            return Reject("shape", "weights less a point that is no constant fit no dot product here")
    pixels = prod(found.windows.target)
    return True if -pixels % lanes >= LEAST_EMPTY * pixels else Reject("cost", "pixels fill vectors")


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return None if anchor.convolution is None else rounds(anchor.convolution, target)


def pair_cycles(found: Convolution, pixels: int, weights: int, target: Target) -> float:
    """Return the cycles of one image in bfloat16: so many ``weights`` of each channel, all times so many ``pixels``."""
    window = found.window
    products = window.outputs * 2 * -(-window.inputs // 2) * weights
    rate = FETCHED_SHARE * target.machine.far.bandwidth
    return products * pixels / lanes_of("float32", target) / 2 + 2 * products / rate


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles of one image in bfloat16, if need be of copying it; other types are not compared."""
    found = anchor.convolution
    if found is None or anchor.varies or not rounds(found, target):
        return None
    moved = 0 if found.window.reads_channels_last else MOVED * prod(found.windows.source) * found.window.inputs
    return pair_cycles(found, prod(found.windows.target), prod(found.windows.kernel), target) + moved


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    parameters = of_family(anchor.parameters, ContractionParameters)
    return (anchor.stages and schedule_images(anchor.kernel, anchor.stages, target, parameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Register tiles of pixels and channels."""
    direct = None if anchor.stages is None or stage > 0 else direct_sums(anchor.kernel, anchor.stages, target)
    if direct is None or direct.found.window.is_depthwise:
        return []
    tiles = best_tiles(MOST_PIXELS, direct.found.window.outputs, direct.epilogue.anchor.value.type.dtype, target)
    return [ContractionParameters(rows=tile.rows, vectors=tile.vectors) for tile in tiles]


STRATEGY = Strategy(
    "direct_nhwc",
    CONVOLUTIONS,
    _build,
    _applies,
    _candidates,
    cost=_cost,
    prefers=_prefers,
    rounds=_rounds,
    varies=None,
)
"""Takes convolutions by constant weights in any layout; where channels are not last, copies or scatters."""
FIRST = Strategy("direct_nchw", CONVOLUTIONS, _build, _applies_first, _candidates, rounds=_rounds)
"""Takes those of few pixels whose channels come first, before these are products of patches."""
