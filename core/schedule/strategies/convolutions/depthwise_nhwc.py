"""Depthwise convolutions of floats whose input and output keep channels last, as steps.

Vectors are of channels, and a tile is some pixels of a row in registers. The loops over a row of the window and over
the tile are skewed: each vector of the image is loaded once for all pixels that look at it. Of the window only the rows
inside of the image are run; tiles whose windows stay between its sides, which are nearly all of a large one, are one
body, without a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import DepthwiseParameters, Parameters, of_family
from graft.core.schedule.primitives.bounds import Clip, Overlap, Skew, Unswitch
from graft.core.schedule.primitives.loop_kinds import Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.plain_nest import plain_sum
from graft.core.schedule.primitives.schedule_text import take
from graft.core.schedule.primitives.staging import ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.ir import Buffer, Function, Stage

SPARE_REGISTERS = 4
"""What a tile leaves besides its sums and the weights of one row of a window."""
TILE_COST = 0.5
"""Pixels that a tile costs besides its own."""
PIXELS = 8
"""Pixels of a tile of a row whose length varies, at the most: of one that is no multiple, some are computed twice."""
TILES = 2, 4, 6, 12
"""Other numbers of them that are worth measuring."""
AXES = {0: "n", 1: "c", 2: "y", 3: "x"}
REDUCED = {0: "g", 1: "ky", 2: "kx"}


@dataclass(frozen=True, slots=True)
class Depthwise:
    """``out[n, y, x, c] = sum over window of weights[c, 0, window] * source[n, window at y, x, c]`` and its tile."""

    epilogue: Epilogue
    found: Convolution
    weights: Buffer
    lanes: int
    pixels: int

    @property
    def pack(self) -> Pack:
        """The order of the weights."""
        return Pack(self.weights.name, 0, self.lanes, f"{self.weights.name}_packed")

    def plain(self, kernel: Kernel) -> Function:
        """Return the plain loops."""
        window, epilogue = self.found.window, self.epilogue
        return plain_sum(
            kernel.name,
            epilogue.anchor,
            lambda place, total: epilogue.stores(place, total, None),
            [AXES[axis] for axis in window.result],
            [REDUCED[axis] for axis in window.reduced],
            (kernel.inputs, kernel.outputs),
            epilogue.is_heavy,
        )

    def steps(self) -> Iterator[Step]:
        """Yield the schedule."""
        windows, heavy = self.found.windows, self.epilogue.is_heavy
        one_tile = self.found.shape[2] == self.pixels
        yield Split("c", self.lanes, "c0", "c")
        if one_tile:
            yield Reorder(("c0", "x", "c"))
        else:
            yield Overlap("x", self.pixels, "x0", "x")
            yield Reorder(("x0", "c0", "x", "c"))
        if heavy:
            yield ComputeAt("sums", "c0")
            yield from (Vectorize("c.copy"), Unroll("x.copy"))
        yield ComputeAt("total", "c0")
        yield Reorder(("g", "ky", "x.sum", "kx", "c.sum"))
        yield Skew("x.sum", windows.strides[1], "kx", windows.dilations[1], "column")
        yield Clip("ky")
        if one_tile:
            yield Clip("column")
        yield self.pack
        yield from (Vectorize("c.zero"), Vectorize("c.sum"), Vectorize("c"))
        yield from (Unroll("x.zero"), Unroll("column"), Unroll("kx"))
        if not heavy:
            yield Unroll("x")
        yield Unswitch("c0", "last")
        if self.found.shape[2] in range(self.pixels + 1, 2 * self.pixels + 1):
            yield Unroll("x0")
        elif not one_tile:
            yield Unswitch("x0", "border")
        yield from (Parallel("n"), Parallel("y"))


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
    if found.image(kind) is None or weights is None or found.windows.dilations != (1, 1):
        return None
    if not found.window.reads_channels_last or not found.window.stores_channels_last:
        return None
    wanted = None if parameters is None else parameters.rows
    lanes = lanes_of(kind, target)
    one = Depthwise(epilogue, found, weights, lanes, _pixels(found, target, wanted))
    packed = {weights: one.pack.contents(kernel.constants[weights])}
    return Scheduled(
        lambda: replace(lowered(take(one.plain(kernel), one.steps())), origin=kernel.origin),
        packed,
        knobs={"pixels": one.pixels},
    )


def _pixels(found: Convolution, target: Target, wanted: int | None) -> int:
    """Return the pixels of a tile: as many as fit the registers, where few of a row are computed twice."""
    most, width = max(1, target.machine.registers - SPARE_REGISTERS - found.windows.kernel[1]), found.shape[2]
    if width == VARIES:
        return min(PIXELS if wanted is None else wanted, most)
    sizes = range(max(1, min(most, width) // 2), min(most, width) + 1)
    return min(sizes, key=lambda size: (-(-width // size) * (size + TILE_COST), -size))


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
