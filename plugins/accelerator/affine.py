"""Loops around one statement as numbers: how far they go, and the places of accesses as sums of their variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from graft.core.affine.linear import Linear
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.bounds import at_least_zero
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import conjuncts, free_variables, statement_expressions

Values = Mapping[ir.Variable, int]


Place: TypeAlias = Linear[ir.Variable]
"""A number as a sum of loops' variables."""


def value_at(place: Place, values: Values) -> int:
    """Return a number, where variables without a value are 0."""
    return place.constant + sum(factor * values.get(one, 0) for one, factor in place.terms.items())


def fixed(place: Place, values: Values) -> Place:
    """Return a number with some variables as constants."""
    left = {one: factor for one, factor in place.terms.items() if one not in values}
    return Linear(place.constant + sum(place.terms[one] * values[one] for one in place.terms.keys() - left), left)


def in_units(place: Place, size: int) -> Place:
    """Return a number in units of a size, of which it is a multiple."""
    units, rest = place.split(size)
    assert rest.is_constant and not rest.constant, (place, size)
    return units


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition ``factor * variable + rest >= 0`` on a loop, or on none: then only ``rest`` decides."""

    variable: ir.Variable | None
    factor: int
    rest: Place

    @classmethod
    def of(cls, condition: ir.Expression, loops: Values, simplifier: Simplifier) -> Bound:
        """Return what a comparison says of the loop that it compares, if it compares one."""
        form = at_least_zero(condition, simplifier)
        assert form is not None, condition
        place = _place(form, simplifier)
        own = [one for one in place.terms if one in loops]
        assert len(own) < 2, place
        variable = own[0] if own else None
        terms = {one: factor for one, factor in place.terms.items() if one is not variable}
        return cls(variable, place.terms[own[0]] if own else 0, Linear(place.constant, terms))

    def limits(self, extent: int, at: Values) -> tuple[int, int]:
        """Return from where and up to where a loop of an extent goes under the condition."""
        rest = value_at(self.rest, at)
        if self.factor > 0:
            return min(extent, max(0, -(rest // self.factor))), extent
        if self.factor < 0:
            return 0, min(extent, max(0, rest // -self.factor + 1))
        return 0, extent if rest >= 0 else 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """Loops, outermost first, with conditions around one statement; ``outer`` are the other variables in it.

    ``mask`` is that of what the statement copies.
    """

    loops: Values
    conditions: tuple[Bound, ...]
    mask: tuple[Bound, ...]
    statement: ir.Store | ir.CallExtern
    outer: tuple[ir.Variable, ...]
    simplifier: Simplifier

    def extents(self, at: Values) -> dict[ir.Variable, int]:
        """Return how far each loop goes where outer variables have values: conditions bound them."""
        found = dict(self.loops)
        for one in self.conditions:
            if one.variable is None:
                found = found if one.limits(1, at)[1] else dict.fromkeys(found, 0)
                continue
            start, found[one.variable] = one.limits(found[one.variable], at)
            assert start == 0, self.statement
        return found

    def inside(self, extents: Values, at: Values) -> dict[ir.Variable, tuple[int, int]] | None:
        """Return, by loop, from where to where the mask holds; loops that it says nothing of are left out.

        None if it holds nowhere, whatever the loops.
        """
        found: dict[ir.Variable, tuple[int, int]] = {}
        for one in self.mask:
            if one.variable is None:
                if not one.limits(1, at)[1]:
                    return None
                continue
            first, last = found.get(one.variable, (0, extents[one.variable]))
            start, stop = one.limits(extents[one.variable], at)
            found[one.variable] = max(first, start), min(last, stop)
        return {one: (start, max(start, stop)) for one, (start, stop) in found.items()}

    def order(self, indices: Sequence[ir.Expression]) -> Iterator[ir.Variable]:
        """Yield the loops over dimensions, in the order of these."""
        for one in indices:
            if isinstance(one, ir.Variable) and one in self.loops:
                yield one
            else:
                assert not free_variables(one) & self.loops.keys(), one

    def place(self, indices: Sequence[ir.Expression], strides: Sequence[int], base: int) -> Place:
        """Return the place of an access."""
        total: ir.Expression = b.index(base)
        for one, stride in zip(indices, strides, strict=True):
            total = b.add(total, b.multiply(one, stride))
        return _place(self.simplifier.form(self.simplifier(total)), self.simplifier)


def leaf_of(loop: ir.For, simplifier: Simplifier) -> Leaf | None:
    """Return loops with nothing but one statement in them, None where there is more."""
    loops: dict[ir.Variable, int] = {}
    conditions: list[ir.Expression] = []
    inner: ir.Statement = loop
    while True:
        match inner:
            case ir.For(variable, ir.Constant(extent), _, body):
                loops[variable] = int(extent)
                inner = body
            case ir.If(condition, body, None):
                conditions.append(condition)
                inner = body
            case ir.Store() | ir.CallExtern():
                used = free_variables(*conditions, *statement_expressions(inner)) - loops.keys()
                bounds, mask = (
                    tuple(Bound.of(one, loops, simplifier) for one in each)
                    for each in (chain.from_iterable(map(conjuncts, conditions)), conjuncts(_mask(inner)))
                )
                return Leaf(loops, bounds, mask, inner, tuple(sorted(used, key=lambda one: one.name)), simplifier)
            case _:
                return None


def _mask(statement: ir.Store | ir.CallExtern) -> ir.Expression | None:
    match statement:
        case ir.Store(value=ir.Load(mask=mask) | ir.Select(on_true=ir.Load(mask=mask))):
            return mask
    return None


def _place(form: Linear[int], simplifier: Simplifier) -> Place:
    """Return a form over loops' variables: nothing here is divided that does not come together again."""
    terms = {simplifier.atom(number): factor for number, factor in form.terms.items()}
    assert all(isinstance(one, ir.Variable) for one in terms), terms
    return Linear(form.constant, {one: factor for one, factor in terms.items() if isinstance(one, ir.Variable)})
