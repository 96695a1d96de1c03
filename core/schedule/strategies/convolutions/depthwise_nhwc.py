"""Depthwise convolutions of floats whose input and output keep channels last (`templates.tiled_sum`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import DepthwiseParameters, Parameters, of_family
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.tiling import least_overlapping
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.schedule.templates.tiled_sum import Tile, tiled_sum
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.ir import Stage

SPARE_REGISTERS = 4
"""What a tile leaves besides its sums and the weights of one row of a window."""
PIXELS = 8
"""Pixels of a tile of a longer row, or of one whose length varies, at the most: code of more is slow to fetch."""
ROW = 16
"""Pixels of a row that one tile computes as a whole, if it has registers for that."""
TILES = 2, 4, 6, 12
"""Other numbers of them that are worth measuring."""


def schedule_depthwise(
    kernel: Kernel, stages: Sequence[Stage], target: Target, parameters: DepthwiseParameters | None = None
) -> Scheduled | None:
    """Return the kernel with vectors of channels; None if it is no such depthwise convolution."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor, 4)
    if epilogue is None or found is None or not found.window.is_depthwise or epilogue.anchor.value.type.is_custom:
        return None
    kind = epilogue.anchor.value.type.dtype
    weights = found.weights(kernel, (epilogue.anchor, *epilogue.followers), kind, kind)
    if found.image(kind) is None or weights is None:
        return None
    if not found.window.reads_channels_last or not found.window.stores_channels_last:
        return None
    wanted = None if parameters is None else parameters.rows
    tile = Tile(1, "x", _pixels(found, target, wanted), order=1, unroll=found.windows.kernel[1], skew=True)
    tiled = tiled_sum(kernel, target)
    return None if tiled is None else tiled.scheduled(kernel, tile)


def _pixels(found: Convolution, target: Target, wanted: int | None) -> int:
    """Return the pixels of a tile: as many as fit the registers, where few of a row are computed twice."""
    most, width = max(1, target.machine.registers - SPARE_REGISTERS - found.windows.kernel[1]), found.shape[2]
    usual = max(1, PIXELS // found.windows.strides[1])
    if width == VARIES:
        return min(usual if wanted is None else wanted, most)
    return least_overlapping(width, min(most, ROW if width <= ROW else usual))


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise:
        return Reject("shape", "no depthwise convolution")
    is_last = found.window.reads_channels_last and found.window.stores_channels_last
    return True if is_last else Reject("layout", "channels are not last")


def _prefers(window: Window, target: Target) -> Preference | None:
    w = window.windows
    fits = (
        window.is_depthwise and w.rank == 2 and w.dilations == (1, 1) and min(window.groups, *w.source, *w.target) > 1
    )
    return Preference("last", "last", gains=True) if fits else None


def _prefers_varying(window: Window, target: Target) -> Preference | None:
    w = window.windows
    fits = window.is_depthwise and w.rank == 2 and w.dilations == (1, 1)
    return Preference("last", "last", gains=True) if fits else None


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    parameters = of_family(anchor.parameters, DepthwiseParameters)
    return (anchor.stages and schedule_depthwise(anchor.kernel, anchor.stages, target, parameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Pixels of a tile."""
    return [] if stage > 0 else [DepthwiseParameters(rows=rows) for rows in TILES]


STRATEGY = Strategy("depthwise_nhwc", CONVOLUTIONS, _build, _applies, prefers=_prefers)
VARYING = replace(STRATEGY, name="varying_depthwise", candidates=_candidates, prefers=_prefers_varying, varies=True)
"""Takes depthwise convolutions of neighbouring pixels with channels last; `varying_convolution` takes the others."""
