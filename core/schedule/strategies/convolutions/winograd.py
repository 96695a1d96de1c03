"""Winograd's algorithm as a strategy: for which convolutions, what it costs, and which of its knobs are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ContractionParameters, Parameters, WinogradParameters, of_family
from graft.core.schedule.primitives.vectorize import instantiate, lower_loops
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.convolutions.direct_nhwc import pair_cycles
from graft.core.schedule.strategies.convolutions.winograd_loops import Loops
from graft.core.schedule.strategies.convolutions.winograd_pieces import PieceLoops
from graft.core.schedule.strategies.convolutions.winograd_plan import (
    IN_PAIRS,
    INPUT_CYCLES,
    MOST_PIECES,
    OUTPUT_CYCLES,
    ImageInPieces,
    chosen_plan,
    fastest,
    plans,
    taken_apart,
)
from graft.core.schedule.strategies.convolutions.winograd_transform import MIN_CHANNELS, MIN_LANES, WINDOW, Transform
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.ir import Buffer, Function, Stage

BLOCKS = (2, 8, 16)
"""Blocks that are measured, in quarters of the one that is chosen."""


def schedule_winograd(
    kernel: Kernel, stages: Sequence[Stage], target: Target, wanted: WinogradParameters | None = None
) -> Scheduled | None:
    """Return a kernel by Winograd's algorithm, with both bodies where extents vary; None if that never pays.

    A plan that is wanted is followed, whether it pays or not.
    """
    own = taken_apart(kernel, stages, target)
    plan = None if own is None else chosen_plan(own, target, wanted)
    if own is None or plan is None:
        return None
    name, near = own.weights.name, np.empty(0, np.float32 if plan.width == 1 else np.int32)
    if own.direct is not None:
        name, near = own.direct.panels.name, own.direct.packed()
    contents = np.concatenate([near, plan.packed(kernel.constants[own.weights])])
    packed = Buffer(name, str(contents.dtype), (b.index(contents.size),), None, "host", 64)
    if own.direct is not None:
        own = replace(own, direct=replace(own.direct, panels=packed))
    loops = (PieceLoops if plan.columns == "pixels" else Loops)(own, plan, packed, near.size, target)
    knobs: dict[str, int | str] = {"pieces": plan.transform.outputs, "block": plan.most, "rows": plan.tile.rows}
    knobs |= {"vectors": plan.tile.vectors, "columns": plan.columns}
    knobs |= {"from_pixels": plan.least} if own.direct else {}

    def function() -> Function:
        made = loops.layout.function(kernel.function(lower_loops(loops.body()), {own.weights: packed}))
        return replace(made, body=instantiate(made.body, {}))  # what stands twice in it binds names of its own

    return Scheduled(function, {own.weights: contents}, knobs=knobs)


def _applies(anchor: Anchor, target: Target) -> Answer:
    is_exact = target.precision not in ("float32", "bf16")
    if is_exact or of_family(anchor.parameters, ContractionParameters) is not None:
        return Reject("accuracy" if is_exact else "cost", "sums of products are wanted")
    found, in_pairs = anchor.convolution, target.precision == "bf16"
    if found is None:
        return OTHER_FORM
    window, lanes = found.window, lanes_of("float32", target)
    w, strides = window.windows, [(1, 1)] if in_pairs else [(1, 1), (2, 2)]
    if window.groups != 1 or w.kernel != (WINDOW, WINDOW) or w.strides not in strides or max(w.dilations) > 1:
        pixels = "one pixel" if in_pairs else "one or two pixels"
        return Reject("shape", f"no convolution of 3 x 3 windows that move by {pixels}, without groups")
    layouts = [(window.reads_channels_last, window.reads_channels_first)]
    layouts.append((window.stores_channels_last, window.stores_channels_first))
    if not all(last or (first and not in_pairs) for last, first in layouts):
        return Reject("layout", "channels are not last")
    is_wanted = of_family(anchor.parameters, WinogradParameters) is not None
    if lanes < MIN_LANES or (window.inputs < MIN_CHANNELS and not is_wanted):
        return Reject("size", "channels are few, or vectors short")
    if anchor.varies and window.stores_channels_first and window.outputs <= lanes // 2:
        return Reject("size", "few channels leave, which others have pixels in vectors for")
    if in_pairs and (window.inputs % lanes or window.outputs % lanes):
        return Reject("shape", "channels do not fill whole vectors")
    if _is_in_pairs(anchor, target):
        if found.image("float32", "bfloat16") is None:
            return Reject("dtype", "no bfloat16 image")
        if 0 in w.source:  # there must be an element to read in place of what is beyond a side
            return Reject("shape", "the image is empty")
    return True


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return _is_in_pairs(anchor, target)


def _is_in_pairs(anchor: Anchor, target: Target) -> bool:
    """Whether extents are known, and images are stored in bfloat16."""
    return target.precision == "bf16" and not anchor.varies


def _own(anchor: Anchor, target: Target) -> ImageInPieces | None:
    return None if anchor.stages is None else taken_apart(anchor.kernel, anchor.stages, target)


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles of one image; None where extents vary, or the convolution is refused when it is built."""
    found, own = anchor.convolution, None if anchor.varies else _own(anchor, target)
    if found is None or own is None:
        return None
    window = found.window
    if not _is_in_pairs(anchor, target):
        weights = 4 * WINDOW**2 * window.inputs * window.outputs
        return fastest(own, target)[0] / own.pixels[0] + weights / target.machine.far.bandwidth
    (size,), stride = IN_PAIRS, window.windows.strides[0]
    transform, lanes = Transform(size, stride), lanes_of("float32", target)
    pieces = prod(-(-extent // size) for extent in window.windows.target)
    moved = window.inputs * INPUT_CYCLES[stride][size] + window.outputs * OUTPUT_CYCLES[stride][size]
    return pair_cycles(found, pieces, transform.products, target) + pieces * moved / lanes


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    wanted = of_family(anchor.parameters, WinogradParameters)
    return (anchor.stages and schedule_winograd(anchor.kernel, anchor.stages, target, wanted)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> Sequence[Parameters]:
    """Return each size of pieces, the likely best first, then other blocks, then other register tiles."""
    own, wanted = _own(anchor, target), replace(anchor, parameters=WinogradParameters(WINDOW - 1))
    if own is None or own.direct is not None or target.precision == "bf16" or not _applies(wanted, target):
        return []
    ranked = sorted(plans(own, target), key=lambda one: one.cycles_of(own.pieces(one.transform)))
    sizes = [WinogradParameters(one.transform.outputs, columns=one.columns) for one in ranked]
    best = of_family(anchor.parameters, WinogradParameters) or sizes[0]
    if stage == 0:
        return sizes
    _, plan = fastest(own, target, best)
    part, shape = plan.tile.rows, (min(own.pieces(plan.transform), MOST_PIECES), plan.outputs)
    if plan.columns == "pixels":
        part, shape = plan.grid[2], (plan.outputs, plan.most)
    if stage == 1:
        counts = (plan.most * times // 4 // part * part for times in BLOCKS)
        return [replace(best, block=count) for count in dict.fromkeys(counts) if count and count != plan.most]
    tiles = best_tiles(*shape, "float32", target)
    return [replace(best, rows=tile.rows, vectors=tile.vectors) for tile in tiles]


STRATEGY = Strategy(
    "winograd",
    CONVOLUTIONS,
    _build,
    _applies,
    _candidates,
    rounds=_rounds,
    cost=_cost,
    varies=None,
    switch="winograd",
)
"""Takes convolutions that `direct_nhwc` takes, too, and, where extents vary, sums those of few pixels as it does."""
