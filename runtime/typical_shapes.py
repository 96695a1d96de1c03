"""Shapes to try, and to count with: a typical value for each symbol of some inputs, within its range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graft.errors import GraftError
from graft.runtime.extents import Extent, ExtentEquation, Symbol, agree, evaluate, symbols_of

ROWS = 2
LENGTH = 16
PIXELS = 64
MOST_ROUNDS = 4
"""Of looking for values that equations take."""
AROUND = 4
"""How far a range draws a value from the usual one: to a fourth of it, or to four times as much."""
Shapes = Mapping[str, "Sequence[Extent] | None"]
"""By input."""


def typical_values(
    shapes: Shapes,
    ranges: Mapping[str, tuple[int, int | None]],
    given: Mapping[str, int],
    equations: Sequence[ExtentEquation] = (),
) -> dict[str, int]:
    """Return a value for every symbol of the inputs: those given, else what is usual for its axis.

    Usual are `ROWS` for the first axis, `PIXELS` for height and width of an image, and `LENGTH` for others. Where
    ``equations`` want it, symbols that are not given have the values of others. Raises GraftError for a value of a
    symbol that no input has.
    """
    values: dict[str, int] = {}
    known: dict[str, None] = {}
    for shape in shapes.values():
        for axis, extent in enumerate(shape or ()):
            known |= dict.fromkeys(symbol.name for symbol in symbols_of(extent))
            if isinstance(extent, Symbol) and extent.name not in values:
                usual = ROWS if axis == 0 else PIXELS if len(shape or ()) == 4 and axis > 1 else LENGTH
                values[extent.name] = typical_value(ranges.get(extent.name, (0, None)), usual)
    for name, value in given.items():
        if name not in known:
            names = ", ".join(f"'{one}'" for one in known) or "none"
            raise GraftError(f"no input has a dimension '{name}'; there is {names}", dimension=name)
        values[name] = value
    for _ in range(MOST_ROUNDS):
        if sum(_mended(equation, values, given) for equation in equations) == 0:
            break
    return values


def _mended(equation: ExtentEquation, values: dict[str, int], given: Mapping[str, int]) -> bool:
    """Give a symbol that is one side of an equation the value of the other where they do not agree; say if one was."""
    sides = equation.left, equation.right
    if any(symbol.name not in values for side in sides for symbol in symbols_of(side)):
        return False
    left, right = (evaluate(side, values) for side in sides)
    if agree(equation.kind, left, right):
        return False
    for side, value in ((sides[0], right), (sides[1], left)):
        if isinstance(side, Symbol) and side.name not in given:
            values[side.name] = value
            return True
    return False


def typical_value(bounds: tuple[int, int | None], usual: int = LENGTH) -> int:
    """Return a number for a symbol of a range: the geometric mean of the range, as far as it lies around what is usual.

    What lies apart from that has its own geometric mean, and where it is open its least value.
    """
    low, high = bounds
    least, most = max(low, usual / AROUND), usual * AROUND if high is None else min(high, usual * AROUND)
    if least > most:
        least, most = max(low, 1), low if high is None else high
    mean = math.floor(math.sqrt(least * most))
    return max(low, mean if high is None else min(high, mean))


def shape_at(shape: Sequence[Extent], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape as numbers; raise GraftError for a symbol without a value."""
    return tuple(evaluate(extent, values) for extent in shape)
