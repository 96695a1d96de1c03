"""A bar that shows how far an epoch is."""

from __future__ import annotations

import sys
from time import perf_counter

WIDTH = 24


class Progress:
    """A line on standard error with a bar, the mean loss and the batches in a second.

    ``total`` is the number of batches; None if it is not known, and then there is no bar.
    """

    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total, self._started = title, total, perf_counter()

    def show(self, done: int, loss: float) -> None:
        """Show the line for so many batches."""
        bar = "" if self._total is None else f" [{'#' * (WIDTH * done // self._total):{WIDTH}}]"
        rate = done / max(perf_counter() - self._started, 1e-9)
        line = f"{self._title}{bar} {done}/{self._total or '?'} loss {loss:.4f} {rate:.1f}/s"
        sys.stderr.write(f"\r{line}")
        sys.stderr.flush()

    def end(self) -> None:
        """End the line."""
        sys.stderr.write("\n")
