"""Static memory planning: offsets in one arena for tensors with known lifetimes.

Offline bin packing of intervals is NP-hard. This is greedy-by-size with first fit (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020), run over several orders; the smallest arena wins. The lower
bound is the largest sum of bytes that are live at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor to place: its size in bytes, live from step ``first`` to step ``last``, both included."""

    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """An offset per lifetime, the arena's size and its lower bound, in bytes."""

    offsets: tuple[int, ...]
    arena_bytes: int
    bound_bytes: int


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Place all lifetimes so that no two that overlap in time overlap in memory."""
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
