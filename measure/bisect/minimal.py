"""Delta debugging: the smallest part of a list that still fails (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


def minimal(items: Sequence[int], fails: Callable[[Sequence[int]], bool], expired: Callable[[], bool]) -> list[int]:
    """Return a part of ``items``, in order, that fails and of which no item can be left out.

    ``items`` as a whole fail. Runs of items are tried first, so one that is at fault alone is found in about
    ``2 log2(len(items))`` trials. Where the time has ``expired`` the smallest part so far is the answer.
    """
    found = list(items)
    chunks = 2
    while len(found) > 1 and not expired():
        size = -(-len(found) // chunks)
        smaller = next((one for one in _candidates(found, size) if not expired() and fails(one)), None)
        if smaller is not None:
            chunks = 2 if len(smaller) <= size else max(2, chunks - 1)
            found = smaller
        elif size == 1:
            break
        else:
            chunks = min(len(found), 2 * chunks)
    return found


def _candidates(items: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield runs of so many items, then all items but each of the runs."""
    starts = range(0, len(items), size)
    yield from (list(items[start : start + size]) for start in starts)
    if len(starts) > 2:
        yield from ([*items[:start], *items[start + size :]] for start in starts)
