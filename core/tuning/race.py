"""Races: candidates run in turns, and the slower half drops out after each round (successive halving).

Turns keep the comparison fair on a machine whose speed wanders; of each candidate's times the two fastest count, since
what disturbs a run only ever makes it slower (Jamieson and Talwalkar, 2016; Chen and Revels, 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDS = (3, 3, 6, 9)
"""Runs of each candidate that is left, by round."""
HOPELESS = 1.5
"""Candidates that are slower than the best by this factor drop out after any round."""
MARGIN = 0.03
"""A challenger has to be faster than the one that holds the title by this share."""

Run = Callable[[], float]
"""Runs a candidate once and returns its seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of the winner, its time, that of number 0, and those of all, in seconds."""

    winner: int
    seconds: float
    first: float
    times: tuple[float, ...] = ()


def race(candidates: Sequence[Run], is_over: Callable[[], bool]) -> Outcome | None:
    """Return which candidate is fastest; number 0 holds the title and always stays to the end.

    ``is_over`` says that time is up: then what was measured decides, or nothing if the first round was not finished.
    """
    times: list[list[float]] = [[] for _ in candidates]
    left = list(range(len(candidates)))
    for laps in ROUNDS:
        for _ in range(laps):
            if is_over():
                return _decided(left, times) if len(times[0]) >= ROUNDS[0] else None
            for number in left:
                times[number].append(candidates[number]())
        left = _better_half(left, times)
        if left == [0]:
            break
    return _decided(left, times)


def _better_half(left: list[int], times: list[list[float]]) -> list[int]:
    ranked = sorted(left, key=lambda number: undisturbed(times[number]))
    limit = HOPELESS * undisturbed(times[ranked[0]])
    kept = [number for number in ranked[: max(2, -(-len(ranked) // 2))] if undisturbed(times[number]) <= limit]
    return sorted({0, *kept})


def _decided(left: list[int], times: list[list[float]]) -> Outcome:
    first = undisturbed(times[0])
    best = min(left, key=lambda number: undisturbed(times[number]))
    if undisturbed(times[best]) > (1 - MARGIN) * first:
        best = 0
    return Outcome(best, undisturbed(times[best]), first, tuple(map(undisturbed, times)))


def undisturbed(times: Sequence[float]) -> float:
    """Return the mean of the two smallest."""
    return sum(sorted(times)[:2]) / min(len(times), 2)
