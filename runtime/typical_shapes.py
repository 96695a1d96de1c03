"""Shapes to try: a small value for each symbol of some inputs, within its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.errors import GraftError
from graft.runtime.extents import Extent, Symbol, evaluate, symbols_of

ROWS = 2
LENGTH = 16
PIXELS = 64
Shapes = Mapping[str, "Sequence[Extent] | None"]
"""By input."""


def typical_values(
    shapes: Shapes, ranges: Mapping[str, tuple[int, int | None]], given: Mapping[str, int]
) -> dict[str, int]:
    """Return a value for every symbol of the inputs: those given, else what is usual for its axis.

    The first axis has `ROWS`, height and width of an image `PIXELS`, others `LENGTH`, as far as their ranges allow.
    Raises GraftError for a value of a symbol that no input has.
    """
    values: dict[str, int] = {}
    known: dict[str, None] = {}
    for shape in shapes.values():
        for axis, extent in enumerate(shape or ()):
            known |= dict.fromkeys(symbol.name for symbol in symbols_of(extent))
            if isinstance(extent, Symbol) and extent.name not in values:
                low, high = ranges.get(extent.name, (0, None))
                usual = ROWS if axis == 0 else PIXELS if len(shape or ()) == 4 and axis > 1 else LENGTH
                values[extent.name] = max(low, usual if high is None else min(high, usual))
    for name, value in given.items():
        if name not in known:
            names = ", ".join(f"'{one}'" for one in known) or "none"
            raise GraftError(f"no input has a dimension '{name}'; there is {names}", dimension=name)
        values[name] = value
    return values


def shape_at(shape: Sequence[Extent], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape as numbers; raise GraftError for a symbol without a value."""
    return tuple(evaluate(extent, values) for extent in shape)
