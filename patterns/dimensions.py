"""The dimensions that patterns demand: numbers, holes, names that stand for one extent each, expressions of names.

A name is the pattern's own: it stands for whatever extent it meets first in a match, a number or a symbol of the model,
and wherever it is written again the extent must be the same for all values of the symbols. What is not known at compile
time does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.affine.expressions import equal, names_in, substituted
from graft.core.affine.text import parsed, text
from graft.core.graph.view import ValueView
from graft.patterns.value_checks import shape_text
from graft.runtime.extents import Extent, Symbol

Names = Mapping[str, Extent]
"""What names of a pattern stand for."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a shape does not fit; ``is_open`` says that it may, at run time."""

    text: str
    is_open: bool = False

    @property
    def code(self) -> str:
        """The code of the reason."""
        return "dynamic-shape" if self.is_open else "shape"


@dataclass(slots=True)
class Fit:
    """What follows if a shape is to fit: new names, and what can be judged only when all names are known."""

    names: dict[str, Extent] = field(default_factory=dict)
    expressions: list[tuple[int, Extent, Extent]] = field(default_factory=list)
    """Axes, with the extent that is there and the one that is demanded."""


def extents_of(value: ir.Value) -> tuple[Extent | None, ...] | None:
    """Return the extents of a value's shape, None for those that are not known."""
    shape = ValueView(value).shape
    return None if shape is None else tuple(parsed(one) if isinstance(one, str) else one for one in shape)


def fit_shape(value: ir.Value, wanted: Sequence[object], known: Names) -> Fit | Misfit:
    """Return what makes a value's shape fit, ``known`` being what names stand for so far, or why nothing does."""
    shape = extents_of(value)
    if shape is None:
        rest = all(one is ... for one in wanted)
        return Fit() if rest else Misfit(f"shape of unknown rank, wanted {shape_text(wanted)}", is_open=True)
    pairs = _aligned(shape, wanted)
    if pairs is None:
        return _other(value, wanted)
    fit = Fit()
    for axis, extent, want in pairs:
        misfit = _dimension(value, axis, extent, want, known, fit, wanted)
        if misfit is not None:
            return misfit
    return fit


def _aligned(
    shape: tuple[Extent | None, ...], wanted: Sequence[object]
) -> list[tuple[int, Extent | None, object]] | None:
    """Return axes with extents and what is demanded of them, None where there are too many or too few."""
    if ... not in wanted:
        places = list(range(len(wanted)))
        fits = len(shape) == len(wanted)
    else:
        split = list(wanted).index(...)
        behind = len(wanted) - split - 1
        wanted = [one for one in wanted if one is not ...]
        places = [*range(split), *range(len(shape) - behind, len(shape))]
        fits = len(shape) >= len(wanted)
    return [(axis, shape[axis], want) for axis, want in zip(places, wanted, strict=True)] if fits else None


def _dimension(
    value: ir.Value, axis: int, extent: Extent | None, want: object, known: Names, fit: Fit, wanted: Sequence[object]
) -> Misfit | None:
    if want is None:
        return None
    if extent is None:
        return Misfit(f"axis {axis} of '{value.name}' is not known at compile time, wanted {want}", is_open=True)
    if isinstance(want, int):
        return None if extent == want else _other(value, wanted)
    expression = parsed(str(want))
    assert expression is not None, want
    if not isinstance(expression, Symbol):
        fit.expressions.append((axis, extent, expression))
        return None
    stands_for = known.get(expression.name, fit.names.get(expression.name))
    if stands_for is None:
        fit.names[expression.name] = extent
        return None
    return differs(value, axis, extent, stands_for, f"'{want}' is {text(stands_for)}")


def judged(value: ir.Value, fit: Fit, known: Names) -> Misfit | None:
    """Return which expression of names does not fit, now that all of them are known; None if all do."""
    for axis, extent, expression in fit.expressions:
        lacking = sorted(names_in([expression]) - known.keys())
        if lacking:
            return Misfit(f"no place of the pattern is '{lacking[0]}' alone, which '{text(expression)}' needs")
        stands_for = substituted(expression, known)
        misfit = differs(value, axis, extent, stands_for, f"'{text(expression)}' is {text(stands_for)}")
        if misfit is not None:
            return misfit
    return None


def differs(value: ir.Value, axis: int, extent: Extent, wanted: Extent, said: str) -> Misfit | None:
    """Return why an extent is not known to be another one, None if it is."""
    same = equal(extent, wanted)
    if same:
        return None
    doubt = "; whether they are equal is known only at run time" if same is None else ""
    return Misfit(f"axis {axis} of '{value.name}' is {text(extent)} where {said}{doubt}", is_open=same is None)


def shape_misfit(value: ir.Value, other: ir.Value) -> Misfit | None:
    """Return why two values are not known to have one shape, None if they have."""
    shapes = extents_of(value), extents_of(other)
    if shapes[0] is None or shapes[1] is None or len(shapes[0]) != len(shapes[1]):
        return Misfit(f"its shape is not that of '{other.name}'", is_open=None in shapes)
    misfits = list(_axis_misfits(value, other, shapes[0], shapes[1]))
    return next((one for one in misfits if not one.is_open), misfits[0] if misfits else None)


def _axis_misfits(
    value: ir.Value, other: ir.Value, shape: Sequence[Extent | None], wanted: Sequence[Extent | None]
) -> Iterator[Misfit]:
    for axis, (extent, want) in enumerate(zip(shape, wanted, strict=True)):
        if extent is None or want is None:
            unknown = value if extent is None else other
            yield Misfit(f"axis {axis} of '{unknown.name}' is not known at compile time", is_open=True)
        elif (misfit := differs(value, axis, extent, want, f"that of '{other.name}' is {text(want)}")) is not None:
            yield misfit


def _other(value: ir.Value, wanted: Sequence[object]) -> Misfit:
    shape = ValueView(value).shape
    is_open = shape is not None and not all(isinstance(one, int) for one in shape)
    return Misfit(f"shape {shape_text(shape)}, wanted {shape_text(wanted)}", is_open)
