"""Convolutions with channels on the lanes, summed where the image lies: pixels of a row side by side in registers.

Rows whose windows leave the image above or below have shorter loops over the window; what lies beyond the sides is left
out piece by piece of a row, so no access is masked but by the last channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.statements import counter, over, ramp
from graft.core.schedule.products.accumulation import accumulators, clear, finish_tile
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.tiling import RegisterTile, split_evenly
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Expression, For, Let, Statement, Variable

Pixels = tuple[Expression, Expression, Expression]
"""Image, row and first column of pixels."""


@dataclass(frozen=True, slots=True)
class ChannelTiles:
    """A convolution taken apart; a tile has pixels as rows, ``tile.rows`` at most, and output channels as columns."""

    epilogue: Epilogue
    found: Convolution
    source: Buffer
    weights: Buffer
    tile: RegisterTile

    @property
    def windows(self) -> Windows:
        """The windows."""
        return self.found.windows

    @property
    def channels(self) -> int:
        """The output channels."""
        return self.found.shape[3]

    @property
    def terms(self) -> int:
        """The products of each sum."""
        return math.prod(b.dims(self.weights)[1:])

    @property
    def packed(self) -> Buffer:
        """The weights as they are read: ``[panels, terms, columns of the panel]``, with zeros at the end."""
        padded = -(-self.channels // self.tile.columns) * self.tile.columns
        return Buffer(f"{self.weights.name}_packed", self.weights.dtype, (b.index(self.terms * padded),))

    def scheduled(
        self, kernel: Kernel, packed: Buffer, body: Callable[[], Statement], knobs: Mapping[str, int]
    ) -> Scheduled:
        """Return the function with this body, still to be built, which reads ``packed``."""
        weights, columns = kernel.constants[self.weights], self.tile.columns
        flat = np.pad(weights.reshape(len(weights), -1), ((0, -len(weights) % columns), (0, 0)))
        contents = np.ascontiguousarray(flat.reshape(-1, columns, self.terms).swapaxes(1, 2)).reshape(-1)
        own = {self.weights: packed}
        return Scheduled(lambda: kernel.function(body(), own), {self.weights: contents}, knobs=knobs)

    def over_pieces(self, body: Callable[[Pixels, int, int], Statement], top: Variable | None = None) -> Statement:
        """Return the loops over images, rows and pieces of a row around ``body(pixels, first, width)``.

        The pixels of a piece begin at column ``first``, or somewhere inside the image. ``top`` is `top_of` each row.
        """
        shape, row = self.found.shape, Variable("row")
        image, statements = counter("image", shape[0]), []
        for first, width, count in self._pieces():
            number = counter("piece", count)
            start = b.add(b.multiply(number, width), first)
            statements.append(over(number, count, "serial", body((image, row, start), first, width)))
        rows: Statement = Block(tuple(statements))
        rows = rows if top is None else Let(top, self.top_of(row), rows)
        return over(image, shape[0], "parallel", For(row, b.index(shape[1]), "parallel", rows))

    def top_of(self, row: Expression) -> Expression:
        """Return the row of the image at which the windows of a row begin."""
        return b.subtract(b.multiply(row, self.windows.strides[0]), self.windows.begins[0])

    def over_window(
        self, top: Expression, body: Callable[[Expression], Statement], height: Expression | None = None
    ) -> Statement:
        """Return the loop over those rows of a window at ``top`` that lie in the image, which has ``height`` rows."""
        low = b.maximum(b.subtract(b.index(0), top), 0)
        height = b.index(self.windows.source[0]) if height is None else height
        high = b.minimum(b.subtract(height, top), self.windows.kernel[0])
        step = Variable("step")
        return For(step, b.maximum(b.subtract(high, low), 0), "serial", body(b.add(low, step)))

    def summed(
        self,
        tile: RegisterTile,
        pixels: Pixels,
        channel: Expression,
        body: Callable[[Buffer], Statement],
        mask: Callable[[int], Expression | None],
        exist: Expression | None = None,
    ) -> Statement:
        """Return the sums that ``body(accumulators)`` makes of pixels in the channels from ``channel`` on, stored.

        So many of the tile's pixels ``exist``: all if None.
        """
        image, row, start = pixels
        totals = accumulators(tile, self.weights.dtype)

        def point(pixel: Expression, column: Expression) -> list[Expression]:
            return [image, row, b.add(start, pixel), ramp(b.add(channel, column), tile.lanes)]

        finish = finish_tile(self.epilogue, tile, totals, point, mask, exist=exist)
        return Allocate(totals, Block((clear(tile, self.epilogue.initial)(totals), body(totals), finish)))

    def _pieces(self) -> list[tuple[int, int, int]]:
        """Cut a row into pieces: (first pixel, pixels, number of such pieces one after another).

        Several are counted as one only where no window of theirs leaves the image at its sides.
        """
        rows: list[tuple[int, int, int]] = []
        split, begin = split_evenly(self.found.shape[2], self.tile.rows), 0
        for width in (size for count, size in split.sizes for _ in range(count)):
            last = rows[-1] if rows else (0, 0, 0)
            if width == last[1] and self._is_inside(last[0], width) and self._is_inside(begin, width):
                rows[-1] = (last[0], width, last[2] + 1)
            else:
                rows.append((begin, width, 1))
            begin += width
        return rows

    def _is_inside(self, begin: int, width: int) -> bool:
        """Whether all pixels that ``width`` windows from ``begin`` on look at lie between the sides of the image."""
        stride, left = self.windows.strides[1], self.windows.begins[1]
        last = (begin + width - 1) * stride + self.windows.kernel[1] - 1 - left
        return begin * stride >= left and last < self.windows.source[1]
