"""The schedule of a first convolution: few channels come first in its input, many come last in its output.

Vectors are of output channels. A tile of some pixels of a row stays in registers while all channels and the rows of the
window pass; what lies beyond the sides of the image is left out, what lies above and below it is not looped over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import (
    Tile,
    choose_tile,
    clear,
    column_mask,
    finish_tile,
    lanes_of,
    multiply_add,
    over,
    ramp,
    wide,
)
from graft.core.schedule.strategies.depthwise_nhwc import pieces
from graft.core.schedule.strategy import CONVOLUTIONS, Anchor, Answer, Preference, Strategy, of_stages
from graft.core.tensor_ir.anchors import Window, Windows
from graft.core.tensor_ir.ir import (
    Allocate,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    Let,
    Load,
    Stage,
    Statement,
    Store,
    Variable,
)

BUSY_REGISTERS = 2
"""What an activation behind the sums takes."""
MAX_WINDOW = 128
"""Positions of a window that are written out in part; a larger one is left to other schedules."""


def schedule_few_channels(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with tiles of pixels and output channels; None if it is no such convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else _analyse(kernel, epilogue, target)
    if parts is None:
        return None
    inputs = (parts.packed if buffer is parts.weights else buffer for buffer in kernel.inputs)
    function = Function(kernel.name, (*inputs, *kernel.outputs), len(kernel.outputs), parts.body(), kernel.origin)
    packed = {parts.weights: parts.packed_weights(kernel.constants[parts.weights])}
    return Scheduled(function, packed, knobs={"rows": parts.tile.rows, "vectors": parts.tile.vectors})


def _analyse(kernel: Kernel, epilogue: Epilogue, target: Target) -> _FewChannels | None:
    """Take apart ``out[n, y, x, o] = sum over c, window of weights[o, c, window] * source[n, c, window at y, x]``."""
    found = convolution_of(epilogue.anchor, 4)
    if found is None or found.window.groups != 1:
        return None
    kind, windows, shape = epilogue.anchor.value.type.dtype, found.windows, found.shape
    source = found.image(kind, kind)
    weights = found.weights(kernel, (epilogue.anchor, *epilogue.followers), kind, kind)
    if source is None or weights is None or windows.dilations != (1, 1) or _positions(windows) > MAX_WINDOW:
        return None
    if not found.window.reads_channels_first or not found.window.stores_channels_last:
        return None
    tile = choose_tile(shape[2], shape[3], kind, target, BUSY_REGISTERS)
    padded = -(-shape[3] // tile.columns) * tile.columns
    elements = found.window.inputs * _positions(windows) * padded
    packed = Buffer(f"{weights.name}_packed", weights.dtype, (b.index(elements),))
    return _FewChannels(epilogue, windows, shape, source, weights, packed, tile)


def _positions(windows: Windows) -> int:
    return windows.kernel[0] * windows.kernel[1]


@dataclass(frozen=True, slots=True)
class _FewChannels:
    """A convolution taken apart; a tile has pixels as rows and output channels as columns."""

    epilogue: Epilogue
    windows: Windows
    shape: tuple[int, ...]
    source: Buffer
    weights: Buffer
    packed: Buffer
    tile: Tile

    def packed_weights(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights as ``[panels, channels, window, columns of the panel]``, with zeros at the end."""
        columns = self.tile.columns
        flat = np.pad(weights.reshape(len(weights), -1), ((0, -len(weights) % columns), (0, 0)))
        return np.ascontiguousarray(flat.reshape(-1, columns, flat.shape[1]).swapaxes(1, 2)).reshape(-1)

    def body(self) -> Statement:
        """Return the loops over images, rows, pieces of a row and panels of output channels."""
        image: Expression = Variable("image") if self.shape[0] > 1 else b.index(0)
        row, top = Variable("row"), Variable("top")
        statements: list[Statement] = []
        for first, width, count in pieces(self.windows, self.shape[2], self.tile.rows):
            number = Variable("piece") if count > 1 else b.index(0)
            start = b.add(b.multiply(number, width), first)
            panels = [
                self._tile((image, row, start), top, first, width, panel)
                for panel in range(-(-self.shape[3] // self.tile.columns))
            ]
            statements.append(over(number, count, "serial", Block(tuple(panels))))
        inside = b.subtract(b.multiply(row, self.windows.strides[0]), self.windows.begins[0])
        body: Statement = Let(top, inside, Block(tuple(statements)))
        body = For(row, b.index(self.shape[1]), "parallel", body)
        return over(image, self.shape[0], "parallel", body)

    def _tile(self, place: tuple[Expression, ...], top: Expression, first: int, width: int, panel: int) -> Statement:
        """Return the sums of ``width`` pixels at ``place``, which is ``first`` or inside the image, in one panel."""
        image, row, start = place
        lanes, begin = self.tile.lanes, panel * self.tile.columns
        vectors = min(self.tile.vectors, -(-(self.shape[3] - begin) // lanes))
        tile = Tile(width, vectors, lanes)
        extents = (b.index(width), b.index(tile.columns))
        totals = Buffer("totals", self.weights.dtype, extents, None, "register", 64)
        channel, step = Variable("channel"), Variable("step")
        low = b.maximum(b.subtract(b.index(0), top), 0)
        high = b.minimum(b.subtract(b.index(self.windows.source[0]), top), self.windows.kernel[0])
        body = self._window_row(totals, tile, (image, channel, b.add(low, step)), (top, start), first, panel)
        body = For(step, b.maximum(b.subtract(high, low), 0), "serial", body)
        body = For(channel, b.index(b.dims(self.weights)[1]), "serial", body)

        def point(pixel: Expression, column: Expression) -> list[Expression]:
            return [image, row, b.add(start, pixel), ramp(b.add(column, begin), lanes)]

        def mask(vector: int) -> Expression | None:
            cut = begin + (vector + 1) * lanes > self.shape[3]
            return column_mask(b.index(begin + vector * lanes), self.shape[3], lanes) if cut else None

        reduction = self.epilogue.anchor.reduction
        assert reduction is not None, "a convolution without a sum"
        finish = finish_tile(self.epilogue, tile, totals, point, mask)
        return Allocate(totals, Block((clear(tile, reduction.initial)(totals), body, finish)))

    def _window_row(
        self,
        totals: Buffer,
        tile: Tile,
        term: tuple[Expression, Expression, Expression],
        at: tuple[Expression, Expression],
        first: int,
        panel: int,
    ) -> Statement:
        """Return what one row of the windows in one channel adds."""
        (image, channel, line), (top, start) = term, at
        stride, left, across = self.windows.strides[1], self.windows.begins[1], self.windows.kernel[1]
        kind = self.epilogue.anchor.value.type.with_lanes(tile.lanes)
        rows = b.add(b.multiply(channel, self.windows.kernel[0]), line)
        channels = b.dims(self.weights)[1] * _positions(self.windows)
        statements: list[Statement] = []
        for k in range(across):
            weights = [Variable(f"w{vector}", kind) for vector in range(tile.vectors)]
            sums: list[Statement] = []
            for pixel in range(tile.rows):
                if not 0 <= (first + pixel) * stride - left + k < self.windows.source[1]:
                    continue
                x = b.add(b.multiply(start, stride), pixel * stride + k - left)
                value = Variable("v", kind)
                places = [(b.index(pixel), ramp(b.index(v * tile.lanes), tile.lanes)) for v in range(tile.vectors)]
                stores = [
                    Store(totals, own, multiply_add(value, weight, Load(totals, own)))
                    for own, weight in zip(places, weights, strict=True)
                ]
                scalar = Load(self.source, (image, channel, b.add(top, line), x))
                sums.append(Let(value, wide(scalar, tile.lanes), Block(tuple(stores))))
            body: Statement = Block(tuple(sums))
            position = b.add(b.add(b.multiply(rows, across), k), panel * channels)
            for vector, variable in reversed(list(enumerate(weights))):
                index = b.add(b.multiply(position, self.tile.columns), vector * tile.lanes)
                body = Let(variable, Load(self.packed, (ramp(index, tile.lanes),)), body)
            statements.append(body)
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
