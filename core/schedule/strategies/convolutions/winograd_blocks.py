"""How a convolution by Winograd's algorithm with channels last is cut into blocks of pieces: a model of cycles.

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
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import RegisterTile, lanes_of, ranked_tiles, split_evenly
from graft.core.schedule.strategies.convolutions.direct_nhwc import DirectSums, direct_sums
from graft.core.schedule.strategies.convolutions.winograd_cost import (
    DIRECT_CYCLES,
    INPUT_CYCLES,
    OUTPUT_CYCLES,
    PRODUCT_CYCLES,
)
from graft.core.schedule.strategies.convolutions.winograd_transform import POINTS, WINDOW, Transform
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.types import FLOAT32
from graft.runtime.dtypes import numpy_dtype

USUAL_WORK = 4096 * 64 * 64
"""Pixels x channels x channels that a layer is taken to have: where channels double, networks halve their images."""
CACHE_SHARE = 5 / 8
"""What a block takes of the second-level cache."""
LEAST_PIECES, MOST_PIECES = 32, 96
"""Pieces of a block: the weights are read for each of them."""
MOST_ROWS = 16
"""Pieces of a register tile at the most, an even number: behind whole tiles there may be half a one."""
NEAR_SHARE = 0.7
"""Of the first-level cache: the weights of a tile for one product stay there for all pieces of a block."""
FAR_SHARE = 1 / 2
"""Of the bandwidth of memory, what there is for transformed weights that few pieces wait for."""
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

    def pieces(self, transform: Transform) -> int:
        """Return the pieces of all images: as many as a block has at the most, where extents vary."""
        count, down, across, _ = self.found.shape
        size = transform.outputs
        return MOST_PIECES if self.direct else count * -(-down // size) * -(-across // size)


@dataclass(frozen=True, slots=True)
class Plan:
    """A size of pieces, the register tile, the ``most`` pieces of a block; cycles by piece, by pixel directly, once.

    Sums of ``group`` output channels are kept at a time: those of one panel, where the images of a block stay in a
    cache for all panels.
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
    by_piece: float
    by_pixel: float
    once: float

    @classmethod
    def of(cls, transform: Transform, own: ImageInPieces, target: Target) -> Plan:
        """Return the plan for a convolution."""
        lanes, width, pieces = lanes_of("float32", target), width_of(target), max(2, own.pieces(transform))
        inputs, outputs = own.found.window.inputs, -(-own.found.window.outputs // lanes) * lanes
        ranked = (tile for _, tile in ranked_tiles(min(pieces, MOST_PIECES), outputs, "float32", target))
        found = (replace(tile, rows=tile.rows // 2 * 2) for tile in ranked if 2 <= tile.rows <= MOST_ROWS)
        near = NEAR_SHARE * target.machine.working_set(1)
        tile = next(tile for tile in found if width > 1 or tile.vectors == 1 or 4 * inputs * tile.columns <= near)
        group = outputs if width == 1 else tile.columns
        each = transform.products * 4 * (inputs // width + group)
        fitting = int(CACHE_SHARE * target.machine.working_set(2)) // each
        most = min(max(fitting, LEAST_PIECES), MOST_PIECES) // tile.rows * tile.rows
        if own.direct is None:
            most = -(-pieces // -(-pieces // most))
            tile = replace(tile, rows=-(-split_evenly(most, tile.rows).sizes[0][1] // 2) * 2)
            most = -(-most // tile.rows) * tile.rows
        weights = inputs * outputs // width
        into, out = (cycles[transform.stride][transform.outputs] for cycles in (INPUT_CYCLES, OUTPUT_CYCLES))
        moved = -(-inputs // lanes) * lanes * into + outputs * out
        by_piece = (transform.products * weights * PRODUCT_CYCLES + moved) / lanes
        by_pixel = WINDOW**2 * weights * DIRECT_CYCLES / lanes
        once = 4 * weights * (transform.products - WINDOW**2) / (FAR_SHARE * target.machine.far.bandwidth)
        return cls(transform, tile, inputs, outputs, width, most, group, by_piece, by_pixel, once)

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


def chosen_plan(own: ImageInPieces, target: Target) -> Plan | None:
    """Return the plan that is fastest for these images, or for usual ones where extents vary; None if none pays."""
    window = own.found.window
    stride = window.windows.strides[0]
    sizes = POINTS[stride] if width_of(target) == 1 else IN_PAIRS
    plans = [Plan.of(Transform(size, stride), own, target) for size in sizes]
    if own.direct is None and width_of(target) == 1:
        pixels = prod(own.found.shape[:3])
        best = min(plans, key=lambda one: one.cycles_of(own.pieces(one.transform)))
        return best if best.cycles_of(own.pieces(best.transform)) < best.by_pixel * pixels else None
    usual = USUAL_WORK // (window.inputs * window.outputs)
    return min((one for one in plans if one.pays), key=lambda one: one.cycles(usual), default=None)
