"""What shows itself in a notebook: values by their types, and how far long work is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

GROUP = "graft.notebook"
"""The entry points of functions from a value to its HTML, None for what they do not know."""


class Displayed:
    """A value that notebooks show as the report says for its type, which is found by the entry points of `GROUP`.

    Where only the runtime is installed there is no report, and its text is shown.
    """

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        from importlib.metadata import entry_points  # takes longer than a program takes to load

        for entry in entry_points(group=GROUP):
            try:
                shown = entry.load()
            except ImportError:
                continue
            found: str | None = shown(self)
            if found is not None:
                return found
        return None


class CallTimes(list[tuple[tuple[str, ...], str, int]], Displayed):
    """For each call that ran, the nodes that it computes, its function and its nanoseconds."""


def notebook_bar() -> Callable[[float, float | None], None] | None:
    """Return what moves a bar to so much of a total in the notebook that this runs in; None elsewhere.

    The bar is shown when it moves first, and not where the total is not known.
    """
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    bars: dict[float, Any] = {}

    def move(done: float, total: float | None) -> None:
        if not total:
            return
        if total not in bars:
            bars[total] = importlib.import_module("IPython.display").ProgressBar(total)
            bars[total].display()
        bars[total].progress = min(done, total)

    return move
