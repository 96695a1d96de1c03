"""The schedule of depthwise convolutions of floats whose input and output keep channels last.

Vectors are of channels, always full, the weights of a window are vectors too, and pixels of a row are computed side by
side: each vector of the input is loaded once for all of them, and what lies beyond the border of the image is left out
rather than masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.statements import column_mask, multiply_add, ramp
from graft.core.schedule.products.channel_tiles import ChannelTiles, Pixels
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import RegisterTile, lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Preference, Strategy, of_stages
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Let, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import bind

SPARE_REGISTERS = 4
"""What a tile leaves besides its sums and the weights of one row of a window."""


def schedule_floats_last(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with vectors of channels; None if it is no such depthwise convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else analyse(kernel, epilogue, target)
    if parts is None:
        return None
    packed, tile = parts.packed, parts.tile

    def piece(pixels: Pixels, first: int, width: int) -> Statement:
        return _Piece(parts, packed, pixels, first, replace(tile, rows=width)).blocks()

    return parts.scheduled(kernel, packed, lambda: parts.over_pieces(piece), {"pixels": tile.rows})


def analyse(kernel: Kernel, epilogue: Epilogue, target: Target) -> ChannelTiles | None:
    """Take apart ``out[n, y, x, c] = sum over window of weights[c, 0, window] * source[n, window at y, x, c]``."""
    found = convolution_of(epilogue.anchor, 4)
    if found is None or not found.window.is_depthwise or epilogue.anchor.value.type.is_custom:
        return None
    kind, windows = epilogue.anchor.value.type.dtype, found.windows
    source, weights = found.image(kind), found.weights(kernel, (epilogue.anchor, *epilogue.followers), kind, kind)
    if source is None or weights is None or windows.dilations != (1, 1):
        return None
    if not found.window.reads_channels_last or not found.window.stores_channels_last:
        return None
    most = max(1, target.machine.registers - SPARE_REGISTERS - windows.kernel[1])
    return ChannelTiles(epilogue, found, source, weights, RegisterTile(most, 1, lanes_of(kind, target)))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some pixels of a row: those from ``pixels`` on, which is ``first`` or inside the image."""

    parts: ChannelTiles
    packed: Buffer
    pixels: Pixels
    first: int
    tile: RegisterTile

    def blocks(self) -> Statement:
        """Return the piece in all blocks of channels, of which the last may be cut off."""
        lanes = self.tile.lanes
        full, rest = divmod(self.parts.channels, lanes)
        block = Variable("block")
        statements: list[Statement] = []
        if full:
            statements.append(For(block, b.index(full), "serial", self._block(block, None)))
        if rest:
            mask = column_mask(full * lanes, self.parts.channels, lanes)
            statements.append(self._block(b.index(full), mask))
        return Block(tuple(statements))

    def _block(self, block: Expression, mask: Expression | None) -> Statement:
        parts, top = self.parts, Variable("top")

        def body(totals: Buffer) -> Statement:
            return parts.over_window(top, lambda line: self._window_row(totals, block, (top, line), mask))

        channel = b.multiply(block, self.tile.lanes)
        summed = parts.summed(self.tile, self.pixels, channel, body, lambda _: mask)
        return Let(top, parts.top_of(self.pixels[1]), summed)

    def _window_row(
        self, totals: Buffer, block: Expression, at: tuple[Expression, Expression], mask: Expression | None
    ) -> Statement:
        """Return what one row of all windows adds: each vector of the input goes to every pixel that looks at it."""
        parts, windows, lanes, count = self.parts, self.parts.windows, self.tile.lanes, self.tile.rows
        (image, _, start), (top, line) = self.pixels, at
        stride, left, width = windows.strides[1], windows.begins[1], windows.kernel[1]
        kind = parts.epilogue.anchor.value.type.with_lanes(lanes)
        weights = [Variable(f"w{column}", kind) for column in range(width)]
        channels, lane = ramp(b.multiply(block, lanes), lanes), ramp(0, lanes)
        statements: list[Statement] = []
        for column in range((count - 1) * stride + width):
            if not 0 <= self.first * stride - left + column < windows.source[1]:
                continue
            x = b.add(b.multiply(start, stride), column - left)
            vector = b.cast(Load(parts.source, (image, b.add(top, line), x, channels), mask), kind.dtype)
            value = Variable(f"v{column}", kind)
            pairs = [(pixel, column - pixel * stride) for pixel in range(count) if 0 <= column - pixel * stride < width]
            places = [((b.index(pixel), lane), weights[k]) for pixel, k in pairs]
            sums = [Store(totals, own, multiply_add(weight, value, Load(totals, own))) for own, weight in places]
            statements.append(Let(value, vector, Block(tuple(sums))))
        begin = b.multiply(b.add(b.multiply(block, windows.kernel[0]), line), width)
        loaded = [Load(self.packed, (ramp(b.multiply(b.add(begin, k), lanes), lanes),)) for k in range(width)]
        return bind(zip(weights, loaded, strict=True), Block(tuple(statements)))


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise:
        return Reject("shape", "no depthwise convolution")
    return True if found.window.reads_channels_last else Reject("layout", "the image's channels are not last")


def _prefers(window: Window, target: Target) -> Preference | None:
    w = window.windows
    fits = window.is_depthwise and w.dilations == (1, 1) and min(window.groups, *w.source, *w.target) > 1
    return Preference("last", "last", gains=True) if fits else None


STRATEGY = Strategy("depthwise_nhwc", CONVOLUTIONS, of_stages(schedule_floats_last), _applies, prefers=_prefers)
