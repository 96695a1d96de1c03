"""What it saves to have the channels of images of known extents last: a model of cycles.

Where vectors have no masks, ends of rows of pixels cost whole vectors; Winograd's transforms shuffle lanes; few
channels leave vectors of channels empty. So the model says, convolution by convolution, what channels last save.
"""

from __future__ import annotations

from math import prod

from graft.core.machine.target import Target
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.convolutions.winograd_transform import MIN_CHANNELS, MIN_LANES, POINTS, WINDOW
from graft.core.tensor_ir.anchors import Window

CYCLES: dict[bool, dict[str, tuple[float, float]]] = {
    False: {
        "winograd": (0.29, 0.23),
        "winograd of every second pixel": (0.61, 0.52),
        "window": (0.74, 0.64),
        "dilated window": (0.56, 0.64),
        "pixel": (0.66, 0.66),
        "few channels": (0.80, 0.76),
        "few channels of every pixel": (0.80, 0.76),
        "depthwise": (1.0, 0.82),
    },
    True: {
        "winograd": (0.21, 0.195),
        "winograd of every second pixel": (0.53, 0.47),
        "window": (0.56, 0.52),
        "dilated window": (0.42, 0.51),
        "pixel": (0.525, 0.515),
        "few channels": (0.73, 0.54),
        "few channels of every pixel": (0.53, 0.70),
        "depthwise": (1.1, 1.0),
    },
}
"""Cycles per multiply-add of a vector with channels first, and last; by whether the machine masks lanes.

Medians of 285 convolutions of 43 networks, one thread of a Zen 4 with vectors of 32 bytes (AVX2), and of 204 of 34
networks, one thread of a Zen 5 with AVX-512.
"""
DIRECT_CYCLES = 1.13
"""Cycles per multiply-add of a vector in a direct sum, where vectors are full."""
PATCHED = 2.2
"""Cycles to copy a vector of a patch."""
MIN_FILLED = 0.85
"""Direct convolutions have channels on the lanes where pixels would fill them less."""
COPIED = 0.7
"""Cycles to move or to join an element of an image."""


def has_any_order(target: Target) -> bool:
    """Whether float32 images of known extents, too, are stored in the order that saves most."""
    is_wide = lanes_of("float32", target) >= MIN_LANES
    return target.precision == "float32" and not target.machine.is_device and is_wide


def saved(window: Window, target: Target) -> float:
    """Return about how many cycles of one image a convolution saves with channels last; negative if it takes more.

    0 where extents vary, and where images have no order that saves most.
    """
    if window.windows.is_open or not has_any_order(target):
        return 0.0
    lanes, (first, last) = lanes_of("float32", target), CYCLES[target.machine.masks][_kind(window, target)]
    channels = window.groups if window.is_depthwise else window.outputs
    filled = -(-channels // lanes) * lanes / channels
    products = prod(window.windows.target) * prod(window.extents) * window.outputs * window.groups / lanes
    return products * (first - last * filled)


def direct_cycles(window: Window, target: Target) -> float:
    """Return the cycles of one image summed directly, each weight times all of its pixels, which are copied first."""
    pixels, lanes = prod(window.windows.target), lanes_of("float32", target)
    terms = window.groups * prod(window.extents)
    vectors = -(-pixels // lanes) if pixels / lanes / -(-pixels // lanes) >= MIN_FILLED else pixels / lanes
    copied = 0 if window.is_pointwise else vectors * PATCHED
    return terms * (window.outputs * (vectors * DIRECT_CYCLES + 4 / target.machine.far.bandwidth) + copied)


def _kind(window: Window, target: Target) -> str:
    w = window.windows
    if window.is_depthwise:
        return "depthwise"
    if window.is_first:
        return "few channels of every pixel" if max(w.strides) == 1 else "few channels"
    if max(w.dilations) > 1:
        return "dilated window"
    is_small = w.kernel == (WINDOW, WINDOW) and w.strides in [(stride, stride) for stride in POINTS]
    if is_small and window.inputs >= MIN_CHANNELS and "winograd" not in target.without:
        return "winograd" if w.strides == (1, 1) else "winograd of every second pixel"
    return "pixel" if prod(w.kernel) == 1 else "window"
