"""Convolutions in which nothing but the batch varies: the schedule that one image has, in a loop over the images.

Which layouts convolutions want, and which strategy takes them, is so what it is for numbers. Those of so few pixels are
not taken: theirs are counted through all images, so that weights are read once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, StrategyTable

LEAST_PIXELS = 16
"""Pixels of one image for which its own convolution reads the weights."""


def by_image(numbers: StrategyTable) -> Strategy:
    """Return the strategy that takes the schedules of a table for kernels of numbers."""

    def inner(anchor: Anchor) -> Anchor:
        assert anchor.image is not None, f"not only the batch of '{anchor.kernel.name}' varies"
        return Anchor(anchor.image.kernel, anchor.parameters)

    def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
        image = anchor.image
        assert image is not None, f"not only the batch of '{anchor.kernel.name}' varies"
        found = numbers.scheduled(inner(anchor), target)
        if found.strategy == numbers.rows[-1].name:
            return Reject("cost", f"one image has no schedule but {found.strategy}")
        knobs = {"image": found.strategy, **found.knobs}
        return replace(found, source=lambda: image.for_all(found.function, target.machine), knobs=knobs)

    def candidates(anchor: Anchor, target: Target, stage: int) -> Sequence[Parameters]:
        if not applies(anchor, target):
            return ()
        if stage == 0:
            proposed = (one for one in numbers.of(Trait.CONVOLUTION) if not one.varies and one.candidates is not None)
            return [
                wanted
                for row in proposed
                for wanted in (row.candidates(inner(anchor), target, 0) if row.candidates else ())
                if row.takes(replace(inner(anchor), parameters=wanted), target)
            ]
        row = numbers.first(inner(anchor), target)
        return () if row is None or row.candidates is None else row.candidates(inner(anchor), target, stage)

    def rounds(anchor: Anchor, target: Target) -> bool | None:
        return numbers.rounds(inner(anchor), target)

    is_for_integers = any(row.is_for_integers for row in numbers.of(Trait.CONVOLUTION))
    return Strategy(
        "convolution_by_image", CONVOLUTIONS, build, applies, candidates, is_for_integers, rounds=rounds, varies=True
    )


def applies(anchor: Anchor, target: Target) -> Answer:
    """Whether nothing but the batch varies, and an image is large enough."""
    if target.machine.is_device:
        return Reject("unavailable", "the machine has blocks of threads")
    if anchor.image is None:
        return Reject("shape", "more than the batch varies")
    found = anchor.convolution
    if found is not None and prod(found.window.windows.target) < LEAST_PIXELS:
        return Reject("size", "an image has few pixels")
    return True
