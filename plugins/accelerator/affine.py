"""Loops around one statement as numbers: how far they go, and the places of accesses as sums of their variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graft.core.tensor_ir.ir import (
    Binary,
    CallExtern,
    Constant,
    Expression,
    For,
    If,
    Load,
    Select,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, statement_expressions

Values = Mapping[Variable, int]


@dataclass(frozen=True, slots=True)
class Place:
    """A number: a constant, and terms that grow by so much with each variable; ``curved`` ones do not grow evenly."""

    constant: int = 0
    terms: Values = field(default_factory=dict)
    curved: tuple[tuple[int, Expression], ...] = ()

    def at(self, values: Values) -> int:
        """Return the number, where variables without a value are 0."""
        total = self.constant + sum(factor * values.get(one, 0) for one, factor in self.terms.items())
        return total + sum(factor * _value(one, values) for factor, one in self.curved) if self.curved else total

    def fixed(self, values: Values) -> Place:
        """Return the same with some variables as constants."""
        terms = {one: factor for one, factor in self.terms.items() if one not in values}
        moved = sum(factor * values[one] for one, factor in self.terms.items() if one in values)
        return Place(self.constant + moved, terms, self.curved)

    def plus(self, number: int) -> Place:
        """Return the place so much further."""
        return Place(self.constant + number, self.terms, self.curved)

    def divided(self, size: int) -> Place:
        """Return the place in units of a size, of which it is a multiple."""
        assert not self.curved and not any(one % size for one in (self.constant, *self.terms.values())), (self, size)
        return Place(self.constant // size, {one: factor // size for one, factor in self.terms.items()})

    def is_curved(self, variable: Variable) -> bool:
        """Whether it does not grow evenly with a variable."""
        return any(variable in free_variables(one) for _, one in self.curved)


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition ``factor * variable + rest < 0`` on a loop, or on none: then only ``rest`` decides."""

    variable: Variable | None
    factor: int
    rest: Place

    def limits(self, extent: int, at: Values) -> tuple[int, int]:
        """Return from where and up to where a loop of an extent goes under the condition."""
        rest = self.rest.at(at)
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
    statement: Store | CallExtern
    outer: tuple[Variable, ...]
    simplifier: Simplifier

    def extents(self, at: Values) -> dict[Variable, int]:
        """Return how far each loop goes where outer variables have values: conditions bound them."""
        found = dict(self.loops)
        for one in self.conditions:
            if one.variable is None:
                found = found if one.limits(1, at)[1] else dict.fromkeys(found, 0)
                continue
            start, found[one.variable] = one.limits(found[one.variable], at)
            assert start == 0, self.statement
        return found

    def inside(self, extents: Values, at: Values) -> dict[Variable, tuple[int, int]]:
        """Return, by loop, from where to where the mask holds; loops that it says nothing of are left out."""
        found: dict[Variable, tuple[int, int]] = {}
        for one in self.mask:
            assert one.variable is not None, self.statement
            first, last = found.get(one.variable, (0, extents[one.variable]))
            start, stop = one.limits(extents[one.variable], at)
            found[one.variable] = max(first, start), min(last, stop)
        return {one: (start, max(start, stop)) for one, (start, stop) in found.items()}

    def order(self, indices: Sequence[Expression]) -> Iterator[Variable]:
        """Yield the loops over dimensions, in the order of these."""
        for one in indices:
            if isinstance(one, Variable) and one in self.loops:
                yield one
            else:
                assert not free_variables(one) & self.loops.keys(), one

    def place(self, indices: Sequence[Expression], strides: Sequence[int], base: int) -> Place:
        """Return the place of an access."""
        constant, terms, curved = base, dict[Variable, int](), list[tuple[int, Expression]]()
        for one, stride in zip(indices, strides, strict=True):
            part = _linear(one, self.simplifier)
            constant += part.constant * stride
            for variable, factor in part.terms.items():
                terms[variable] = terms.get(variable, 0) + factor * stride
            curved += [(factor * stride, other) for factor, other in part.curved]
        return Place(constant, terms, tuple(curved))


def leaf_of(loop: For, simplifier: Simplifier) -> Leaf | None:
    """Return loops with nothing but one statement in them, None where there is more."""
    loops: dict[Variable, int] = {}
    conditions: list[Expression] = []
    inner: Statement = loop
    while True:
        match inner:
            case For(variable, Constant(extent), _, body):
                loops[variable] = int(extent)
                inner = body
            case If(condition, body, None):
                conditions.append(condition)
                inner = body
            case Store() | CallExtern():
                used = free_variables(*conditions, *statement_expressions(inner)) - loops.keys()
                bounds, mask = (
                    tuple(bound for one in each for bound in bounds_of(one, loops, simplifier))
                    for each in (conditions, _masks(inner))
                )
                return Leaf(loops, bounds, mask, inner, tuple(sorted(used, key=lambda one: one.name)), simplifier)
            case _:
                return None


def _masks(statement: Store | CallExtern) -> list[Expression]:
    match statement:
        case Store(value=Load(mask=mask) | Select(on_true=Load(mask=mask))) if mask is not None:
            return [mask]
    return []


def bounds_of(condition: Expression, loops: Values, simplifier: Simplifier) -> Iterator[Bound]:
    """Yield what a conjunction of comparisons says of loops, of which each comparison has at most one."""
    match condition:
        case Binary("and", left, right):
            yield from bounds_of(left, loops, simplifier)
            yield from bounds_of(right, loops, simplifier)
        case Binary("lt", left, right):
            yield _bound(_linear(Binary("sub", left, right), simplifier), loops)
        case Binary("ge", left, right):
            yield _bound(_linear(Binary("sub", right, left), simplifier).plus(-1), loops)
        case _:
            raise AssertionError(condition)


def _bound(place: Place, loops: Values) -> Bound:
    own = [one for one in place.terms if one in loops]
    assert len(own) < 2 and not place.curved, place
    rest = Place(place.constant, {one: factor for one, factor in place.terms.items() if one not in own})
    return Bound(own[0], place.terms[own[0]], rest) if own else Bound(None, 0, rest)


def _linear(expression: Expression, simplifier: Simplifier) -> Place:
    form = simplifier.form(simplifier(expression))
    atoms = [(simplifier.atom(number), factor) for number, factor in form.terms.items()]
    terms = {one: factor for one, factor in atoms if isinstance(one, Variable)}
    curved = tuple((factor, one) for one, factor in atoms if not isinstance(one, Variable))
    return Place(form.constant, terms, curved)


def _value(expression: Expression, values: Values) -> int:
    """Return the number that index arithmetic without negative numbers gives."""
    match expression:
        case Constant(value):
            return int(value)
        case Variable():
            return values.get(expression, 0)
        case Binary("add", left, right):
            return _value(left, values) + _value(right, values)
        case Binary("mul", left, right):
            return _value(left, values) * _value(right, values)
        case Binary("div", left, right):
            return _value(left, values) // _value(right, values)
        case Binary("mod", left, right):
            return _value(left, values) % _value(right, values)
    raise AssertionError(expression)
