"""Memory plans: offsets in one arena by first fit, and by search where that leaves more than the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.compiler.memory.first_fit import best_of_orders
from graft.compiler.memory.lifetimes import Lifetime, lower_bound, overlapping
from graft.compiler.memory.search import FEW, ExactSearch, climb


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """An offset per lifetime, the arena's size and its lower bound, in bytes."""

    offsets: tuple[int, ...]
    arena_bytes: int
    bound_bytes: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place all lifetimes so that no two that overlap in time overlap in memory, but for those on one another."""
    first_ones, joint = _joined(lifetimes)
    plan = _plan_apart(joint)
    place = dict(zip((one for one in range(len(lifetimes)) if first_ones[one] == one), plan.offsets, strict=True))
    return MemoryPlan(tuple(place[first] for first in first_ones), plan.arena_bytes, plan.bound_bytes)


def plan_without_reuse(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place all lifetimes one behind another, as if each lasted from the first step to the last."""
    begin = min((lifetime.first for lifetime in lifetimes), default=0)
    end = max((lifetime.last for lifetime in lifetimes), default=0)
    return _plan_apart([Lifetime(lifetime.bytes, begin, end) for lifetime in lifetimes])


def _joined(lifetimes: Sequence[Lifetime]) -> tuple[list[int], list[Lifetime]]:
    """Return, for each lifetime, the first of those on one another, and the lifetimes of them together."""
    first_ones = []
    for number, lifetime in enumerate(lifetimes):
        while lifetime.on >= 0:
            below = lifetimes[lifetime.on]
            assert (below.bytes, below.last) == (lifetime.bytes, lifetime.first), (lifetime, below)
            number, lifetime = lifetime.on, below
        first_ones.append(number)
    last = [0] * len(lifetimes)
    for first, lifetime in zip(first_ones, lifetimes, strict=True):
        last[first] = max(last[first], lifetime.last)
    apart = [replace(one, last=last[number]) for number, one in enumerate(lifetimes) if one.on < 0]
    return first_ones, apart


def _plan_apart(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place lifetimes none of which is on another."""
    bound, overlaps = lower_bound(lifetimes), overlapping(lifetimes)
    placed = best_of_orders(lifetimes, overlaps, bound)
    if placed.total > bound:
        placed = climb(placed, lifetimes, overlaps, bound)
    offsets, total = placed.offsets, placed.total
    while bound < total and len(lifetimes) <= FEW:
        found = ExactSearch(lifetimes, total).run()
        if found is None:
            break
        offsets = found
        total = max(offset + one.room for offset, one in zip(offsets, lifetimes, strict=True))
    return MemoryPlan(offsets, total, bound)
