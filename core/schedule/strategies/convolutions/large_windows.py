"""Convolutions of large windows and few pixels, as the gradient of weights is: sums along the rows of windows.

A vector holds neighbouring terms of a sum, not neighbouring results: the image and the weights, which are the upstream
gradient there, are read where they lie, without patches. Sums of several samples, output channels and pixels of a row
stay in registers side by side, and what one of them loads serves the others; the lanes of each are added up at the end
(the 3x3 weights' gradient of 64 x 64 pixels: 0.9 of the fused multiply-adds that a Zen 5 core can start).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.loops.loop_frames import TASKS
from graft.core.schedule.primitives.bounds import Unswitch
from graft.core.schedule.primitives.loop_kinds import Jam, Parallel, Vectorize
from graft.core.schedule.primitives.loop_order import Peel, Reorder, Split
from graft.core.schedule.primitives.masking import Mask
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.schedule_text import print_schedule, take
from graft.core.schedule.primitives.staging import ComputeAt
from graft.core.schedule.primitives.statements import LINE
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.plain_kernel import names_of, plain_products, sum_of
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.tensor_ir.anchors import Window, Windows, outweighs
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import loads

LEAST_TERMS = 64
"""Vectors of terms that are added before the lanes of their sum are."""
MASKED = 4
"""Registers that masks take where a machine has no others for them (of AVX2's, tiles of more sums go to memory)."""
FLOATS = "float32", "float64"


@dataclass(frozen=True, slots=True)
class LargeWindows:
    """A convolution taken apart: extents of its axes and of those summed over, by name."""

    kernel: Kernel
    epilogue: Epilogue
    axes: dict[str, int]
    reduced: dict[str, int]
    channels: int
    """The output channels that read the same channels of the image: those of a group."""
    lanes: int
    target: Target

    def tile(self) -> dict[str, int]:
        """Return how many samples, output channels and pixels have their sums side by side, by axis, of two in space.

        All divide their extents. The fewest cycles for each sum count, as multiply-adds, loads and what comes from the
        third-level cache take them.
        """
        machine, costs = self.target.machine, self.target.machine.costs
        arrives = machine.vector_bytes / machine.cache(3).bandwidth if machine.caches else 0.0
        across = 1 + machine.vector_bytes / LINE  # most vectors of an image begin anywhere, and lie in two lines
        spare = machine.registers - 1 - (MASKED if self._is_cut and not machine.masks else 0)

        def cycles(one: tuple[int, int, int, int]) -> float:
            samples, channels, rows, columns = one
            sums, loaded = math.prod(one), samples * rows * columns * across + channels
            limit = max(sums / costs.fused, loaded / costs.loads, (samples * rows + channels) * arrives, costs.latency)
            return (limit + costs.load * loaded) / sums

        extents = self.axes["n"], self.channels, self.axes.get("y", 1), self.axes["x"]
        samples, channels, rows, columns = (_divisors(extent, machine.registers) for extent in extents)
        able = [
            one
            for one in itertools.product(samples, channels, rows, columns)
            if math.prod(one) + min(math.prod(one) // one[1], one[1]) <= spare
        ]
        best = min(able, key=cycles)
        return {axis: count for axis, count in zip("ncyx", best, strict=True) if axis in self.axes}

    def steps(self) -> Iterator[Step]:
        """Yield the schedule."""
        tile = self.tile()
        outer = [f"{axis}0" if axis in tile else axis for axis in self.axes]
        pixels = [axis for axis in reversed(tile) if axis != "c"]
        outer.sort(key=lambda name: "nczyx".index(name[0]))
        yield from (Split(axis, count, f"{axis}0", axis) for axis, count in tile.items())
        yield Reorder((*outer, *tile))
        yield from (ComputeAt(name, "x") for name in (*(["sums"] if self.epilogue.is_heavy else []), "total"))
        yield Reorder(tuple(self.reduced))
        if self.lanes > 1:
            yield from self._vectors()
        # what there is less of, weights or vectors of the image, stays in registers for all of the others
        few = tile["c"] <= math.prod(tile[axis] for axis in pixels)
        yield from map(Jam, [*pixels, "c"] if few else ["c", *pixels])
        yield from map(Parallel, self._shared(outer, tile))

    def _vectors(self) -> Iterator[Step]:
        """Yield the steps that make vectors of the terms of a window's row."""
        yield Split("kx", self.lanes, "kx", "lane")
        yield Rfactor("total", "lane", "register", "parts", (self._begun(),))
        if self._is_cut:
            yield Mask("parts")
        if self._is_cut and self.reduced["kx"] > self.lanes:
            yield Peel("kx", self.reduced["kx"] // self.lanes, "tail")
            yield Unswitch("kx", "cut")
            yield Vectorize("lane.tail")
        yield from (Vectorize("parts.in"), Vectorize("lane"), Horizontal("parts.turn"))

    @property
    def _is_cut(self) -> bool:
        """Whether a row of a window ends within a vector."""
        return self.reduced["kx"] % self.lanes > 0

    def _begun(self) -> str:
        """Return the loop in which a vector of sums begins anew: that of `LEAST_TERMS`."""
        names, terms = list(self.reduced), -(-self.reduced["kx"] // self.lanes)
        for number in reversed(range(1, len(names))):
            if terms >= LEAST_TERMS:
                return names[number]
            terms *= self.reduced[names[number - 1]]
        return names[0]

    def _shared(self, outer: list[str], tile: dict[str, int]) -> Iterator[str]:
        """Yield the loops that threads share: the outermost ones, until there are enough iterations."""
        iterations = 1
        for name in outer:
            if iterations < TASKS and (count := self.axes[name[0]] // tile.get(name[0], 1)) > 1:
                yield name
                iterations *= count

    def scheduled(self) -> Scheduled:
        """Return the kernel after these steps."""
        steps, plain = tuple(self.steps()), partial(plain_products, self.kernel, self.epilogue)
        return Scheduled(
            lambda: replace(lowered(take(plain(), steps)), origin=self.kernel.origin),
            knobs=self.tile(),
            steps=print_schedule(steps),
        )


def large_windows(kernel: Kernel, target: Target) -> LargeWindows | Reject:
    """Return a convolution of large windows and few pixels whose factors' rows lie in one piece; otherwise why not."""
    epilogue = None if target.machine.is_device else sum_of(kernel)
    found = None if epilogue is None else convolution_of(epilogue.anchor)
    if epilogue is None or found is None or epilogue.anchor.value.type.dtype not in FLOATS:
        return OTHER_FORM
    lanes = lanes_of(epilogue.anchor.value.type.dtype, target)
    if found.windows.is_open or not _are_large(found.windows, lanes):
        return Reject("shape", "its windows are not by far larger than its result, or their rows are short")
    anchor = epilogue.anchor
    assert anchor.reduction is not None, "a convolution is a sum"
    axes, reduced = names_of(anchor)
    terms = {name: axis.variable for name, axis in zip(reduced, anchor.reduction.axes, strict=True)}
    simplifier = Simplifier()
    for load in loads(anchor.value):
        if load.mask is not None or stride(load.indices[-1], terms["kx"], simplifier) != 1:
            return Reject("layout", "rows of image or windows do not lie in one piece, or reach beyond the image")
    shape = constant_shape(anchor.buffer)
    assert shape is not None, "rows of the table are for extents that are numbers unless they say otherwise"
    known = dict(zip(reduced, found.window.extents, strict=True))
    ordered = {name: known[name] for name in sorted(known, key=["g", "kz", "ky", "kx"].index)}
    extents = dict(zip(axes, shape, strict=True))
    return LargeWindows(kernel, epilogue, extents, ordered, found.window.outputs, lanes, target)


def _are_large(w: Windows, lanes: int) -> bool:
    return outweighs(w.kernel, w.target) and 2 * w.kernel[-1] >= lanes


def _prefers(window: Window, target: Target) -> Preference | None:
    """Prefer rows that lie as they do where channels come first."""
    own = not window.windows.is_open and _are_large(window.windows, lanes_of("float32", target))
    return Preference() if own else None


def _divisors(extent: int, most: int) -> list[int]:
    return [one for one in range(1, min(extent, most) + 1) if extent % one == 0]


def _applies(anchor: Anchor, target: Target) -> Answer:
    if anchor.parameters is not None:
        return Reject("user-excluded", "its tiles are not tuned, and parameters are given")
    found = large_windows(anchor.kernel, target)
    return found if isinstance(found, Reject) else True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    found = large_windows(anchor.kernel, target)
    return found if isinstance(found, Reject) else found.scheduled()


STRATEGY = Strategy("large_windows", CONVOLUTIONS, _build, _applies, prefers=_prefers)
