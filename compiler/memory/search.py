"""Search for placements that first fit does not find: exact for few tensors, hill climbing over orders for many.

Offline bin packing of intervals is NP-hard, so that both have budgets: counts of steps, not of seconds, so that a
model has the same plan on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from graft.compiler.memory.first_fit import Placement, first_fit
from graft.compiler.memory.lifetimes import Lifetime

FEW = 40
"""Up to so many tensors the exact search is tried."""
EXACT_STEPS = 4_000
CLIMBING_WORK = 200_000
"""Pairs of tensors that hill climbing looks at: a tenth of a second."""


def climb(start: Placement, lifetimes: Sequence[Lifetime], overlaps: Sequence[Sequence[int]], bound: int) -> Placement:
    """Move a tensor that ends at the top before one that it overlaps with, and keep what is not worse."""
    generator = random.Random(len(lifetimes))
    work = sum(map(len, overlaps)) + len(lifetimes)
    best = here = start
    for _ in range(CLIMBING_WORK // work):
        if best.total == bound:
            break
        top = [one for one in here.order if here.offsets[one] + lifetimes[one].room == here.total]
        moved = generator.choice(top)
        below = generator.choice([moved, *overlaps[moved]])
        pushed = generator.choice([below, *overlaps[below]])
        order = [one for one in here.order if one != pushed]
        order.insert(generator.randrange(len(order) + 1), pushed)
        found = first_fit(order, lifetimes, overlaps)
        if found.total <= here.total:
            here = found
        if here.total < best.total:
            best = here
    return best


class ExactSearch:
    """A depth-first search over placements in order of offset: each tensor stands on one below it, or on the floor.

    Some best placement has that form: lowering tensors until each rests on another makes no arena larger. What is live
    at a step and not yet placed comes above what is placed there, so that a branch ends as soon as some step would
    reach ``limit``.
    """

    def __init__(self, lifetimes: Sequence[Lifetime], limit: int, steps: int = EXACT_STEPS) -> None:
        """Look for an arena below ``limit`` bytes, within so many steps."""
        self._lifetimes = lifetimes
        self._limit = limit
        self._left = steps
        last = max(one.last for one in lifetimes)
        self._height = [0] * (last + 1)
        """The top of what is placed, by step ..."""
        self._waiting = [0] * (last + 1)
        """... and the room of what is live there and not placed."""
        for one in lifetimes:
            for step in range(one.first, one.last + 1):
                self._waiting[step] += one.room
        self._offsets = [-1] * len(lifetimes)

    def run(self) -> tuple[int, ...] | None:
        """Return offsets, or None where there are none or the steps do not suffice."""
        return tuple(self._offsets) if self._place(0, 0) else None

    def _place(self, count: int, lowest: int) -> bool:
        if count == len(self._lifetimes):
            return True
        self._left -= 1
        if self._left < 0:
            return False
        floors = []
        for index, one in enumerate(self._lifetimes):
            if self._offsets[index] < 0:
                floor = max(self._height[one.first : one.last + 1])
                if floor >= lowest:
                    floors.append((floor, -one.room, index))
        return any(self._tried(index, floor, count) for floor, _, index in sorted(floors))

    def _tried(self, index: int, floor: int, count: int) -> bool:
        one = self._lifetimes[index]
        span = slice(one.first, one.last + 1)
        before = self._height[span]
        self._height[span] = [floor + one.room] * len(before)
        self._waiting[span] = [waiting - one.room for waiting in self._waiting[span]]
        self._offsets[index] = floor
        reach = max(map(int.__add__, self._height[span], self._waiting[span]))
        if reach < self._limit and self._place(count + 1, floor):
            return True
        self._offsets[index] = -1
        self._waiting[span] = [waiting + one.room for waiting in self._waiting[span]]
        self._height[span] = before
        return False
