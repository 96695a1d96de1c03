"""Numbers that a seed gives, the same on every machine and with every version of NumPy.

NumPy promises no such thing of its generators, and a model that a seed no longer gives cannot be talked about. So words
come from SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixing function, one word after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

WORD = 1 << 64
GAMMA = 0x9E3779B97F4A7C15
"""How far the counter goes with each word."""


class Source:
    """A stream of choices: every choice is made by `below`, so a subclass may take them from elsewhere."""

    def __init__(self, seed: int) -> None:
        self.counter = seed % WORD

    def below(self, count: int) -> int:
        """Return a whole number of ``[0, count)``."""
        return self._word() * count >> 64

    def words(self, size: int) -> np.ndarray:
        """Return ``size`` words, uint64, of a stream of their own."""
        start = np.uint64(self.below(1 << 32)) << np.uint64(20)
        return mixed(start + np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GAMMA))

    def random(self, shape: Sequence[int] | None = None) -> Any:
        """Return a number of [0, 1), or float64 numbers of a shape."""
        if shape is None:
            return self.below(1 << 53) * 2.0**-53
        size = int(np.prod(tuple(shape), dtype=np.int64))
        return ((self.words(size) >> np.uint64(11)) * 2.0**-53).reshape(tuple(shape))

    def integers(self, low: int, high: int, shape: Sequence[int] | None = None) -> Any:
        """Return a whole number of ``[low, high)``, or int64 numbers of a shape."""
        if shape is None:
            return low + self.below(high - low)
        return np.asarray(low + np.floor(self.random(shape) * (high - low)), np.int64)

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> np.ndarray:
        """Return float64 numbers of ``[low, high)``."""
        return np.asarray(low + (high - low) * self.random(shape))

    def permutation(self, things: int | Sequence[Any]) -> np.ndarray:
        """Return the numbers below ``things``, or the things, in another order."""
        order = list(range(things)) if isinstance(things, int) else list(things)
        self.shuffle(order)
        found = np.empty(len(order), np.int64 if isinstance(things, int) else object)
        found[:] = order
        return found

    def shuffle(self, things: list[Any]) -> None:
        """Bring a list into another order."""
        for last in range(len(things) - 1, 0, -1):
            other = self.below(last + 1)
            things[last], things[other] = things[other], things[last]

    def weighted(self, weights: Sequence[float]) -> int:
        """Return a place of ``weights``, in proportion to them."""
        ends = list(accumulate(weights))
        wanted = self.random() * ends[-1]
        return next(place for place, end in enumerate(ends) if wanted < end)

    def _word(self) -> int:
        self.counter = (self.counter + GAMMA) % WORD
        return int(mixed(np.array([self.counter], np.uint64))[0])


def mixed(words: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of words, uint64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))
