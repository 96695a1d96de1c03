"""Depthwise convolutions with channels last of images whose extents are known only when a kernel runs.

Vectors are of channels, and a tile is some pixels of a row, as for images of known extents: each vector of the image is
loaded once for all of them. Tiles whose windows stay between the sides of the image, which are nearly all of a large
one, are one body; what a second one reads beyond a side is masked. The last tile of a row ends where the row ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import DepthwiseParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import column_mask, multiply_add, ramp
from graft.core.schedule.products.borders import bordered
from graft.core.schedule.products.channel_tiles import ChannelTiles
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.strategies.convolutions.depthwise_nhwc import analyse
from graft.core.schedule.strategies.convolutions.varying_convolution import finished
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, If, Let, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import bind

PIXELS = 8
"""Pixels of a tile at the most: of a row that is no multiple of them, some are computed twice."""
TILES = 2, 4, 6, 12
"""Other numbers of them that are worth measuring."""


def schedule_depthwise(
    kernel: Kernel, stages: Sequence[Stage], target: Target, parameters: DepthwiseParameters | None = None
) -> Scheduled | None:
    """Return the kernel with vectors of channels; None if it is no such depthwise convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else analyse(kernel, epilogue, target)
    if parts is None:
        return None
    pixels = PIXELS if parameters is None or parameters.rows is None else parameters.rows
    parts = replace(parts, tile=replace(parts.tile, rows=min(pixels, parts.tile.rows)))
    packed = parts.packed
    loops = _Rows(parts, packed, target.machine.masks).loops
    return parts.scheduled(kernel, packed, lambda: finished(loops()), {"pixels": parts.tile.rows})


@dataclass(frozen=True, slots=True)
class _PixelTile:
    """Pixels of a row from ``start`` on, whose windows begin in row ``top`` and column ``left`` of the image.

    Of a tile that is ``clipped``, some windows leave the image at its sides, or not all pixels exist.
    """

    image: Expression
    row: Expression
    start: Expression
    top: Expression
    left: Expression
    clipped: bool


@dataclass(frozen=True, slots=True)
class _Rows:
    """Writes the loops over rows of the result; the machine may have ``masks``."""

    parts: ChannelTiles
    packed: Buffer
    masks: bool

    @property
    def _width(self) -> Expression:
        """The pixels of a row of the image."""
        return self.parts.source.shape[2]

    def loops(self) -> Statement:
        """Return the loops over images, rows and tiles."""
        images, rows, pixels, _ = self.parts.epilogue.anchor.buffer.shape
        size, windows = self.parts.tile.rows, self.parts.windows
        image, row, number = Variable("image"), Variable("row"), Variable("tile")
        start, top, left = Variable("start"), Variable("top"), Variable("left")
        begin = b.maximum(b.minimum(b.multiply(number, size), b.subtract(pixels, size)), 0)
        first = b.subtract(b.multiply(start, windows.strides[1]), windows.begins[1])
        reach = (size - 1) * windows.strides[1] + windows.kernel[1]
        limits = (
            b.greater_equal(left, 0),
            b.less_equal(b.add(left, reach), self._width),
            b.greater_equal(pixels, size),
        )
        inside = b.all_of(limits)
        assert inside is not None, "no limits"
        tile = _PixelTile(image, row, start, top, left, clipped=False)
        body = If(inside, self._blocks(tile), self._blocks(replace(tile, clipped=True)))
        tiles = For(
            number, b.divide(b.add(pixels, size - 1), size), "serial", bind([(start, begin), (left, first)], body)
        )
        rows_of = For(row, rows, "parallel", Let(top, self.parts.top_of(row), tiles))
        return For(image, images, "parallel", rows_of)

    def _blocks(self, tile: _PixelTile) -> Statement:
        """Return a tile in all vectors of channels, of which the last may be cut off."""
        parts, lanes = self.parts, self.parts.tile.lanes

        def block(channel: Expression, extent: int) -> Statement:
            mask = column_mask(channel, parts.channels, lanes) if extent < lanes else None
            exist = b.minimum(b.subtract(parts.epilogue.anchor.buffer.shape[2], tile.start), parts.tile.rows)
            height = parts.source.shape[1]
            if tile.clipped and not self.masks:  # what is left out is read somewhere else in the image
                height = b.select(b.greater(self._width, 0), height, 0)

            def body(totals: Buffer) -> Statement:
                return parts.over_window(tile.top, lambda line: self._line(tile, totals, channel, line, mask), height)

            pixels = (tile.image, tile.row, tile.start)
            return parts.summed(parts.tile, pixels, channel, body, lambda _: mask, exist if tile.clipped else None)

        return tiles(parts.channels, lanes, block, name="block")

    def _line(
        self, tile: _PixelTile, totals: Buffer, channel: Expression, line: Expression, mask: Expression | None
    ) -> Statement:
        """Return what one row of all windows adds: each vector of the image goes to every pixel that looks at it."""
        parts, lanes, count = self.parts, self.parts.tile.lanes, self.parts.tile.rows
        stride, width = parts.windows.strides[1], parts.windows.kernel[1]
        kind = parts.epilogue.anchor.value.type.with_lanes(lanes)
        weights = [Variable(f"w{column}", kind) for column in range(width)]
        begin = b.add(b.multiply(channel, parts.terms), b.multiply(line, width * lanes))
        loaded = [Load(self.packed, (ramp(b.add(begin, k * lanes), lanes),)) for k in range(width)]
        statements: list[Statement] = []
        for column in range((count - 1) * stride + width):
            pairs = [(pixel, column - pixel * stride) for pixel in range(count) if 0 <= column - pixel * stride < width]
            if not pairs:
                continue
            value = Variable(f"v{column}", kind)
            places = [((b.index(pixel), ramp(0, lanes)), weights[k]) for pixel, k in pairs]
            sums = [Store(totals, own, multiply_add(weight, value, Load(totals, own))) for own, weight in places]
            vector = b.cast(self._vector(tile, b.add(tile.top, line), column, ramp(channel, lanes), mask), kind.dtype)
            statements.append(Let(value, vector, Block(tuple(sums))))
        return bind(zip(weights, loaded, strict=True), Block(tuple(statements)))

    def _vector(
        self, tile: _PixelTile, row: Expression, column: int, channels: Expression, mask: Expression | None
    ) -> Expression:
        """Return a vector of the image, zeros where a clipped tile's column lies beyond a side."""
        place = (tile.image, row, b.add(tile.left, column), channels)
        return bordered(self.parts.source, place, (2,) if tile.clipped else (), mask, masks=self.masks)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise:
        return Reject("shape", "no depthwise convolution")
    is_last = found.window.reads_channels_last and found.window.stores_channels_last
    return True if is_last else Reject("layout", "channels are not last")


def _prefers(window: Window, target: Target) -> Preference | None:
    w = window.windows
    fits = window.is_depthwise and w.rank == 2 and w.dilations == (1, 1)
    return Preference("last", "last", gains=True) if fits else None


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    parameters = of_family(anchor.parameters, DepthwiseParameters)
    return (anchor.stages and schedule_depthwise(anchor.kernel, anchor.stages, target, parameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Pixels of a tile."""
    return [] if stage > 0 else [DepthwiseParameters(rows=rows) for rows in TILES]


STRATEGY = Strategy("varying_depthwise", CONVOLUTIONS, _build, _applies, _candidates, prefers=_prefers, varies=True)
"""Takes depthwise convolutions of neighbouring pixels with channels last; `varying_convolution` takes the others."""
