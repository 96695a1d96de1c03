"""An epoch of batches: data in a drawn order, and a bar that shows how far it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from time import perf_counter

import numpy as np

from graft.errors import ModelError

Arrays = dict[str, np.ndarray]
WIDTH = 24


def batches(data: Mapping[str, np.ndarray], batch: int, random: np.random.Generator | None) -> Iterator[Arrays]:
    """Give whole batches of arrays that are stacked along the first axis, in a drawn order or as they are.

    Raise ModelError where the arrays have different numbers of rows, or fewer than a batch.
    """
    counts = {len(array) for array in data.values()}
    if len(counts) != 1 or not 0 < batch <= min(counts):
        raise ModelError(f"data of {sorted(counts)} rows do not make batches of {batch}")
    count = counts.pop()
    order = np.arange(count) if random is None else random.permutation(count)
    for start in range(0, count - batch + 1, batch):
        yield {name: array[order[start : start + batch]] for name, array in data.items()}


class Progress:
    """A line on standard error with a bar, the mean loss and the batches in a second."""

    def __init__(self, title: str, data: Mapping[str, np.ndarray], batch: int) -> None:
        self._title, self._total, self._started = title, min(map(len, data.values())) // batch, perf_counter()

    def show(self, done: int, loss: float) -> None:
        """Show the line for so many batches; it ends with the last."""
        bar = "#" * (WIDTH * done // self._total)
        rate = done / max(perf_counter() - self._started, 1e-9)
        line = f"{self._title} [{bar:{WIDTH}}] {done}/{self._total} loss {loss:.4f} {rate:.1f}/s"
        sys.stderr.write(f"\r{line}" + ("\n" if done == self._total else ""))
        sys.stderr.flush()
