"""What a model takes, and the numbers that its extents have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BINDINGS: Sequence[Mapping[str, int]] = (
    {"batch": 2, "length": 9, "target": 5, "height": 64, "width": 64, "samples": 400, "past": 6, "nodes": 8,
     "edges": 15, "points": 12, "count": 4},
    {"batch": 1, "length": 5, "target": 3, "height": 32, "width": 96, "samples": 320, "past": 11, "nodes": 6,
     "edges": 9, "points": 7, "count": 2},
    {"batch": 3, "length": 14, "target": 8, "height": 96, "width": 64, "samples": 643, "past": 3, "nodes": 17,
     "edges": 40, "points": 30, "count": 5},
)  # fmt: skip
"""The numbers that extents have: the first is exported, all are compared."""


@dataclass(frozen=True)
class Input:
    """One input: ``ids`` are whole numbers below ``high``, ``mask`` has ones alone."""

    name: str
    kind: str
    shape: tuple[str | int, ...]
    high: int = 100

    def drawn(self, binding: Mapping[str, int], seed: int) -> np.ndarray:
        """Return contents for a binding of the extents."""
        random = np.random.default_rng(seed)
        shape = tuple(one if isinstance(one, int) else binding[one] for one in self.shape)
        if self.kind == "ids":
            return random.integers(3, self.high, shape)
        if self.kind == "mask":
            return np.ones(shape, np.int64)
        return random.standard_normal(shape).astype(np.float32)
