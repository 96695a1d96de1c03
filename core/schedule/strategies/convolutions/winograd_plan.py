"""How a convolution by Winograd's algorithm is cut into blocks of pieces: a model of cycles.

Transformed weights are larger than those of the window and are read for every block: few pixels are better summed
directly. Where extents are known, other strategies do so and costs decide; else a kernel has both bodies, and this
model, by piece, by pixel and once, decides at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import WinogradParameters
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import RegisterTile, adjusted_tile, lanes_of, ranked_tiles, split_evenly
from graft.core.schedule.strategies.convolutions.channel_order import DIRECT_CYCLES
from graft.core.schedule.strategies.convolutions.direct_nhwc import DirectSums, direct_sums
from graft.core.schedule.strategies.convolutions.winograd_transform import POINTS, WINDOW, Transform
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.types import FLOAT32
from graft.runtime.dtypes import numpy_dtype

PRODUCT_CYCLES = 1.03
"""Cycles per vector multiply-add."""
INPUT_CYCLES: dict[int, dict[int, int]] = {1: {2: 70, 4: 220}, 2: {2: 160}}
OUTPUT_CYCLES: dict[int, dict[int, int]] = {1: {2: 60, 4: 200}, 2: {2: 120}}
"""Cycles to transform as many pieces of one channel as a vector has lanes, by stride and pixels of a piece."""
USUAL_WORK = 4096 * 64 * 64
"""Pixels x channels x channels that a layer is taken to have: where channels double, networks halve their images."""
CACHE_SHARE = 5 / 8
"""What a block takes of the second-level cache."""
MIN_PARALLEL_BLOCKS = 8
"""In bfloat16 at least so many blocks are shared out among threads; of fewer, all threads work together on each."""
LEAST_PIECES, MOST_PIECES = 32, 96
"""Pieces of a block: the weights are read for each of them."""
MOST_ROWS = 16
"""Pieces of a register tile at the most, an even number: behind whole tiles there may be half a one."""
NEAR_SHARE = 0.7
"""Of the first-level cache: weights of a tile for one product that stay there for all pieces of a block."""
FETCHED_SHARE = 3 / 8
"""Of the bandwidth of the second-level cache, what there is for other weights."""
STALLED = 1.1
"""What a tile takes longer whose sums are no more than there are multiply-adds under way."""
DOT, IN_PAIRS = "dot2_bf16", (2,)
"""How bfloat16 is multiplied, and the sizes of pieces for which its rounding is fine enough."""


def width_of(target: Target) -> int:
    """Return how many channels are multiplied at a time."""
    return DOTS[DOT].width if target.precision == "bf16" else 1


@dataclass(frozen=True, slots=True)
class ImageInPieces:
    """A convolution of 3 x 3 windows taken apart; ``direct`` is what sums few pixels, where extents vary."""

    epilogue: Epilogue
    found: Convolution
    image: Buffer
    weights: Buffer
    direct: DirectSums | None = None

    def axis(self, number: int) -> int:
        """Return where the result has an axis of images: 0 is the batch, 1 the channels, 2 the rows, 3 the columns."""
        return self.found.window.result.index(number)

    @property
    def pixels(self) -> tuple[int, int, int]:
        """The images, and the rows and columns of each result."""
        count, rows, columns = (self.found.shape[self.axis(number)] for number in (0, 2, 3))
        return count, rows, columns

    def pieces(self, transform: Transform) -> int:
        """Return the pieces of all images: as many as a block has at the most, where extents vary."""
        count, down, across = self.pixels
        size = transform.outputs
        return MOST_PIECES if self.direct else count * -(-down // size) * -(-across // size)


@dataclass(frozen=True, slots=True)
class Plan:
    """A size of pieces, the register tile, the ``most`` pieces of a block; cycles by piece, by pixel directly, once.

    Sums of ``group`` output channels are kept at a time: those of one panel, where the images of a block stay in a
    cache for all panels. Blocks are ``apart`` if each is one thread's; else all threads share one after the other: of
    few pieces whose weights no cache has, so that each thread reads a part of them.
    """

    transform: Transform
    tile: RegisterTile
    inputs: int
    outputs: int
    """Those whose sums are computed: whole vectors, behind the last channel by weights of zero."""
    width: int
    """The channels that are multiplied at a time: one, or in bfloat16 a pair."""
    most: int
    group: int
    apart: bool
    by_piece: float
    by_pixel: float
    once: float

    @classmethod
    def of(
        cls, transform: Transform, own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None
    ) -> Plan:
        """Return the plan for a convolution, with the block and the tile that are wanted as far as they fit."""
        lanes, width, pieces = lanes_of("float32", target), width_of(target), max(2, own.pieces(transform))
        inputs, outputs = own.found.window.inputs, -(-own.found.window.outputs // lanes) * lanes
        is_far = 4 * transform.products * inputs * outputs > target.machine.cache(3).size
        is_shared = width == 1 and own.direct is None and target.threads > 1
        if is_shared and not (is_far and pieces < target.threads * LEAST_PIECES):
            pieces = max(2, -(-pieces // target.threads))
            is_shared = False
        own_cycles, tile = _tile(min(pieces, MOST_PIECES), inputs // width, outputs, target)
        busy = own_cycles / _tile(MOST_PIECES, inputs // width, outputs, target)[0]
        if wanted is not None:
            tile = adjusted_tile(tile, MOST_ROWS, outputs, wanted.rows, wanted.vectors)
            tile = replace(tile, rows=max(2, tile.rows // 2 * 2))
        group = outputs if width == 1 else tile.columns
        each = transform.products * 4 * (inputs // width + group)
        fitting = int(CACHE_SHARE * target.machine.working_set(2)) // each
        most = min(max(fitting, LEAST_PIECES), MOST_PIECES) // tile.rows * tile.rows
        if wanted is not None and wanted.block is not None:
            most = -(-min(wanted.block, pieces) // tile.rows) * tile.rows
        elif own.direct is None:
            most = -(-pieces // -(-pieces // most))
            tile = replace(tile, rows=-(-split_evenly(most, tile.rows).sizes[0][1] // 2) * 2)
            most = -(-most // tile.rows) * tile.rows
        apart = not is_shared if width == 1 else own.direct is not None or pieces > (MIN_PARALLEL_BLOCKS - 1) * most
        weights = inputs * outputs // width
        into, out = (cycles[transform.stride][transform.outputs] for cycles in (INPUT_CYCLES, OUTPUT_CYCLES))
        moved = -(-inputs // lanes) * lanes * into + outputs * out
        by_piece = (transform.products * weights * PRODUCT_CYCLES * busy + moved) / lanes
        by_pixel = WINDOW**2 * weights * DIRECT_CYCLES / lanes
        once = 4 * weights * (transform.products - WINDOW**2) / target.machine.far.bandwidth
        return cls(transform, tile, inputs, outputs, width, most, group, apart, by_piece, by_pixel, once)

    @property
    def pays(self) -> bool:
        """Whether it is faster for a large image."""
        return self.by_piece < self.by_pixel * self.transform.outputs**2

    @property
    def least(self) -> int:
        """The pixels from which on it is faster, where pieces are whole."""
        return ceil(self.once / (self.by_pixel - self.by_piece / self.transform.outputs**2))

    @property
    def depth(self) -> int:
        """The terms of a sum."""
        return self.inputs // self.width

    def cycles(self, pixels: int) -> float:
        """Return the cycles of so many pixels."""
        return self.cycles_of(-(-pixels // self.transform.outputs**2))

    def cycles_of(self, pieces: int) -> float:
        """Return the cycles of so many pieces."""
        return self.once + self.by_piece * pieces

    def packed(self, weights: np.ndarray) -> np.ndarray:
        """Return the transformed weights: for each group and product, panels of channels, each ``[terms, width]``."""
        weights = np.pad(weights, ((0, self.outputs - len(weights)), *[(0, 0)] * 3))
        return np.concatenate([self._packed(weights[n : n + self.group]) for n in range(0, self.outputs, self.group)])

    def _packed(self, group: np.ndarray) -> np.ndarray:
        bounds = [*range(0, len(group), self.tile.columns), len(group)]
        whole = self.transform.packed_weights(group, bounds)
        if self.width == 1:
            return whole
        small = whole.astype(numpy_dtype("bfloat16")).view(np.uint16).astype(np.uint32)
        pairs = small.reshape(-1, self.depth, self.width, len(group))  # a group is one panel
        return (pairs[:, :, 0] | pairs[:, :, 1] << 16).view(np.int32).reshape(-1)


def has_few_channels(window: Window, target: Target) -> bool:
    """Whether channels come first and are so few that it does not pay to transpose squares of pixels and channels."""
    is_first = window.reads_channels_first and window.stores_channels_first
    return is_first and min(window.inputs, window.outputs) < lanes_of("float32", target) ** 2 // 4


def _tile(pieces: int, terms: int, outputs: int, target: Target) -> tuple[float, RegisterTile]:
    """Return the tile of an even number of rows that takes the fewest cycles for a term of each of so many pieces.

    Behind whole tiles there may be half a one. A tile of all registers stays in them only inside of a loop over panels.
    """
    near, rate = NEAR_SHARE * target.machine.working_set(1), FETCHED_SHARE * target.machine.cache(2).bandwidth
    found: list[tuple[float, RegisterTile]] = []
    for cycles, tile in ranked_tiles(pieces, outputs, "float32", target, -1):
        fills = (tile.rows + 1) * tile.vectors + 1 == target.machine.registers
        if tile.rows % 2 or tile.rows > MOST_ROWS or (fills and tile.columns >= outputs):
            continue
        rows = -(-pieces // (tile.rows // 2)) * tile.rows // 2
        fetched = 4 * outputs / rate * rows / tile.rows if 4 * terms * tile.columns > near else 0
        if tile.rows * tile.vectors <= target.machine.costs.fused * target.machine.costs.latency:
            cycles *= STALLED
        found.append((max(cycles * rows / pieces, fetched) / pieces, tile))
    return min(found, key=lambda row: row[0])


def taken_apart(kernel: Kernel, stages: Sequence[Stage], target: Target) -> ImageInPieces | None:
    """Take a convolution apart; None unless its factors are elements of an image and of constant weights."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor, 4)
    if epilogue is None or found is None or epilogue.anchor.value.type != FLOAT32:
        return None
    image, weights = found.image("float32"), found.weights(kernel, stages, "float32", "float32")
    varies = VARIES in found.shape
    direct = direct_sums(kernel, stages, target) if varies else None
    if image is None or weights is None or (varies and direct is None):
        return None
    return ImageInPieces(epilogue, found, image, weights, direct)


def plans(own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None) -> list[Plan]:
    """Return a plan for each size of pieces, or the one that is wanted."""
    stride = own.found.windows.strides[0]
    sizes = list(POINTS[stride] if width_of(target) == 1 else IN_PAIRS)
    if wanted is not None:
        sizes = [min(sizes, key=lambda known: abs(known - wanted.pieces))]
    return [Plan.of(Transform(size, stride), own, target, wanted) for size in sizes]


def fastest(own: ImageInPieces, target: Target) -> tuple[float, Plan]:
    """Return the plan that takes the fewest cycles for images of known extents, and these cycles."""
    cycles = [(one.cycles_of(own.pieces(one.transform)), one) for one in plans(own, target)]
    return min(cycles, key=lambda row: row[0])


def chosen_plan(own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None) -> Plan | None:
    """Return the plan that is wanted, or fastest for these images, or for usual ones; None if none pays."""
    if wanted is not None and own.direct is None:
        return plans(own, target, wanted)[0]
    if own.direct is None and width_of(target) == 1:
        cycles, best = fastest(own, target)
        return best if cycles < best.by_pixel * prod(own.pixels) else None
    window = own.found.window
    usual = USUAL_WORK // (window.inputs * window.outputs)
    paying = (one for one in plans(own, target) if one.pays)
    return min(paying, key=lambda one: one.cycles(usual), default=None)
