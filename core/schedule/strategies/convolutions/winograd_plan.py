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
from graft.core.schedule.parameters import Columns, WinogradParameters
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import (
    RegisterTile,
    adjusted_tile,
    arriving,
    choose_tile,
    lanes_of,
    ranked_tiles,
    split_evenly,
)
from graft.core.schedule.strategies.convolutions.channel_order import DIRECT_CYCLES, PATCHED
from graft.core.schedule.strategies.convolutions.direct_nhwc import direct_sums
from graft.core.schedule.strategies.convolutions.winograd_transform import POINTS, WINDOW, Transform
from graft.core.schedule.templates.pixel_tiles import PixelTiles
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.types import FLOAT32
from graft.runtime.dtypes import numpy_dtype

PRODUCT_CYCLES = 1.03
"""Cycles per vector multiply-add."""
INPUT_CYCLES: dict[int, dict[int, int]] = {1: {2: 70, 4: 220}, 2: {2: 160}}
OUTPUT_CYCLES: dict[int, dict[int, int]] = {1: {2: 60, 4: 200}, 2: {2: 120}}
"""Cycles to transform as many pieces of one channel as a vector has lanes, by stride and pixels of a piece."""
SQUARED = {16: 7.0}
"""Cycles to transpose a vector of pixels, in a square of as many channels, where channels come first, by lanes.

Of shorter vectors it was not found to matter (67 convolutions with vectors of 16 lanes, 37 with such of 8; Zen 5).
"""
HEAVY = {16: 60.0}
"""Cycles that a vector of a heavy epilogue takes longer behind squares, where blocks may cut rows."""
LOST = 0.5
"""What tiles of few output channels and vectors of pieces take longer, as a part of what the model of tiles says."""
USUAL_WORK = 4096 * 64 * 64
"""Pixels x channels x channels that a layer is taken to have: where channels double, networks halve their images."""
CACHE_SHARE = 5 / 8
"""What a block takes of the second-level cache."""
TASKS = 4
"""Blocks that there should be for several threads, where it is not known how many there are."""
MIN_PARALLEL_BLOCKS = 8
"""In bfloat16 at least so many blocks are shared out among threads; of fewer, all threads work together on each."""
LEAST_PIECES, MOST_PIECES = 32, 96
"""Pieces of a block: the weights are read for each of them."""
OWN_SHARE = 0.25
"""Weights that are read again after so much of the third-level cache are still there."""
UNROLL = 4
"""Channels that one pass of the innermost loop adds where vectors are of pieces: weights are fetched by whole lines."""
MOST_ROWS = 16
"""Pieces of a register tile at the most, an even number: behind whole tiles there may be half a one."""
NEAR_SHARE = 0.7
"""Of the first-level cache: weights of a tile for one product that stay there for all pieces of a block."""
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
    direct: PixelTiles | None = None

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
        return MOST_PIECES if self.direct else prod(self.grid(transform))

    def grid(self, transform: Transform) -> tuple[int, int, int]:
        """Return the images, and the pieces down and across each."""
        count, rows, columns = self.pixels
        return count, -(-rows // transform.outputs), -(-columns // transform.outputs)


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
    grid: tuple[int, int, int]
    """The images, and the pieces down and across each, where vectors are of pieces: blocks are whole rows."""
    columns: Columns
    """What vectors are of: pieces of pixels, or channels."""
    by_piece: float
    by_pixel: float
    once: float
    waits: float = 1.0
    """What sizes of pieces take longer than others because blocks are larger for one thread than for the next."""

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
        weights = inputs * outputs // width
        arrives = _arrival(transform.products * weights, outputs, target)
        own_cycles, tile = _tile(min(pieces, MOST_PIECES), inputs // width, outputs, target, arrives)
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
            tile = replace(tile, rows=_even(split_evenly(most, tile.rows).sizes[0][1]))
            most = -(-most // tile.rows) * tile.rows
        apart = not is_shared if width == 1 else own.direct is not None or pieces > (MIN_PARALLEL_BLOCKS - 1) * most
        into, out = (float(cycles[transform.stride][transform.outputs]) for cycles in (INPUT_CYCLES, OUTPUT_CYCLES))
        window, squared = own.found.window, 0.0 if own.direct else SQUARED.get(lanes, 0.0)
        into += squared * transform.inputs * transform.step * window.reads_channels_first
        is_slow = squared and own.epilogue.is_heavy and own.pieces(transform) > most
        squared += HEAVY.get(lanes, 0.0) if is_slow else 0.0
        out += squared * transform.outputs**2 * window.stores_channels_first
        moved = -(-inputs // lanes) * lanes * into + outputs * out
        by_piece = (transform.products * weights * PRODUCT_CYCLES * busy + moved) / lanes
        rounds = -(-own.pieces(transform) // (max(1, target.threads) * most)) * max(1, target.threads)
        half = max(1, tile.rows // 2)
        cut = rounds * -(-own.pieces(transform) // (rounds * half)) * half
        waits = cut / own.pieces(transform) if apart and target.threads > 1 else 1.0
        copied = PATCHED * inputs * (window.reads_channels_first and own.direct is None)
        by_pixel = WINDOW**2 * (weights * DIRECT_CYCLES + copied) / lanes
        once = 4 * weights * (transform.products - WINDOW**2) / target.machine.far.bandwidth
        return cls(
            transform,
            tile,
            inputs,
            outputs,
            width,
            most,
            group,
            apart,
            (0, 0, 0),
            "channels",
            by_piece,
            by_pixel,
            once,
            waits,
        )

    @classmethod
    def of_pieces(
        cls, transform: Transform, own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None
    ) -> Plan:
        """Return the fastest plan with pieces in vectors, whose blocks are whole rows of them."""
        _, down, across = own.grid(transform)
        rows = {-(-down // blocks) for blocks in range(1, down + 1)}
        if wanted is not None and wanted.block is not None:
            rows = {min(-(-wanted.block // across), down)}
        lanes, outputs = lanes_of("float32", target), own.found.window.outputs
        sizes = (across * one for one in sorted(rows))
        most = min(sizes, key=lambda most: cls._in_blocks(transform, own, target, most).by_piece_of_all)
        vectors = -(-most // lanes)
        cycles, _ = ranked_tiles(outputs, vectors * lanes, "float32", target)[0]
        full, _ = ranked_tiles(MOST_PIECES, MOST_PIECES * lanes, "float32", target)[0]
        busy = 1 + LOST * (cycles / outputs / vectors * MOST_PIECES**2 / full - 1)
        return cls._in_blocks(transform, own, target, most, busy, wanted)

    @classmethod
    def _in_blocks(
        cls,
        transform: Transform,
        own: ImageInPieces,
        target: Target,
        most: int,
        busy: float = 1.0,
        wanted: WinogradParameters | None = None,
    ) -> Plan:
        """Return the plan with pieces in vectors and so many in a block; products take ``busy`` times the least.

        What the third-level cache has comes fetched ahead; what goes to and fro, or comes from memory, does not.
        """
        window, machine, lanes = own.found.window, target.machine, lanes_of("float32", target)
        inputs, outputs, grid, vectors = window.inputs, window.outputs, own.grid(transform), -(-most // lanes)
        pieces, columns = prod(grid), grid[2]
        tile = replace(choose_tile(outputs, vectors * lanes, "float32", target), unroll=UNROLL)
        if wanted is not None:
            tile = adjusted_tile(tile, outputs, vectors * lanes, wanted.rows, wanted.vectors, UNROLL)
        into, out = (float(cycles[transform.stride][transform.outputs]) for cycles in (INPUT_CYCLES, OUTPUT_CYCLES))
        weights, blocks = transform.products * inputs * outputs, -(-pieces // most)
        size = 4 * transform.products * (inputs + outputs) * vectors * lanes
        near, shared, far = machine.working_set(2), machine.cache(3).bandwidth, machine.far.bandwidth
        rate = shared if 4 * weights + size <= OWN_SHARE * machine.working_set(3) else far
        into *= _filled(columns * transform.step, WINDOW - transform.stride, lanes)
        out *= _filled(own.pixels[2], 0, lanes)
        each = (
            vectors * (weights * PRODUCT_CYCLES * busy + inputs * into + outputs * out) + 2 * max(0, size - near) / far
        )
        again = 0 if 4 * weights + size <= near else 4 * weights / rate
        tasks = target.threads or TASKS
        waits = -(-blocks // tasks) * tasks / blocks
        by_piece = (blocks * each + (blocks - 1) * again) / pieces
        by_pixel = WINDOW**2 * inputs * (outputs * DIRECT_CYCLES + PATCHED) / lanes
        once = 4 * (weights - WINDOW**2 * inputs * outputs) / far
        return cls(
            transform, tile, inputs, outputs, 1, most, outputs, True, grid, "pixels", by_piece, by_pixel, once, waits
        )

    @property
    def by_piece_of_all(self) -> float:
        """Cycles by piece of all threads, those that wait included."""
        return self.by_piece * self.waits

    @property
    def is_cut(self) -> bool:
        """Whether threads get smaller blocks where pieces are few."""
        return self.columns == "channels" and (self.width == 1 or self.group < self.outputs)

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
        if self.columns == "pixels":
            sizes = split_evenly(self.outputs, self.tile.rows).sizes
            bounds = np.cumsum([0] + [size for count, size in sizes for _ in range(count)]).tolist()
        whole = self.transform.packed_weights(group, bounds)
        if self.width == 1:
            return whole
        small = whole.astype(numpy_dtype("bfloat16")).view(np.uint16).astype(np.uint32)
        pairs = small.reshape(-1, self.depth, self.width, len(group))  # a group is one panel
        return (pairs[:, :, 0] | pairs[:, :, 1] << 16).view(np.int32).reshape(-1)


def _filled(row: int, more: int, lanes: int) -> float:
    """Return how many vectors are read of a row and some ``more`` pixels, for each that would do for the row."""
    return -(-(row + more) // lanes) * lanes / row


def _arrival(weights: int, outputs: int, target: Target) -> float:
    """Return the cycles in which weights of a term arrive from memory, 0 if the second-level cache has all of them."""
    is_near = 4 * weights <= target.machine.working_set(2)
    return 0.0 if is_near else 4 * outputs / target.machine.far.bandwidth


def _even(rows: int) -> int:
    return -(-rows // 2) * 2


def _tile(pieces: int, terms: int, outputs: int, target: Target, arrives: float = 0.0) -> tuple[float, RegisterTile]:
    """Return the tile of an even number of rows that takes the fewest cycles for a term of each of so many pieces.

    Behind whole tiles there may be half a one. A tile of all registers stays in them only inside of a loop over panels.
    Weights that come from memory, those of a term in ``arrives`` cycles, do so during the products of the first tile of
    pieces, those of other tiles come after.
    """
    near = NEAR_SHARE * target.machine.working_set(1)
    found: list[tuple[float, float, RegisterTile]] = []
    for cycles, tile in ranked_tiles(pieces, outputs, "float32", target, -1):
        fills = (tile.rows + 1) * tile.vectors + 1 == target.machine.registers
        if tile.rows % 2 or tile.rows > MOST_ROWS or (fills and tile.columns >= outputs):
            continue
        rows = -(-pieces // (tile.rows // 2)) * tile.rows // 2
        if tile.rows * tile.vectors <= target.machine.costs.fused * target.machine.costs.latency:
            cycles *= STALLED
        own = cycles * rows / pieces
        if 4 * terms * tile.columns > near:
            own = arriving(own, 4 * outputs * rows / tile.rows, target.machine.cache(2))
        # of one block, whose tiles are about equally high
        first = _even(split_evenly(pieces, tile.rows).sizes[0][1]) if pieces <= LEAST_PIECES else tile.rows
        found.append((own + max(0.0, arrives - own * min(1, first / rows)), own / pieces, tile))
    return min(own for _, own, _ in found), min(found, key=lambda row: row[0])[2]


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
    """Return plans for each size of pieces and what vectors may be of, or those that are wanted."""
    stride = own.found.windows.strides[0]
    sizes = list(POINTS[stride] if width_of(target) == 1 else IN_PAIRS)
    if wanted is not None:
        sizes = [min(sizes, key=lambda known: abs(known - wanted.pieces))]
    transforms, window = [Transform(size, stride) for size in sizes], own.found.window
    found = [Plan.of(transform, own, target, wanted) for transform in transforms]
    if window.reads_channels_first and window.stores_channels_first and own.direct is None and width_of(target) == 1:
        found += [Plan.of_pieces(transform, own, target, wanted) for transform in transforms]
    return [one for one in found if wanted is None or wanted.columns in (None, one.columns)] or found


def fastest(own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None) -> tuple[float, Plan]:
    """Return the plan that takes the fewest cycles for images of known extents, and these cycles."""
    rows = [(one.cycles_of(own.pieces(one.transform)), one) for one in plans(own, target, wanted)]
    rows.sort(key=lambda row: row[0] * row[1].waits)
    first = {one.columns: (cycles, one) for cycles, one in reversed(rows)}
    return min(first.values(), key=lambda row: row[0] * (row[1].waits if row[1].columns == "pixels" else 1))


def chosen_plan(own: ImageInPieces, target: Target, wanted: WinogradParameters | None = None) -> Plan | None:
    """Return the plan that is wanted, or fastest for these images, or for usual ones; None if none pays."""
    if wanted is not None and own.direct is None:
        return fastest(own, target, wanted)[1]
    if own.direct is None and width_of(target) == 1:
        cycles, best = fastest(own, target)
        return best if cycles < best.by_pixel * prod(own.pixels) else None
    window = own.found.window
    usual = USUAL_WORK // (window.inputs * window.outputs)
    paying = (one for one in plans(own, target) if one.pays)
    return min(paying, key=lambda one: one.cycles(usual), default=None)
