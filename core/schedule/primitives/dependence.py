"""Which iterations of loops touch the same element: what must stay in order, and what may run at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from graft.core.affine.linear import Linear
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, loads, statement_expressions, substitute, walk_statements

Distance: TypeAlias = Mapping[ir.Variable, int | None]
"""By loop, how many iterations lie between two accesses to one element; None for any number."""


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
            case ir.Binary(operator, ir.Load(buffer, indices), term) if (
                buffer is store.buffer and indices == store.indices
            ):
                exact = operator in ("min", "max") or (operator in ("add", "mul") and not store.value.type.is_float)
                return exact and not store.value.type.is_custom and all(one.buffer is not buffer for one in loads(term))
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
        if isinstance(one, ir.Let) and not _is_division(one.value):
            values[one.variable] = substitute(one.value, values)
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


def conflicts(body: ir.Statement, chain: Sequence[ir.For], simplifier: Simplifier) -> Iterator[Conflict]:
    """Yield the pairs of accesses in a statement that may touch one element in different iterations of ``chain``.

    ``simplifier`` knows the bounds of all loops; those that are neither in ``chain`` nor in ``body`` stand still.
    """
    parts = list(walk_statements(body))
    inner = {one.variable for one in parts if isinstance(one, ir.For | ir.Let)}
    divisions = _divisions(parts)
    known = [(one, one.forms(simplifier)) for one in accesses(body, _written(parts))]
    for number, (first, forms) in enumerate(known):
        for second, others in known[number:]:
            if first.buffer is second.buffer and (first.writes or second.writes):
                distance = _distance(forms, others, chain, inner, simplifier)
                if distance is not None:
                    _note_fused(divisions, distance, simplifier)
                    yield Conflict(first, second, {loop.variable: distance[loop.variable] for loop in chain})


def in_order(conflict: Conflict, before: Sequence[ir.For], after: Sequence[ir.For]) -> bool:
    """Whether two accesses stay in order when loops change theirs; both sequences have the same loops."""
    moved = [loop.variable for loop in before if conflict.distance[loop.variable] != 0]
    now = [loop.variable for loop in after if conflict.distance[loop.variable] != 0]
    signs = [conflict.distance[order[0]] for order in (moved, now) if order]
    if None not in conflict.distance.values() and signs:
        return (signs[0] or 0) * (signs[1] or 0) > 0
    return moved == now or conflict.reassociates


def carried(body: ir.Statement, loop: ir.For, simplifier: Simplifier) -> Conflict | None:
    """Return accesses in which two iterations of a loop meet, None if its iterations are independent."""
    return next((one for one in conflicts(body, [loop], simplifier) if one.distance[loop.variable] != 0), None)


def _is_division(value: ir.Expression) -> bool:
    return isinstance(value, ir.Binary) and value.operator in ("div", "mod")


def _written(parts: Sequence[ir.Statement]) -> set[ir.Buffer]:
    found: set[ir.Buffer] = set()
    for one in parts:
        if isinstance(one, ir.Store):
            found.add(one.buffer)
        elif isinstance(one, ir.CallExtern):
            found |= {load.buffer for load in loads(*one.arguments)}
    return found


def _distance(
    first: Sequence[Linear[int]] | None,
    second: Sequence[Linear[int]] | None,
    chain: Sequence[ir.For],
    inner: set[ir.Variable],
    simplifier: Simplifier,
) -> dict[ir.Variable, int | None] | None:
    """Return how far apart in each loop two accesses of one element are; None if they never meet."""
    moving = {loop.variable for loop in chain} | inner
    found: dict[ir.Variable, int | None] = dict.fromkeys(moving)
    for variable in moving:
        if (bounds := simplifier.ranges.get(variable)) is not None and bounds[0] == bounds[1]:
            found[variable] = 0
    if first is None or second is None:
        return found
    for _ in range(2):  # what one dimension says of a loop helps with another
        for one, other in zip(first, second, strict=True):
            if not _solve(one, other, moving, found, simplifier):
                return None
    for variable, distance in found.items():
        bounds = simplifier.ranges.get(variable)
        if distance and bounds and abs(distance) > bounds[1] - bounds[0]:
            return None
    return found


def _solve(
    one: Linear[int],
    other: Linear[int],
    moving: set[ir.Variable],
    found: dict[ir.Variable, int | None],
    simplifier: Simplifier,
) -> bool:
    """Note what equal indices say of the distances in the loops; return whether they can be equal at all."""
    known = all(_is_known(number, moving, simplifier) for number in {*one.terms, *other.terms})
    if not known:
        return True
    # The distances must make up for what the accesses differ by: sum(factor * distance) in [low, high].
    reach, other_reach = one.lane * (one.lanes - 1), other.lane * (other.lanes - 1)
    low = one.constant + min(0, reach) - other.constant - max(0, other_reach)
    high = one.constant + max(0, reach) - other.constant - min(0, other_reach)
    unknown: dict[ir.Variable, tuple[int, int]] = {}  # factor, largest distance
    for number in {**one.terms, **other.terms}:
        atom, factor, second = simplifier.atom(number), one.terms.get(number, 0), other.terms.get(number, 0)
        if not isinstance(atom, ir.Variable) or atom not in moving:
            if factor != second:
                return True
            continue
        distance, bounds = found[atom], simplifier.ranges.get(atom)
        if factor == second and distance is not None:
            low, high = low - factor * distance, high - factor * distance
        elif bounds is None:
            return True
        elif factor == second:
            unknown[atom] = (factor, bounds[1] - bounds[0])
        else:
            ends = [left * factor - right * second for left in bounds for right in bounds]
            low, high = low + min(ends), high + max(ends)
    while unknown:
        variable = max(unknown, key=lambda one: abs(unknown[one][0]))
        factor, most = unknown.pop(variable)
        rest = sum(abs(size) * other for size, other in unknown.values())
        near, far = (low - rest, high + rest) if factor > 0 else (-high - rest, rest - low)
        possible = range(max(-most, -(-near // abs(factor))), min(most, far // abs(factor)) + 1)
        if len(possible) != 1:
            return bool(possible)
        found[variable] = possible[0]
        low, high = low - factor * possible[0], high - factor * possible[0]
    return low <= 0 <= high


def _is_known(number: int, moving: set[ir.Variable], simplifier: Simplifier) -> bool:
    """Whether an atom is a variable or stands still."""
    atom = simplifier.atom(number)
    return isinstance(atom, ir.Variable) or (free_variables(atom).isdisjoint(moving) and not loads(atom))


def _divisions(parts: Sequence[ir.Statement]) -> list[tuple[ir.Variable, ir.Expression, int, int]]:
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
    simplifier: Simplifier,
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
            form = simplifier.form(simplifier(whole))
            _solve(form, form, set(found), found, simplifier)
