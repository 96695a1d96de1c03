"""What shows itself in a notebook."""

from __future__ import annotations

import importlib
from typing import Any


class Displayed:
    """A value that notebooks show as `graft.report.notebook` says for its type.

    Where only the runtime is installed there is no report, and its text is shown. The report knows the types, which are
    below it: so its module is named here, and not imported before something is shown.
    """

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        try:
            notebook: Any = importlib.import_module("graft.report.notebook")
        except ImportError:
            return None
        found: str | None = notebook.shown(self)
        return found


class CallTimes(list[tuple[tuple[str, ...], str, int]], Displayed):
    """For each call that ran, the nodes that it computes, its function and its nanoseconds."""
