"""First convolutions in bfloat16: float32 planes of few channels come in, many channels come out last.

As in `graft.core.schedule.strategies.convolutions.im2col_bf16` patches are copied a block at a time; here each row of
a window in each plane is a short run, rounded on its way. Runs are read by whole vectors: what is too much is
overwritten by the next run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.primitives.statements import between, column_mask, ramp
from graft.core.schedule.primitives.vectorize import both, broadcast
from graft.core.schedule.products.patches import plain_convolution
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.convolutions import first_convolution
from graft.core.schedule.strategies.convolutions.im2col_bf16 import Window, candidates_of, rounds, schedule_window
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.ir import Block, Buffer, Expression, If, Load, Stage, Statement, Store, Variable

RUN_CYCLES = 4
"""Cycles to copy a run."""


def schedule_planes(
    kernel: Kernel, stages: Sequence[Stage], target: Target, parameters: Parameters | None = None
) -> Scheduled | None:
    """Return such a convolution as a product of patches; None for another, or if copying costs more than it gives."""
    planes = _planes_of(kernel, stages)
    return None if planes is None else schedule_window(kernel, stages, planes, target, parameters)


@dataclass(frozen=True, slots=True)
class _Planes(Window):
    """A convolution taken apart: images ``[n, c, h, w]``, and the rest as behind any window."""

    @property
    def is_pixel(self) -> bool:
        return False

    @property
    def width(self) -> int:
        """The lanes of a run."""
        return 1 << (self.windows.kernel[1] - 1).bit_length()

    def contents(self, kernel: Kernel) -> np.ndarray:
        return np.ascontiguousarray(kernel.constants[self.weights].reshape(self.shape[3], -1).T)

    def lines(self, rows: Buffer, row: Expression, at: Sequence[Variable], lanes: int) -> list[Statement]:
        """Return what copies a window; where all of it lies between the image's sides, without masks."""
        start, _ = self.position(1, at[2], 0)
        across = self.windows.source[1]
        between = b.all_of([b.less_equal(b.index(0), start), b.less_equal(b.add(start, self.width), across)])
        assert between is not None, "no sides"
        apart = [Block(tuple(self._runs(rows, row, at, start, masked=masked))) for masked in (False, True)]
        return [If(between, *apart)]

    def _runs(
        self, rows: Buffer, row: Expression, at: Sequence[Variable], start: Expression, *, masked: bool
    ) -> list[Statement]:
        (down, across), lanes = self.windows.kernel, self.width
        place = ramp(start, lanes)
        sides = between(place, self.windows.source[1]) if masked else None
        statements: list[Statement] = []
        for number in range(self.channels * down):
            line, inside = self.position(0, at[1], number % down)
            end = number == self.channels * down - 1 and lanes > across
            last = column_mask(0, across, lanes) if end else None
            own = ramp(b.index(number * across), lanes)
            value = rounded(Load(self.source, (at[0], b.index(number // down), line, place), both(sides, last)))
            run: Statement = Store(rows, (row, own), value, last)
            if inside is not None:
                zero = broadcast(b.constant(0, "bfloat16"), lanes)
                run = If(inside, run, Store(rows, (row, own), zero, last))
            statements.append(run)
        return statements


def _planes_of(kernel: Kernel, stages: Sequence[Stage]) -> _Planes | None:
    """Take apart ``out[n, y, x, o] = sum over c, window of source[n, c, window at y, x] * weights[o, c, window]``."""
    plain = plain_convolution(kernel, stages, "float32", "float32", "float32")
    if plain is None or plain[0].windows.dilations[1] != 1:
        return None
    found, source, _, _ = plain
    is_first = found.window.reads_channels_first and found.window.stores_channels_last
    return _Planes(*plain, source) if is_first else None


def _applies(anchor: Anchor, target: Target) -> Answer:
    if target.precision != "bf16":
        return Reject("accuracy", "bfloat16 is not wanted")
    planes = anchor.stages and _planes_of(anchor.kernel, anchor.stages)
    if not planes:
        return Reject("layout", "no planes of a float32 image, or channels not last in the result")
    fits = planes.windows.kernel[1] <= lanes_of("float32", target)
    return fits or Reject("size", "a row of a window is longer than a vector")


def _cost(anchor: Anchor, target: Target) -> float:
    """Pairs of products halve the cycles, copying a run for each row of a window adds some."""
    planes = _planes_of(anchor.kernel, anchor.stages or ())
    assert planes is not None, anchor.kernel.name
    runs = math.prod(planes.windows.target) * planes.channels * planes.windows.kernel[0]
    return first_convolution.cost(anchor, target) / 2 + runs * RUN_CYCLES


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, stages = anchor.kernel, anchor.stages
    return (stages and schedule_planes(kernel, stages, target, anchor.parameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    window = None if anchor.stages is None else _planes_of(anchor.kernel, anchor.stages)
    return candidates_of(window, anchor, target, stage)


STRATEGY = Strategy("first_convolution_bf16", CONVOLUTIONS, _build, _applies, _candidates, rounds=rounds, cost=_cost)
