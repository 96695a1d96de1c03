"""Stores that differ by a constant distance, as schedules write register tiles out, back in loops.

The compiler is asked to write these out again: the text is shorter, what is computed and in which order stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import (
    children,
    map_statement,
    statement_children,
    statement_expressions,
    structural_key,
    substitution,
    walk_expressions,
    walk_statements,
    with_children,
)
from graft.core.types import INT64

PERIODS = range(1, 9)
"""How many stores an iteration may have."""
MOST = 16
"""Iterations up to which compilers are asked to write a loop out."""
NODES = 64
"""Expressions of more nodes are not compared."""
FRAME = 3
"""The lines of a loop beside its body."""


def rolled(statement: ir.Statement) -> ir.Statement:
    """Return a statement without vectors whose repeated stores are ``unrolled`` loops.

    What is loaded for one store alone, of memory that nobody writes, is loaded where it is stored.
    """
    known = _loaded_once(statement)

    def without(inner: ir.Statement) -> ir.Statement:
        return inner.body if isinstance(inner, ir.Let) and inner.variable in known else inner

    return map_statement(map_statement(statement, substitution(known), without), lambda one: one, _Rolled())


def _loaded_once(statement: ir.Statement) -> dict[ir.Variable, ir.Expression]:
    """Return the loads that have a name and are used in one store, in no other loop."""
    written = {inner.buffer for inner in walk_statements(statement) if isinstance(inner, ir.Store)}
    bound: dict[ir.Variable, tuple[ir.Expression, ir.For | None]] = {}
    places: dict[ir.Variable, list[ir.For | None]] = {}
    stack: list[tuple[ir.Statement, ir.For | None]] = [(statement, None)]
    while stack:
        inner, loop = stack.pop()
        if isinstance(inner, ir.Let) and isinstance(inner.value, ir.Load) and inner.value.buffer not in written:
            bound[inner.variable] = inner.value, loop
        expressions = statement_expressions(inner)
        used = [*expressions, *(operand for node in walk_expressions(*expressions) for operand in children(node))]
        for variable in used:
            if isinstance(variable, ir.Variable):
                # What is no store is no place for a load: two of them.
                places.setdefault(variable, []).extend([loop] * (1 if isinstance(inner, ir.Store) else 2))
        within = inner if isinstance(inner, ir.For) else loop
        stack += [(one, within) for one in statement_children(inner)]
    return {variable: value for variable, (value, loop) in bound.items() if places.get(variable) == [loop]}


class _Run(NamedTuple):
    """Stores from a place on: ``times`` times ``period`` of them, and the distances of their indices."""

    period: int
    times: int
    strides: tuple[int, ...]

    @property
    def saved(self) -> int:
        """Lines that a loop is shorter."""
        return self.times * self.period - self.period - FRAME


@dataclass
class _Rolled:
    """The rule on statements."""

    indices: Simplifier = field(default_factory=Simplifier)

    def __call__(self, statement: ir.Statement) -> ir.Statement:
        if not isinstance(statement, ir.Block):
            return statement
        flat = [one for inner in statement.statements for one in _flattened(inner)]
        found: list[ir.Statement] = []
        while flat:
            run = self._longest(flat)
            if run is None:
                found.append(flat.pop(0))
                continue
            found.append(_loop(flat[: run.period], run))
            del flat[: run.period * run.times]
        return ir.Block(tuple(found)) if len(found) > 1 else found[0] if found else statement

    def _longest(self, flat: Sequence[ir.Statement]) -> _Run | None:
        """Return the run at the beginning that saves most lines."""
        runs = [run for period in PERIODS if (run := self._run(flat, period)) is not None]
        return max(runs, key=lambda run: (run.saved, -run.period), default=None)

    def _run(self, flat: Sequence[ir.Statement], period: int) -> _Run | None:
        times = 1
        strides: tuple[int, ...] = ()
        while times < MOST and (times + 1) * period <= len(flat):
            here, following = (flat[(times + at) * period : (times + at + 1) * period] for at in (-1, 0))
            apart = self._distances(here, following)
            if apart is None or (times > 1 and apart != strides):
                break
            times, strides = times + 1, apart
        run = _Run(period, times, strides)
        return run if run.saved > 0 else None

    def _distances(self, here: Sequence[ir.Statement], there: Sequence[ir.Statement]) -> tuple[int, ...] | None:
        """Return how far indices are apart, in the order of `_shifted`; None for stores that are not alike."""
        found: list[int] = []
        for one, other in zip(here, there, strict=True):
            if not (isinstance(one, ir.Store) and isinstance(other, ir.Store)):
                return None
            if one.buffer is not other.buffer or one.mask is not None or other.mask is not None:
                return None
            pairs = [*zip(one.indices, other.indices, strict=True)]
            apart = [self._apart(*pair) for pair in pairs]
            found += [distance for distance in apart if distance is not None]
            if None in apart or not self._alike(one.value, other.value, found):
                return None
        return tuple(found)

    def _alike(self, one: ir.Expression, other: ir.Expression, found: list[int]) -> bool:
        """Whether two values are the same but for distances of indices, which are added to what was found."""
        if len(found) > NODES or type(one) is not type(other):
            return False
        if isinstance(one, ir.Load) and isinstance(other, ir.Load):
            apart = [self._apart(*pair) for pair in zip(one.indices, other.indices, strict=False)]
            found += [distance for distance in apart if distance is not None]
            return one.buffer is other.buffer and one.mask is None and other.mask is None and None not in apart
        if structural_key(one, lambda _: None) != structural_key(other, lambda _: None):
            return False
        return all(self._alike(*pair, found) for pair in zip(children(one), children(other), strict=True))

    def _apart(self, one: ir.Expression, other: ir.Expression) -> int | None:
        """Return the distance between two indices, None if it is no constant."""
        if one.type.lanes > 1 or other.type.lanes > 1:
            return None
        distance = self.indices.form(other).plus(self.indices.form(one), -1)
        return distance.constant if distance.is_constant else None


def _flattened(statement: ir.Statement) -> Iterator[ir.Statement]:
    if isinstance(statement, ir.Block):
        for inner in statement.statements:
            yield from _flattened(inner)
    else:
        yield statement


def _loop(stores: Sequence[ir.Statement], run: _Run) -> ir.Statement:
    number, strides = ir.Variable("lane"), iter(run.strides)

    def shifted(index: ir.Expression) -> ir.Expression:
        stride = next(strides)
        if stride == 0:
            return index
        step = number if stride == 1 else ir.Binary("mul", number, ir.Constant(stride, INT64))
        return step if index == ir.Constant(0, INT64) else ir.Binary("add", index, step)

    def value(expression: ir.Expression) -> ir.Expression:
        if isinstance(expression, ir.Load):
            return replace(expression, indices=tuple(map(shifted, expression.indices)))
        return with_children(expression, tuple(map(value, children(expression))))

    body: list[ir.Statement] = []
    for store in stores:
        assert isinstance(store, ir.Store), store
        indices = tuple(map(shifted, store.indices))
        body.append(ir.Store(store.buffer, indices, value(store.value)))
    inner = body[0] if len(body) == 1 else ir.Block(tuple(body))
    return ir.For(number, ir.Constant(run.times, INT64), "unrolled", inner)
