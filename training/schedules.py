"""Schedules of the learning rate: the rate of a step by its number, from 0 on, for `Trainer.fit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Schedule = Callable[[int], float]


def cosine(rate: float, steps: int, *, warmup: int = 0, least: float = 0.0) -> Schedule:
    """Return half a wave from a rate down to the least one after ``steps`` steps (arXiv 1608.03983)."""
    return warmed(lambda step: least + (rate - least) * (1 + math.cos(math.pi * min(step / steps, 1.0))) / 2, warmup)


def linear(rate: float, steps: int, *, warmup: int = 0, least: float = 0.0) -> Schedule:
    """Return a line from a rate down to the least one after ``steps`` steps."""
    return warmed(lambda step: rate + (least - rate) * min(step / steps, 1.0), warmup)


def stepwise(rate: float, factors: Mapping[int, float]) -> Schedule:
    """Return a rate that is multiplied by a factor from each of some steps on."""
    return lambda step: rate * math.prod(factor for first, factor in factors.items() if step >= first)


def warmed(schedule: Schedule, steps: int) -> Schedule:
    """Return a schedule that first rises over ``steps`` steps, by equal parts of what it is there."""
    return lambda step: schedule(step) * min(1.0, (step + 1) / (steps + 1))
