"""Which iterations of loops touch the same element: what must stay in order, and what may run at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import TypeAlias

from graft.core.affine.linear import Linear
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import static_value
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, loads, statement_expressions, substitute, walk_statements

Distance: TypeAlias = Mapping[ir.Variable, int | None]
"""By loop, how many iterations lie between two accesses to one element; None for any number."""
MOST_POINTS = 256
"""Points at which an index that is no sum of loops, such as ``min(8 * i, 25)``, is looked at one by one."""

ENDLESS = 1 << 62
"""Iterations of a loop whose extent has no bound."""


@dataclass(frozen=True, slots=True)
class Access:
    """A read or a write of a buffer; ``indices`` is None where any element may be meant."""

    buffer: ir.Buffer
    indices: tuple[ir.Expression, ...] | None
    writes: bool
    statement: ir.Statement
    mask: ir.Expression | None = None

    def forms(self, simplifier: Simplifier) -> list[Linear[int]] | None:
        """Return the linear forms of the indices, of as many lanes as a mask of the first lanes leaves."""
        if self.indices is None:
            return None
        forms = [simplifier.form(simplifier(place)) for place in self.indices]
        match None if self.mask is None else simplifier(self.mask):
            case ir.Binary("lt", ir.Ramp(ir.Constant(0), 1), ir.Broadcast(ir.Constant(count))):
                return [replace(form, lanes=min(form.lanes, int(count))) for form in forms]
        return forms


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of one element, of which one writes, in iterations ``distance`` apart."""

    first: Access
    second: Access
    distance: Distance

    @property
    def reassociates(self) -> bool:
        """Whether the two are one accumulation whose order does not matter, not even in the last bit."""
        if self.first.statement is not self.second.statement or not isinstance(self.first.statement, ir.Store):
            return False
        store = self.first.statement
        match store.value:
            case ir.Binary(operator, ir.Load(buffer, indices, None), term) if (
                buffer is store.buffer and indices == store.indices
            ):
                exact = operator in ("min", "max") or (operator in ("add", "mul") and not store.value.type.is_float)
                others = loads(term, *indices, *(() if store.mask is None else (store.mask,)))
                return exact and not store.value.type.is_custom and all(one.buffer is not buffer for one in others)
        return False

    def __str__(self) -> str:
        return f"'{self.first.buffer.name}'"


def accesses(body: ir.Statement, of: Collection[ir.Buffer] | None = None) -> list[Access]:
    """Return the accesses in a statement to buffers that come from outside of it (those in ``of``, if it is given).

    ``let`` of sums is inlined.
    """
    parts = list(walk_statements(body))
    own = {one.buffer for one in parts if isinstance(one, ir.Allocate)}
    values: dict[ir.Variable, ir.Expression] = {}
    found: list[Access] = []
    for one in parts:
        if isinstance(one, ir.Let):
            _inline(one.variable, one.value, values)
        for load in loads(*statement_expressions(one)):
            if of is not None and load.buffer not in of:
                continue
            inlined = tuple(substitute(place, values) for place in load.indices)
            called = isinstance(one, ir.CallExtern) and load in one.arguments
            found.append(Access(load.buffer, None if called else inlined, called, one))
        if isinstance(one, ir.Store):
            places = tuple(substitute(place, values) for place in one.indices)
            found.append(Access(one.buffer, places, True, one, one.mask))
    return [one for one in found if one.buffer not in own]


def conflicts(
    body: ir.Statement, chain: Sequence[ir.For], simplifier: Simplifier, of: Collection[ir.Buffer] | None = None
) -> Iterator[Conflict]:
    """Yield the pairs of accesses in a statement that may touch one element in different iterations of ``chain``.

    ``simplifier`` knows the bounds of all loops; those that are neither in ``chain`` nor in ``body`` stand still. If
    buffers ``of`` interest are given, others are not looked at.
    """
    parts = list(walk_statements(body))
    moving = _Moving.of([*chain, *parts], simplifier)
    parted = divisions(parts)
    known = [(one, one.forms(simplifier)) for one in accesses(body, _written(parts) if of is None else of)]
    for number, (first, forms) in enumerate(known):
        for second, others in known[number:]:
            if first.buffer is second.buffer and (first.writes or second.writes):
                distance = _distance(forms, others, moving)
                if distance is not None:
                    _note_fused(parted, distance, moving)
                    yield Conflict(first, second, {loop.variable: distance[loop.variable] for loop in chain})


def in_order(conflict: Conflict, before: Sequence[ir.For], after: Sequence[ir.For]) -> bool:
    """Whether two accesses stay in order when loops change theirs; both sequences have the same loops."""
    moved = [loop.variable for loop in before if conflict.distance[loop.variable] != 0]
    now = [loop.variable for loop in after if conflict.distance[loop.variable] != 0]
    signs = [conflict.distance[order[0]] for order in (moved, now) if order]
    if None not in conflict.distance.values() and signs:
        return (signs[0] or 0) * (signs[1] or 0) > 0
    return moved == now or conflict.reassociates


def stores_alike(body: ir.Statement, conflict: Conflict, simplifier: Simplifier) -> bool:
    """Whether iterations of a body that store one element store the same number, so that their order does not matter.

    It does where what an iteration computes depends on the element's indices alone and reads nothing that the body
    writes, as in overlapping tiles.
    """
    store, parts = conflict.first.statement, list(walk_statements(body))
    if conflict.second.statement is not store or not isinstance(store, ir.Store):
        return False
    if not all(one.writes and one.indices is not None for one in accesses(body, _written(parts))):
        return False
    moved = {variable for variable, distance in conflict.distance.items() if distance != 0}
    values: dict[ir.Variable, ir.Expression] = {}
    for number, place in enumerate(store.indices):
        terms = simplifier.form(simplifier(place)).terms
        own = (simplifier.atom(term) for term, factor in terms.items() if factor == 1)
        last = next((one for one in own if isinstance(one, ir.Variable) and one in moved - values.keys()), None)
        if last is not None:
            values[last] = ir.Binary("sub", ir.Variable(f"place{number}"), ir.Binary("sub", place, last))
    expressions = (one for part in parts for one in statement_expressions(part))
    return all(moved.isdisjoint(free_variables(simplifier(substitute(one, values)))) for one in expressions)


def carried(body: ir.Statement, loop: ir.For, simplifier: Simplifier) -> Conflict | None:
    """Return accesses in which two iterations of a loop meet, None if its iterations are independent."""
    return next((one for one in conflicts(body, [loop], simplifier) if one.distance[loop.variable] != 0), None)


def reads_written(body: ir.Statement, *expressions: ir.Expression) -> bool:
    """Whether expressions read what a statement writes or allocates, so that they are not the same before and in it."""
    read = {load.buffer for load in loads(*expressions)}
    parts = list(walk_statements(body)) if read else []
    own = {one.buffer for one in parts if isinstance(one, ir.Allocate)}
    return not read.isdisjoint(own | _written(parts))


def _inline(variable: ir.Variable, value: ir.Expression, values: dict[ir.Variable, ir.Expression]) -> None:
    """Note what a variable stands for, unless that is a part of a fused loop."""
    if not isinstance(value, ir.Binary) or value.operator not in ("div", "mod"):
        values[variable] = substitute(value, values)


def _written(parts: Sequence[ir.Statement]) -> set[ir.Buffer]:
    found: set[ir.Buffer] = set()
    for one in parts:
        if isinstance(one, ir.Store):
            found.add(one.buffer)
        elif isinstance(one, ir.CallExtern):
            found |= {load.buffer for load in loads(*one.arguments)}
    return found


@dataclass(slots=True)
class _Moving:
    """The variables that differ between two iterations, and the values that expressions over them take."""

    extents: Mapping[ir.Variable, ir.Expression | None]
    """Of loops; None for what is no loop, or where several have one variable."""
    simplifier: Simplifier
    _values: dict[int, list[tuple[int, Mapping[ir.Variable, int]]] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[ir.Statement], simplifier: Simplifier) -> _Moving:
        """Return what moves where loops and bindings are among these statements."""
        extents: dict[ir.Variable, ir.Expression | None] = {}
        values: dict[ir.Variable, ir.Expression] = {}
        for one in parts:
            match one:
                case ir.Let(variable, value):
                    extents[variable] = None
                    _inline(variable, value, values)
                case ir.For(variable, extent):
                    extents[variable] = None if variable in extents else substitute(extent, values)
        return cls(extents, simplifier)

    def values(self, number: int) -> list[tuple[int, Mapping[ir.Variable, int]]] | None:
        """Return the values of an atom, each with the point where it has it; None where these are many or not known."""
        if number not in self._values:
            self._values[number] = self._values_of(self.simplifier.atom(number))
        return self._values[number]

    def _values_of(self, atom: ir.Expression) -> list[tuple[int, Mapping[ir.Variable, int]]] | None:
        variables = sorted(free_variables(atom), key=lambda one: one.name)
        ranges = [self.simplifier.ranges.get(one) for one in variables if one in self.extents]
        spans = [range(known[0], known[1] + 1) for known in ranges if known is not None]
        if (
            len(spans) < len(variables)
            or prod(map(len, spans)) > MOST_POINTS
            or atom.type.lanes > 1
            or any(loads(atom))
        ):
            return None
        points = [dict(zip(variables, numbers, strict=True)) for numbers in product(*spans)]
        return [(static_value(atom, point), point) for point in points if self._is_inside(point)]

    def _is_inside(self, point: Mapping[ir.Variable, int]) -> bool:
        """Whether the loops come to a point, as far as it says."""
        for variable, number in point.items():
            extent = self.extents[variable]
            is_told = extent is not None and free_variables(extent) <= point.keys() and not any(loads(extent))
            if extent is not None and is_told and number >= static_value(extent, point):
                return False
        return True


def _distance(
    first: Sequence[Linear[int]] | None, second: Sequence[Linear[int]] | None, moving: _Moving
) -> dict[ir.Variable, int | None] | None:
    """Return how far apart in each loop two accesses of one element are; None if they never meet."""
    ranges = moving.simplifier.ranges
    found: dict[ir.Variable, int | None] = dict.fromkeys(moving.extents)
    for variable in found:
        if (bounds := ranges.get(variable)) is not None and bounds[0] == bounds[1]:
            found[variable] = 0
    if first is None or second is None:
        return found
    for _ in range(2):  # what one dimension says of a loop helps with another
        for one, other in zip(first, second, strict=True):
            if not _solve(one, other, found, moving):
                return None
    for variable, distance in found.items():
        bounds = ranges.get(variable)
        if distance and bounds and abs(distance) > bounds[1] - bounds[0]:
            return None
    return found


def _solve(one: Linear[int], other: Linear[int], found: dict[ir.Variable, int | None], moving: _Moving) -> bool:
    """Note what equal indices say of the distances in the loops; return whether they can be equal at all."""
    # The distances must make up for what the accesses differ by: sum(factor * distance) in [low, high].
    reach, other_reach = one.lane * (one.lanes - 1), other.lane * (other.lanes - 1)
    low = one.constant + min(0, reach) - other.constant - max(0, other_reach)
    high = one.constant + max(0, reach) - other.constant - min(0, other_reach)
    unknown: dict[int, tuple[int, int]] = {}  # by atom: factor, largest distance
    for number in {**one.terms, **other.terms}:
        atom, factor, second = moving.simplifier.atom(number), one.terms.get(number, 0), other.terms.get(number, 0)
        if not isinstance(atom, ir.Variable) or atom not in found:
            still = free_variables(atom).isdisjoint(found) and not any(loads(atom))
            values = None if still else moving.values(number)
            if factor != second or not (still or values):
                return True
            if values:
                ends = [value for value, _ in values]
                unknown[number] = (factor, max(ends) - min(ends))
            continue
        distance, bounds = found[atom], moving.simplifier.ranges.get(atom)
        if factor == second and distance is not None:
            low, high = low - factor * distance, high - factor * distance
        elif factor == second:
            unknown[number] = (factor, ENDLESS if bounds is None else bounds[1] - bounds[0])
        elif bounds is None:
            return True
        else:
            ends = [left * factor - right * second for left in bounds for right in bounds]
            low, high = low + min(ends), high + max(ends)
    while unknown:
        number = max(unknown, key=lambda one: abs(unknown[one][0]))
        factor, most = unknown.pop(number)
        rest = sum(abs(size) * other for size, other in unknown.values())
        near, far = (low - rest, high + rest) if factor > 0 else (-high - rest, rest - low)
        possible = range(max(-most, -(-near // abs(factor))), min(most, far // abs(factor)) + 1)
        atom = moving.simplifier.atom(number)
        if not possible or (
            not isinstance(atom, ir.Variable) and not _note(moving.values(number) or (), possible, found)
        ):
            return False
        if possible.stop - possible.start > 1:
            return True
        if isinstance(atom, ir.Variable):
            found[atom] = possible[0]
        low, high = low - factor * possible[0], high - factor * possible[0]
    return low <= 0 <= high


def _note(
    values: Sequence[tuple[int, Mapping[ir.Variable, int]]], possible: range, found: dict[ir.Variable, int | None]
) -> bool:
    """Note the distances between points whose values are ``possible`` numbers apart; False if there are no such."""
    met: dict[ir.Variable, set[int]] = {}
    points: dict[int, list[Mapping[ir.Variable, int]]] = {}
    for value, point in values:
        points.setdefault(value, []).append(point)
    for first, one in values:
        reached = range(first + possible.start, first + possible.stop)
        near = reached if len(reached) < len(points) else (second for second in points if second in reached)
        for other in (point for second in near for point in points.get(second, ())):
            distances = {variable: other[variable] - number for variable, number in one.items()}
            if all(found[each] in (None, apart) for each, apart in distances.items()):
                for variable, distance in distances.items():
                    met.setdefault(variable, set()).add(distance)
                if all(found[each] is not None or len(several) > 1 for each, several in met.items()):
                    return True  # there is nothing more to learn
    found.update({variable: min(distances) for variable, distances in met.items() if len(distances) == 1})
    return bool(met)


def divisions(parts: Sequence[ir.Statement]) -> list[tuple[ir.Variable, ir.Expression, int, int]]:
    """Return variables that are parts of a fused loop (`delinearize`), each with the whole, the divisor and the width.

    The width is 0 for all that is above the divisor.
    """
    found: list[tuple[ir.Variable, ir.Expression, int, int]] = []
    for one in parts:
        match one:
            case ir.Let(variable, ir.Binary("mod", ir.Binary("div", whole, ir.Constant(divisor)), ir.Constant(width))):
                found.append((variable, whole, int(divisor), int(width)))
            case ir.Let(variable, ir.Binary("mod", whole, ir.Constant(width))):
                found.append((variable, whole, 1, int(width)))
            case ir.Let(variable, ir.Binary("div", whole, ir.Constant(divisor))):
                found.append((variable, whole, int(divisor), 0))
    return found


def _note_fused(
    divisions: Sequence[tuple[ir.Variable, ir.Expression, int, int]],
    found: dict[ir.Variable, int | None],
    moving: _Moving,
) -> None:
    """Note the distances in fused loops of which every part is known to be the same."""
    widths = {
        (whole, divisor): width
        for part, whole, divisor, width in divisions
        if found.get(part) == 0 and width != 1  # a part of one iteration says nothing of the others
    }
    for whole in {whole for whole, _ in widths}:
        divisor = 1
        while width := widths.get((whole, divisor), 0):
            divisor *= width
        if (whole, divisor) in widths:
            form = moving.simplifier.form(moving.simplifier(whole))
            _solve(form, form, found, moving)
