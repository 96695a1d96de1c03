"""Equations of extents: two sides, and how they must agree."""

from __future__ import annotations

from dataclasses import dataclass, field

from graft.core.affine.counterexamples import sampled
from graft.core.affine.expressions import Ranges, equal, interval, subtract
from graft.runtime.extents import Agreement, Extent, agree


@dataclass(frozen=True, slots=True)
class Equation:
    """That two extents agree: they are equal, broadcast with each other, or the left is at most the right."""

    left: Extent
    right: Extent
    kind: Agreement = "equal"
    says: tuple[str, str, str] | None = field(default=None, compare=False)
    """The message where they do not agree: what stands before, between and behind the two numbers; or as the kind."""

    def holds(self, ranges: Ranges | None = None) -> bool | None:
        """Whether it holds for all values of its symbols, for none, or (None) for some, or that is not known."""
        if isinstance(self.left, int) and isinstance(self.right, int):
            return agree(self.kind, self.left, self.right)
        agreed = {agree(self.kind, *sides) for sides in sampled((self.left, self.right), ranges)}
        if len(agreed) > 1:
            return None
        low, high = interval(subtract(self.right, self.left), ranges)
        if self.kind == "at most":
            return True if low >= 0 else False if high < 0 else None
        found = True if low == high == 0 else equal(self.left, self.right, ranges)
        ones = {"equal": (), "broadcast": (self.left, self.right), "expand": (self.left,)}[self.kind]
        if found is True or 1 in ones:
            return True
        return False if found is False and not any(_may_be_one(side, ranges) for side in ones) else None


def _may_be_one(extent: Extent, ranges: Ranges | None) -> bool:
    low, high = interval(extent, ranges)
    return low <= 1 <= high
