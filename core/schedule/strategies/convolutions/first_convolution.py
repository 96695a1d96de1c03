"""The schedule of a first convolution: few channels come first in its input, many come last in its output.

Vectors are of output channels. A tile of some pixels of a row stays in registers while all channels and the rows of the
window pass (`templates.tiled_sum`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.tiling import choose_tile, lanes_of, least_overlapping
from graft.core.schedule.strategies.convolutions.channel_order import saved
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Preference, Strategy, of_stages
from graft.core.schedule.templates.tiled_sum import Tile, tiled_sum
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.ir import Stage

BUSY_REGISTERS = 2
"""What an activation behind the sums takes."""
PIXELS = 13
"""Pixels of a tile of a row whose length varies, at the most."""
SUMS = 16
"""Sums of a tile at the most: of more, the loads of a row of the window, which is written out, take the registers. Six
pixels by four vectors took 1.33 to 1.5 times as long as four by four (Zen 5, 32 registers, 3 to 48 and 64 channels of
3 x 3 to 7 x 7)."""
LEAST_POWER = 4
"""Pixels of a tile of a row whose length varies from which on they are a power of two."""
MAX_WINDOW = 128
"""Positions of a window that are written out in part; a larger one is left to other schedules."""


def schedule_few_channels(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with tiles of pixels and output channels; None if it is no such convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor, 4)
    if epilogue is None or found is None or found.window.groups != 1:
        return None
    kind, windows = epilogue.anchor.value.type.dtype, found.windows
    weights = found.weights(kernel, stages, kind, kind)
    if found.image(kind, kind) is None or weights is None or math.prod(windows.kernel) > MAX_WINDOW:
        return None
    if not found.window.reads_channels_first or not found.window.stores_channels_last:
        return None
    width, tiled = found.shape[2], tiled_sum(kernel, target)
    if tiled is None:
        return None
    tile = choose_tile(PIXELS if width == VARIES else width, found.shape[3], kind, target, BUSY_REGISTERS)
    most = max(1, min(tile.rows, SUMS // tile.vectors))
    pixels = _usual(most) if width == VARIES else least_overlapping(width, most)
    return tiled.scheduled(kernel, Tile(tile.vectors, "x", pixels, order=1, unroll=windows.kernel[1]))


def _usual(most: int) -> int:
    """Return the pixels of a tile of a row whose length varies: a power of two, as most lengths are multiples of one.

    Fourteen lengths of 14 to 160 each take 0.94 of the time with 64-byte vectors (0.58 to 1.09), 0.96 with 32-byte ones
    (0.73 to 1.14), where tiles would have 5 or 13; of 3 pixels 2 are too few.
    """
    return most if most < LEAST_POWER else 1 << (most.bit_length() - 1)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.window.groups != 1:
        return Reject("shape", "no convolution without groups")
    is_first = found.window.reads_channels_first and found.window.stores_channels_last
    return True if is_first else Reject("layout", "channels do not come first and leave last")


def _applies_to_few(anchor: Anchor, target: Target) -> Answer:
    is_first = anchor.convolution is not None and anchor.convolution.window.is_first
    return _applies(anchor, target) if is_first else Reject("cost", "many channels are copied to be last")


def cost(anchor: Anchor, target: Target) -> float:
    """Return the cycles of one image: a multiply-add for each vector of channels, pixel and weight."""
    assert anchor.convolution is not None, anchor.kernel.name
    window = anchor.convolution.window
    pixels, lanes = math.prod(window.windows.target), lanes_of("float32", target)
    return pixels * math.prod(window.extents) * window.outputs / lanes


def _prefers(window: Window, target: Target) -> Preference | None:
    if not window.is_first:
        return None
    gains = window.windows.is_open and math.prod(window.windows.kernel) <= MAX_WINDOW
    return Preference("first", "last", gains=gains, saves=saved(window, target))


STRATEGY = Strategy(
    "first_convolution", CONVOLUTIONS, of_stages(schedule_few_channels), _applies, prefers=_prefers, cost=cost
)
VARYING = replace(STRATEGY, name="varying_first_convolution", applies=_applies_to_few, cost=None, varies=True)
