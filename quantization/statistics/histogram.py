"""Histograms of tensors that are seen piece by piece, in constant memory.

The least and the largest element are exact; of a large piece `COUNTED` elements, evenly spread, are counted. There are
`BINS` bins on each side of 0, up to a power of two; a larger element makes bins twice as wide, two of which
are exactly one. So a histogram does not depend on the order of its pieces, and two histograms add.
"""

from __future__ import annotations

import math

import numpy as np

BINS = 4096
COUNTED = 2**16
LEAST = 2.0**-100
"""The least limit: bins of float32 are no narrower."""


class Histogram:
    """Counts of elements, with the least and the largest of them."""

    kept = ("low", "high", "limit", "counts", "invalid")

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.limit = 0.0
        """All elements are within plus and minus this, a power of two."""
        self.counts = np.zeros(2 * BINS, np.int64)
        self.invalid = 0
        """How many elements were NaN or infinite; they are in no bin."""

    def add(self, array: np.ndarray) -> None:
        """Count the elements of an array."""
        elements = array.reshape(-1)
        low, high = (float(elements.min()), float(elements.max())) if elements.size else (math.inf, -math.inf)
        if not (math.isfinite(low) and math.isfinite(high)) and elements.size:
            finite = np.isfinite(elements)
            self.invalid += int(finite.size - np.count_nonzero(finite))
            return self.add(elements[finite])
        self.low, self.high = min(self.low, low), max(self.high, high)
        size = max(abs(low), abs(high))
        if not elements.size:
            return None
        self._widen(max(2.0 ** math.frexp(size)[1], LEAST) if size else 0.0)
        if not self.limit:  # zeros alone so far: they are in the bin above 0
            self.counts[BINS] += elements.size
            return None
        step = math.ceil(elements.size / COUNTED) | 1  # odd, so that it meets every column of an image
        places = np.floor(elements[::step] * np.float32(BINS / self.limit)).astype(np.int64)
        self.counts += np.bincount(places + BINS, minlength=2 * BINS)
        return None

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        other._widen(self.limit)
        self._widen(other.limit)
        self.counts += other.counts
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.invalid += other.invalid

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin."""
        return (np.arange(-BINS, BINS) + 0.5) * (self.limit / BINS)

    def _widen(self, limit: float) -> None:
        """Make bins wide enough for elements up to a power of two."""
        if not self.limit:
            self.limit = limit
        while self.limit < limit:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros_like(self.counts)
            self.counts[BINS // 2 : BINS // 2 + BINS] = pairs
            self.limit *= 2
