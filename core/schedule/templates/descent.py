"""Search among the points of a template: from the best of some by coordinate descent, as far as a budget goes.

A point is a frozen value whose fields are the template's knobs. What it costs is the caller's to say: cycles of a
model, or of a simulator. Droplet Search (arXiv 2406.20037) starts likewise from the best of a few hundred candidates;
here a model of cycles chooses where it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Generic, TypeVar

Point = TypeVar("Point", bound=Any)
"""A frozen dataclass."""
REACH = 2
"""So many values of a knob, smaller and larger ones, are next to one, if all else stays as it is."""


@dataclass(frozen=True, slots=True)
class Space(Generic[Point]):
    """The points that are possible, and by knob the values that they have."""

    points: frozenset[Point]
    values: dict[str, list[Any]]

    @classmethod
    def of(cls, points: Iterable[Point]) -> Space[Point]:
        """Return the space of some points."""
        own = frozenset(points)
        names = [field.name for field in fields(next(iter(own)))] if own else []
        return cls(own, {name: sorted({getattr(one, name) for one in own}) for name in names})

    def near(self, point: Point) -> Iterator[Point]:
        """Yield the possible points next to one, which differ from it in one knob."""
        for name, values in self.values.items():
            at = values.index(getattr(point, name))
            for side in (values[at - 1 :: -1] if at else [], values[at + 1 :]):
                changed = (replace(point, **{name: value}) for value in side)
                yield from islice((one for one in changed if one in self.points), REACH)


def descend(
    space: Space[Point], starts: Iterable[Point], cost: Callable[[Point], float], trials: int | None = None
) -> dict[Point, float]:
    """Return what points cost that were tried, at most so many: the starts, then what is near the best while it gains.

    The least is the choice; of equal ones the first.
    """
    found: dict[Point, float] = {}
    asked, best = iter(starts), None
    while True:
        for one in asked:
            if trials is not None and len(found) >= trials:
                return found
            if one not in found:
                found[one] = cost(one)
        before, best = best, min(found, key=found.__getitem__, default=None)
        if best is None or best == before:
            return found
        asked = space.near(best)
