"""Lifetimes of tensors: what overlaps in time, what is live at each step, and the bound that no arena is below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor to place: its size in bytes, live from step ``first`` to step ``last``, both included.

    ``on``, where it is not -1, is the number of another of as many bytes, whose last step is ``first``: this one takes
    its place.
    """

    bytes: int
    first: int
    last: int
    on: int = -1

    @property
    def room(self) -> int:
        """What it takes of the arena: its bytes up to the next multiple of the alignment."""
        return -(-max(self.bytes, 1) // ALIGNMENT) * ALIGNMENT


def live_bytes(lifetimes: Sequence[Lifetime]) -> list[int]:
    """Return, by step from 0 on, the sum of the room of what is live; none of them is on another."""
    changes = [0] * (max((one.last for one in lifetimes), default=-1) + 2)
    for one in lifetimes:
        changes[one.first] += one.room
        changes[one.last + 1] -= one.room
    return list(accumulate(changes))[:-1]


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the largest sum of room that is live at one step: no plan has a smaller arena."""
    return max(live_bytes(lifetimes), default=0)


def overlapping(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    """Return, for each lifetime, the others that it shares a step with."""
    found: list[list[int]] = [[] for _ in lifetimes]
    live: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda one: lifetimes[one].first):
        live = [one for one in live if lifetimes[one].last >= lifetimes[index].first]
        for other in live:
            found[other].append(index)
        found[index].extend(live)
        live.append(index)
    return found
