"""Placement by first fit: tensors in some order, each at the lowest offset that is free while it lives.

Over the orders of Pisarchyk and Lee ("Efficient Memory Management for Deep Neural Net Inference", 2020) the smallest
arena is the bound itself for most networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft.compiler.memory.lifetimes import Lifetime


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets that came of placing in an order, and the bytes that they take."""

    order: tuple[int, ...]
    offsets: tuple[int, ...]
    total: int


def first_fit(order: Sequence[int], lifetimes: Sequence[Lifetime], overlaps: Sequence[Sequence[int]]) -> Placement:
    """Place in this order."""
    offsets = [-1] * len(lifetimes)
    total = 0
    for index in order:
        room, candidate = lifetimes[index].room, 0
        taken = [(offsets[other], lifetimes[other].room) for other in overlaps[index] if offsets[other] >= 0]
        for offset, size in sorted(taken):
            if offset >= candidate + room:
                break
            candidate = max(candidate, offset + size)
        offsets[index] = candidate
        total = max(total, candidate + room)
    return Placement(tuple(order), tuple(offsets), total)


def best_of_orders(lifetimes: Sequence[Lifetime], overlaps: Sequence[Sequence[int]], bound: int) -> Placement:
    """Return the first placement that reaches the bound, or else the smallest."""
    best: Placement | None = None
    for key in _ORDERS:
        order = sorted(range(len(lifetimes)), key=lambda one: (key(lifetimes[one]), one))
        found = first_fit(order, lifetimes, overlaps)
        if best is None or found.total < best.total:
            best = found
        if best.total == bound:
            break
    assert best is not None
    return best


_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda one: (-one.room, one.first),
    lambda one: (-one.room * (one.last - one.first + 1), one.first),
    lambda one: (one.first, -one.room),
    lambda one: (-(one.last - one.first), -one.room),
)
"""Orders of placement: by size, by size times duration, by time, by duration."""
