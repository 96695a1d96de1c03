"""The refusal of a backend that compiles for shapes of numbers only."""

from __future__ import annotations

from graft.core.graph.view import ValueView
from graft.core.reject import Reject


def symbolic_axis(value: ValueView) -> str | None:
    """Return which axis of a value is no number, and what it is; None where all are numbers."""
    if value.shape is None:
        return f"the rank of '{value.name}' is not known"
    for axis, extent in enumerate(value.shape):
        if not isinstance(extent, int):
            return f"axis {axis} of '{value.name}' is {'unknown' if extent is None else extent}"
    return None


def refused_if_symbolic(value: ValueView, backend: str) -> Reject | None:
    """Return the refusal of a value whose shape is not all numbers, naming axis and expression."""
    axis = symbolic_axis(value)
    return None if axis is None else Reject("dynamic-shape", f"{axis}; {backend} compiles static shapes")
