"""Static memory planning: offsets in one arena for tensors with known lifetimes.

Offline bin packing of intervals is NP-hard. This is greedy-by-size with first fit (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020), run over several orders; the smallest arena wins. The lower
bound is the largest sum of bytes that are live at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    sizes = [-(-max(lifetime.bytes, 1) // ALIGNMENT) * ALIGNMENT for lifetime in lifetimes]
    bound = _lower_bound(lifetimes, sizes)
    best: tuple[int, list[int]] | None = None
    for order in _ORDERS:
        keys = [(order(lifetime, size), i) for i, (lifetime, size) in enumerate(zip(lifetimes, sizes, strict=True))]
        ranked = [i for _, i in sorted(keys)]
        offsets = _first_fit(ranked, lifetimes, sizes)
        total = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
        if best is None or total < best[0]:
            best = (total, offsets)
        if total == bound:
            break
    assert best is not None
    return MemoryPlan(tuple(best[1]), best[0], bound)


_ORDERS: tuple[Callable[[Lifetime, int], tuple[int, ...]], ...] = (
    lambda lifetime, size: (-size, lifetime.first),
    lambda lifetime, size: (-size * (lifetime.last - lifetime.first + 1), lifetime.first),
    lambda lifetime, size: (lifetime.first, -size),
    lambda lifetime, size: (-(lifetime.last - lifetime.first), -size),
)
"""Orders of placement: by size, by size times duration, by time, by duration."""


def _first_fit(ranked: Sequence[int], lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> list[int]:
    """Give each tensor, in this order, the lowest offset where it meets no placed tensor that it overlaps in time."""
    offsets = [0] * len(sizes)
    placed: list[int] = []  # sorted by offset
    for index in ranked:
        lifetime, size, candidate = lifetimes[index], sizes[index], 0
        for other in placed:
            theirs = lifetimes[other]
            if theirs.last < lifetime.first or lifetime.last < theirs.first:
                continue
            if offsets[other] >= candidate + size:
                break
            candidate = max(candidate, offsets[other] + sizes[other])
        offsets[index] = candidate
        position = len(placed)
        while position > 0 and offsets[placed[position - 1]] > candidate:
            position -= 1
        placed.insert(position, index)
    return offsets


def _lower_bound(lifetimes: Sequence[Lifetime], sizes: Sequence[int]) -> int:
    """Return the largest sum of sizes live at one step."""
    changes: dict[int, int] = {}
    for lifetime, size in zip(lifetimes, sizes, strict=True):
        changes[lifetime.first] = changes.get(lifetime.first, 0) + size
        changes[lifetime.last + 1] = changes.get(lifetime.last + 1, 0) - size
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak
