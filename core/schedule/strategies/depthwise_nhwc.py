"""The schedule of depthwise convolutions of floats whose input and output keep channels last.

Vectors are of channels, always full, the weights of a window are vectors too, and pixels of a row are computed side by
side: each vector of the input is loaded once for all of them, and what lies beyond the border of the image is left out
rather than masked.
"""

from __future__ import annotations

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
    clear,
    column_mask,
    finish_tile,
    lanes_of,
    multiply_add,
    over,
    ramp,
    split_evenly,
)
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

SPARE_REGISTERS = 4
"""What a tile leaves besides its sums and the weights of one row of a window."""


def schedule_floats_last(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with vectors of channels; None if it is no such depthwise convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else _analyse(kernel, epilogue, target)
    if parts is None:
        return None
    inputs = (parts.packed if buffer is parts.weights else buffer for buffer in kernel.inputs)
    parameters = (*inputs, *kernel.outputs)
    function = Function(kernel.name, parameters, len(kernel.outputs), parts.body(), kernel.origin)
    packed = {parts.weights: parts.packed_weights(kernel.constants[parts.weights])}
    return Scheduled(function, packed, knobs={"pixels": parts.most})


def _analyse(kernel: Kernel, epilogue: Epilogue, target: Target) -> _ChannelsLast | None:
    """Take apart ``out[n, y, x, c] = sum over window of weights[c, 0, window] * source[n, window at y, x, c]``."""
    found = convolution_of(epilogue.anchor, 4)
    if found is None or not found.window.is_depthwise or epilogue.anchor.value.type.is_custom:
        return None
    kind, windows, shape = epilogue.anchor.value.type.dtype, found.windows, found.shape
    source = found.image(kind)
    weights = found.weights(kernel, (epilogue.anchor, *epilogue.followers), kind, kind)
    if source is None or weights is None or windows.dilations != (1, 1):
        return None
    if not found.window.reads_channels_last or not found.window.stores_channels_last:
        return None
    lanes = lanes_of(kind, target)
    most = max(1, target.machine.registers - SPARE_REGISTERS - windows.kernel[1])
    packed = Buffer(f"{weights.name}_packed", weights.dtype, (b.index(-(-shape[3] // lanes) * lanes * _size(windows)),))
    return _ChannelsLast(epilogue, windows, shape, source, weights, packed, lanes, most)


def _size(windows: Windows) -> int:
    return windows.kernel[0] * windows.kernel[1]


def pieces(windows: Windows, length: int, most: int) -> list[tuple[int, int, int]]:
    """Cut a row of ``length`` pixels into pieces: (first pixel, pixels, number of such pieces one after another).

    Several are counted as one only where no window of theirs leaves the image at its sides.
    """
    rows: list[tuple[int, int, int]] = []
    split, begin = split_evenly(length, most), 0
    for width in (size for count, size in split.sizes for _ in range(count)):
        last = rows[-1] if rows else (0, 0, 0)
        if width == last[1] and _is_inside(windows, last[0], width) and _is_inside(windows, begin, width):
            rows[-1] = (last[0], width, last[2] + 1)
        else:
            rows.append((begin, width, 1))
        begin += width
    return rows


def _is_inside(windows: Windows, begin: int, width: int) -> bool:
    """Whether all pixels that ``width`` windows from ``begin`` on look at lie between the sides of the image."""
    stride, left = windows.strides[1], windows.begins[1]
    last = (begin + width - 1) * stride + windows.kernel[1] - 1 - left
    return begin * stride >= left and last < windows.source[1]


@dataclass(frozen=True, slots=True)
class _ChannelsLast:
    """A convolution taken apart; ``most`` pixels of a row are computed side by side at most."""

    epilogue: Epilogue
    windows: Windows
    shape: tuple[int, ...]
    source: Buffer
    weights: Buffer
    packed: Buffer
    lanes: int
    most: int

    def packed_weights(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights as ``[blocks of channels, window, channels of the block]``, with zeros at the end."""
        channels = self.shape[3]
        flat = np.pad(weights.reshape(channels, -1), ((0, -channels % self.lanes), (0, 0)))
        return np.ascontiguousarray(flat.reshape(-1, self.lanes, _size(self.windows)).swapaxes(1, 2)).reshape(-1)

    def body(self) -> Statement:
        """Return the loops over images, rows, pieces of a row and blocks of channels."""
        image: Expression = Variable("image") if self.shape[0] > 1 else b.index(0)
        row = Variable("row")
        statements: list[Statement] = []
        for first, width, count in pieces(self.windows, self.shape[2], self.most):
            number = Variable("piece") if count > 1 else b.index(0)
            start = b.add(b.multiply(number, width), first)
            blocks = self._blocks(Tile(width, 1, self.lanes), (image, row), start, first)
            statements.append(over(number, count, "serial", blocks))
        body: Statement = For(row, b.index(self.shape[1]), "parallel", Block(tuple(statements)))
        return over(image, self.shape[0], "parallel", body)

    def _blocks(self, tile: Tile, place: tuple[Expression, Expression], start: Expression, first: int) -> Statement:
        """Return one piece of a row in all blocks of channels, of which the last may be cut off."""
        full, rest = divmod(self.shape[3], self.lanes)
        block = Variable("block")
        statements: list[Statement] = []
        if full:
            piece = self._piece(tile, (*place, block), start, first, None)
            statements.append(For(block, b.index(full), "serial", piece))
        if rest:
            mask = column_mask(b.index(full * self.lanes), self.shape[3], self.lanes)
            statements.append(self._piece(tile, (*place, b.index(full)), start, first, mask))
        return Block(tuple(statements))

    def _piece(
        self, tile: Tile, place: tuple[Expression, ...], start: Expression, first: int, mask: Expression | None
    ) -> Statement:
        """Return the pixels from ``start`` on, which is ``first`` or inside the image, of one block of channels."""
        image, row, block = place
        totals = Buffer("totals", self.weights.dtype, (b.index(tile.rows), b.index(self.lanes)), None, "register", 64)
        step, top = Variable("step"), Variable("top")
        low = b.maximum(b.subtract(b.index(0), top), 0)
        high = b.minimum(b.subtract(b.index(self.windows.source[0]), top), self.windows.kernel[0])
        body = self._window_row(totals, place, (top, b.add(low, step), start), first, mask)
        rows = For(step, b.maximum(b.subtract(high, low), 0), "serial", body)
        channel = b.multiply(block, self.lanes)

        def point(pixel: Expression, lane: Expression) -> list[Expression]:
            return [image, row, b.add(start, pixel), ramp(b.add(channel, lane), self.lanes)]

        reduction = self.epilogue.anchor.reduction
        assert reduction is not None, "a convolution without a sum"
        finish = finish_tile(self.epilogue, tile, totals, point, lambda _: mask)
        inner = Allocate(totals, Block((clear(tile, reduction.initial)(totals), rows, finish)))
        return Let(top, b.subtract(b.multiply(row, self.windows.strides[0]), self.windows.begins[0]), inner)

    def _window_row(
        self,
        totals: Buffer,
        place: tuple[Expression, ...],
        at: tuple[Expression, Expression, Expression],
        first: int,
        mask: Expression | None,
    ) -> Statement:
        """Return what one row of all windows adds: each vector of the input goes to every pixel that looks at it."""
        image, _, block = place
        top, line, start = at
        stride, left, width = self.windows.strides[1], self.windows.begins[1], self.windows.kernel[1]
        count = b.dims(totals)[0]
        kind = self.epilogue.anchor.value.type.with_lanes(self.lanes)
        weights = [Variable(f"w{column}", kind) for column in range(width)]
        lane = ramp(b.index(0), self.lanes)
        statements: list[Statement] = []
        for column in range((count - 1) * stride + width):
            if not 0 <= first * stride - left + column < self.windows.source[1]:
                continue
            pairs = [(pixel, column - pixel * stride) for pixel in range(count) if 0 <= column - pixel * stride < width]
            x = b.add(b.multiply(start, stride), column - left)
            channels = ramp(b.multiply(block, self.lanes), self.lanes)
            vector = b.cast(Load(self.source, (image, b.add(top, line), x, channels), mask), kind.dtype)
            value = Variable(f"v{column}", kind)
            sums = [
                Store(
                    totals,
                    (b.index(pixel), lane),
                    multiply_add(weights[k], value, Load(totals, (b.index(pixel), lane))),
                )
                for pixel, k in pairs
            ]
            statements.append(Let(value, vector, Block(tuple(sums))))
        begin = b.add(b.multiply(block, self.windows.kernel[0]), line)
        body: Statement = Block(tuple(statements))
        for column, variable in reversed(list(enumerate(weights))):
            index = b.multiply(b.add(b.multiply(begin, width), column), self.lanes)
            body = Let(variable, Load(self.packed, (ramp(index, self.lanes),)), body)
        return body


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
