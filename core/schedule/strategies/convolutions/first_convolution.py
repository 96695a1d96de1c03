"""The schedule of a first convolution: few channels come first in its input, many come last in its output.

Vectors are of output channels. A tile of some pixels of a row stays in registers while all channels and the rows of the
window pass (`graft.core.schedule.products.channel_tiles`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.statements import column_mask, multiply_add, ramp, wide
from graft.core.schedule.products.channel_tiles import ChannelTiles, Pixels
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.tiling import RegisterTile, choose_tile, lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Preference, Strategy, of_stages
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Let, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import bind

BUSY_REGISTERS = 2
"""What an activation behind the sums takes."""
MAX_WINDOW = 128
"""Positions of a window that are written out in part; a larger one is left to other schedules."""


def schedule_few_channels(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with tiles of pixels and output channels; None if it is no such convolution."""
    parts = _analyse(kernel, stages, target)
    if parts is None:
        return None
    packed, top = parts.packed, Variable("top")

    def piece(pixels: Pixels, first: int, width: int) -> Statement:
        panels = range(-(-parts.channels // parts.tile.columns))
        return Block(tuple(_Panel(parts, packed, panel, pixels, first, top).tile(width) for panel in panels))

    knobs = {"rows": parts.tile.rows, "vectors": parts.tile.vectors}
    return parts.scheduled(kernel, packed, lambda: parts.over_pieces(piece, top), knobs)


def _analyse(kernel: Kernel, stages: Sequence[Stage], target: Target) -> ChannelTiles | None:
    """Take apart ``out[n, y, x, o] = sum over c, window of weights[o, c, window] * source[n, c, window at y, x]``."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor, 4)
    if epilogue is None or found is None or found.window.groups != 1:
        return None
    kind, windows = epilogue.anchor.value.type.dtype, found.windows
    source, weights = found.image(kind, kind), found.weights(kernel, stages, kind, kind)
    if source is None or weights is None or windows.dilations != (1, 1):
        return None
    if not found.window.reads_channels_first or not found.window.stores_channels_last:
        return None
    tile = choose_tile(found.shape[2], found.shape[3], kind, target, BUSY_REGISTERS)
    fits = windows.kernel[0] * windows.kernel[1] <= MAX_WINDOW
    return ChannelTiles(epilogue, found, source, weights, tile) if fits else None


@dataclass(frozen=True, slots=True)
class _Panel:
    """The pixels of a piece of a row in one panel of output channels."""

    parts: ChannelTiles
    packed: Buffer
    panel: int
    pixels: Pixels
    first: int
    top: Expression

    def tile(self, width: int) -> Statement:
        """Return the sums of ``width`` pixels."""
        parts, lanes, begin = self.parts, self.parts.tile.lanes, self.panel * self.parts.tile.columns
        vectors = min(parts.tile.vectors, -(-(parts.channels - begin) // lanes))
        tile, channel = replace(parts.tile, rows=width, vectors=vectors), Variable("channel")

        def body(totals: Buffer) -> Statement:
            rows = parts.over_window(self.top, lambda line: self._window_row(totals, tile, channel, line))
            return For(channel, b.index(b.dims(parts.weights)[1]), "serial", rows)

        def mask(vector: int) -> Expression | None:
            cut = begin + (vector + 1) * lanes > parts.channels
            return column_mask(begin + vector * lanes, parts.channels, lanes) if cut else None

        return parts.summed(tile, self.pixels, b.index(begin), body, mask)

    def _window_row(self, totals: Buffer, tile: RegisterTile, channel: Expression, line: Expression) -> Statement:
        """Return what one row of the windows in one channel adds."""
        parts, windows, (image, _, start) = self.parts, self.parts.windows, self.pixels
        stride, left, across = windows.strides[1], windows.begins[1], windows.kernel[1]
        kind = parts.epilogue.anchor.value.type.with_lanes(tile.lanes)
        rows = b.add(b.multiply(channel, windows.kernel[0]), line)
        statements: list[Statement] = []
        for k in range(across):
            weights = [Variable(f"w{vector}", kind) for vector in range(tile.vectors)]
            sums: list[Statement] = []
            for pixel in range(tile.rows):
                if not 0 <= (self.first + pixel) * stride - left + k < windows.source[1]:
                    continue
                x = b.add(b.multiply(start, stride), pixel * stride + k - left)
                value = Variable("v", kind)
                places = [(b.index(pixel), ramp(v * tile.lanes, tile.lanes)) for v in range(tile.vectors)]
                stores = [
                    Store(totals, own, multiply_add(value, weight, Load(totals, own)))
                    for own, weight in zip(places, weights, strict=True)
                ]
                scalar = Load(parts.source, (image, channel, b.add(self.top, line), x))
                sums.append(Let(value, wide(scalar, tile.lanes), Block(tuple(stores))))
            position = b.add(b.add(b.multiply(rows, across), k), self.panel * parts.terms)
            begin = b.multiply(position, parts.tile.columns)
            loaded = [Load(self.packed, (ramp(b.add(begin, v * tile.lanes), tile.lanes),)) for v in range(tile.vectors)]
            statements.append(bind(zip(weights, loaded, strict=True), Block(tuple(sums))))
        return Block(tuple(statements))


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.window.groups != 1:
        return Reject("shape", "no convolution without groups")
    is_first = found.window.reads_channels_first and found.window.stores_channels_last
    return True if is_first else Reject("layout", "channels do not come first and leave last")


def cost(anchor: Anchor, target: Target) -> float:
    """Return the cycles of one image: a multiply-add for each vector of channels, pixel and weight."""
    assert anchor.convolution is not None, anchor.kernel.name
    window = anchor.convolution.window
    pixels, lanes = math.prod(window.windows.target), lanes_of("float32", target)
    return pixels * math.prod(window.extents) * window.outputs / lanes


def _prefers(window: Window, target: Target) -> Preference | None:
    return Preference("first", "last") if window.is_first else None


STRATEGY = Strategy(
    "first_convolution", CONVOLUTIONS, of_stages(schedule_few_channels), _applies, prefers=_prefers, cost=cost
)
