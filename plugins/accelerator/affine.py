"""Loops around one statement as numbers: how far they go, and the places of accesses as sums of their variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graft.core.affine.linear import Linear
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.machine_operations import INDEX_OPERATIONS
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, statement_expressions

Values = Mapping[ir.Variable, int]


Place: TypeAlias = Linear[ir.Expression]
"""A number: its atoms are variables, and index arithmetic of them that is not linear."""


def value_at(place: Place, values: Values) -> int:
    """Return a number, where variables without a value are 0."""
    atoms = place.terms.items()
    return place.constant + sum(
        factor * (values.get(one, 0) if isinstance(one, ir.Variable) else _value(one, values)) for one, factor in atoms
    )


def fixed(place: Place, values: Values) -> Place:
    """Return a number with some variables as constants, where they are atoms."""
    known = {one: factor for one, factor in place.terms.items() if one in values}
    moved = Linear[ir.Expression](
        sum(factor * values[one] for one, factor in known.items() if isinstance(one, ir.Variable))
    )
    return place.plus(Linear(0, known), -1).plus(moved)


def in_units(place: Place, size: int) -> Place:
    """Return a number in units of a size, of which it is a multiple."""
    units, rest = place.split(size)
    assert rest.is_constant and not rest.constant, (place, size)
    return units


def is_linear_in(place: Place, variable: ir.Variable) -> bool:
    """Whether a number grows evenly with a variable."""
    return not any(variable in free_variables(one) for one in place.terms if not isinstance(one, ir.Variable))


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition ``factor * variable + rest < 0`` on a loop, or on none: then only ``rest`` decides."""

    variable: ir.Variable | None
    factor: int
    rest: Place

    def limits(self, extent: int, at: Values) -> tuple[int, int]:
        """Return from where and up to where a loop of an extent goes under the condition."""
        rest = value_at(self.rest, at)
        if self.factor > 0:
            return 0, min(extent, max(0, -(rest // self.factor)))
        if self.factor < 0:
            return min(extent, max(0, rest // -self.factor + 1)), extent
        return 0, extent if rest < 0 else 0


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
        found: Place = Linear(base)
        for one, stride in zip(indices, strides, strict=True):
            found = found.plus(_linear(one, self.simplifier), stride)
        return found


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
                    tuple(bound for one in each for bound in bounds_of(one, loops, simplifier))
                    for each in (conditions, _masks(inner))
                )
                return Leaf(loops, bounds, mask, inner, tuple(sorted(used, key=lambda one: one.name)), simplifier)
            case _:
                return None


def _masks(statement: ir.Store | ir.CallExtern) -> list[ir.Expression]:
    match statement:
        case ir.Store(value=ir.Load(mask=mask) | ir.Select(on_true=ir.Load(mask=mask))) if mask is not None:
            return [mask]
    return []


def bounds_of(condition: ir.Expression, loops: Values, simplifier: Simplifier) -> Iterator[Bound]:
    """Yield what a conjunction of comparisons says of loops, of which each comparison has at most one."""
    match condition:
        case ir.Binary("and", left, right):
            yield from bounds_of(left, loops, simplifier)
            yield from bounds_of(right, loops, simplifier)
        case ir.Binary("lt", left, right):
            yield _bound(_linear(ir.Binary("sub", left, right), simplifier), loops)
        case ir.Binary("ge", left, right):
            yield _bound(_linear(ir.Binary("sub", right, left), simplifier).plus(Linear(-1)), loops)
        case _:
            raise AssertionError(condition)


def _bound(place: Place, loops: Values) -> Bound:
    own = [one for one in place.terms if isinstance(one, ir.Variable) and one in loops]
    assert len(own) < 2 and all(isinstance(one, ir.Variable) for one in place.terms), place
    if not own:
        return Bound(None, 0, place)
    factor = place.terms[own[0]]
    return Bound(own[0], factor, place.plus(Linear(0, {own[0]: factor}), -1))


def _linear(expression: ir.Expression, simplifier: Simplifier) -> Place:
    form = simplifier.form(simplifier(expression))
    return Linear(form.constant, {simplifier.atom(number): factor for number, factor in form.terms.items()})


def _value(expression: ir.Expression, values: Values) -> int:
    """Return the number that index arithmetic gives."""
    match expression:
        case ir.Constant(value):
            return int(value)
        case ir.Variable():
            return values.get(expression, 0)
        case ir.Binary(operator, left, right):
            return int(INDEX_OPERATIONS[operator](_value(left, values), _value(right, values)))
    raise AssertionError(expression)
