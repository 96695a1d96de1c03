"""Arguments in any order: which pattern may take which input, and whether the others still find one each."""

from __future__ import annotations

from collections.abc import Sequence


class Assignment:
    """One input for each of as many patterns: a perfect matching that is kept while patterns choose in turn.

    ``possible[p]`` lists the inputs that pattern p may take at all. A choice that leaves the patterns that come later
    without a matching is refused at once, so a search never runs through the orders of inputs that cannot fit.
    """

    def __init__(self, possible: Sequence[Sequence[int]]) -> None:
        self.possible = possible

    def start(self) -> tuple[int, ...] | None:
        """Return an input for every pattern, None if there are not enough that fit."""
        mates = [-1] * len(self.possible)
        for pattern in range(len(mates)):
            if not self._augment(mates, pattern, 0):
                return None
        return tuple(mates)

    def choose(self, mates: tuple[int, ...], pattern: int, chosen: int) -> tuple[int, ...] | None:
        """Return the matching with ``chosen`` for a pattern, those of earlier patterns kept; None if there is none."""
        if mates[pattern] == chosen:
            return mates
        other = mates.index(chosen)
        changed = list(mates)
        changed[pattern], changed[other] = chosen, -1
        return tuple(changed) if self._augment(changed, other, pattern + 1) else None

    def _augment(self, mates: list[int], start: int, first: int) -> bool:
        """Find an input for pattern ``start``; only patterns from ``first`` on may change theirs (breadth first)."""
        owner = {chosen: pattern for pattern, chosen in enumerate(mates) if chosen >= 0}
        came_from: dict[int, int] = {}
        queue = [start]
        for pattern in queue:
            for chosen in self.possible[pattern]:
                if chosen in came_from:
                    continue
                holder = owner.get(chosen)
                if holder is None:
                    came_from[chosen] = pattern
                    self._shift(mates, came_from, chosen, start)
                    return True
                if holder >= first:
                    came_from[chosen] = pattern
                    queue.append(holder)
        return False

    def _shift(self, mates: list[int], came_from: dict[int, int], free: int, start: int) -> None:
        """Give every pattern along the path that ends in the free input its new input."""
        while True:
            pattern = came_from[free]
            free, mates[pattern] = mates[pattern], free
            if pattern == start:
                return
