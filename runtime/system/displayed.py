"""What shows itself in a notebook."""

from __future__ import annotations

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
