"""A step of a schedule: what all primitives share, and how they find the loops that they name.

A step is data with a text form (``split i 16 -> i0 i1``). It changes a function whose loops have names of their own
into another, purely; `verify` checks the result.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import free_variables, map_nested, statement_children, walk_statements
from graft.core.types import INT64
from graft.errors import CompileError, ScheduleError


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """One primitive with its operands, which are the fields."""

    form: ClassVar[str]
    """The text, with fields in braces as operands; a last tuple, if it is empty, takes a word with it."""

    def check(self, function: ir.Function) -> None:  # noqa: B027 (most steps ask nothing of dependences)
        """Raise ScheduleError where iterations depend on each other and the step would change what is computed."""

    @abstractmethod
    def change(self, function: ir.Function) -> ir.Function:
        """Return the changed function; raise ScheduleError where the loops are not such as the step takes."""

    def apply(self, function: ir.Function) -> ir.Function:
        """Return the changed function, verified; raise ScheduleError that names the step and the reason."""
        self.check(function)
        changed = self.change(function)
        try:
            verify(changed)
        except CompileError as error:
            self.fail(f"the result is refused: {error}")
        return changed

    def fail(self, reason: str) -> NoReturn:
        """Raise the error: the step cannot be taken."""
        raise ScheduleError(f"cannot '{self}': {reason}", step=str(self))

    def __str__(self) -> str:
        words: list[str] = []
        for word in self.form.split():
            value = getattr(self, word[1:-1]) if word[0] == "{" else word
            if value == ():
                words.pop()  # what led to it
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
        return " ".join(words)


def index(value: int) -> ir.Constant:
    """Return an int64 constant."""
    return ir.Constant(value, INT64)


def combine(operator: ir.BinaryOperator, left: ir.Expression, right: ir.Expression | int) -> ir.Expression:
    """Return an operation on indices, shortened where a side is neutral."""
    other = index(right) if isinstance(right, int) else right
    match operator, other:
        case (("add" | "sub"), ir.Constant(0)):
            return left
        case (("mul" | "div"), ir.Constant(1)):
            return left
        case "add", _ if left == index(0):
            return other
    return ir.Binary(operator, left, other)


def multiplied(left: ir.Expression, right: ir.Expression | int) -> ir.Expression:
    """Return a product of extents: a number where both are."""
    other = index(right) if isinstance(right, int) else right
    if isinstance(left, ir.Constant) and isinstance(other, ir.Constant):
        return index(int(left.value) * int(other.value))
    return other if left == index(1) else combine("mul", left, other)


def delinearize(number: ir.Expression, extents: Sequence[int | ir.Expression]) -> list[ir.Expression]:
    """Return the place along each axis of a number that runs over all of them in row-major order.

    ``extents`` are those of the axes behind the first.
    """
    places: list[ir.Expression] = []
    below: ir.Expression = index(1)
    for extent in reversed(extents):
        places.insert(0, combine("mod", combine("div", number, below), extent))
        below = multiplied(below, extent)
    return [combine("div", number, below), *places]


def loops(body: ir.Statement) -> list[ir.For]:
    """Return the loops of a statement, outermost first."""
    return [one for one in walk_statements(body) if isinstance(one, ir.For)]


def find(step: Step, body: ir.Statement, name: str) -> ir.For:
    """Return the loop over the variable ``name``."""
    known = [loop for loop in loops(body) if loop.variable.name == name]
    if len(known) == 1:
        return known[0]
    names = [loop.variable.name for loop in loops(body)]
    if known:
        step.fail(f"{len(known)} loops are called '{name}'")
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(names) or 'none'}"
    step.fail(f"there is no loop '{name}'; {hint}")


def find_place(step: Step, body: ir.Statement, name: str) -> ir.For:
    """Return the loop over the variable ``name``, in which memory may be allocated: it is no part of a vector."""
    loop = find(step, body, name)
    vector = [one for one in around(body, loop.variable) if isinstance(one, ir.For) and one.kind == "vector"]
    if vector:
        step.fail(f"'{vector[0].variable.name}' is a vector already, and its lanes have no memory of their own")
    return loop


def fresh(step: Step, body: ir.Statement, *names: str, instead: Collection[str] = ()) -> list[ir.Variable]:
    """Return new variables, whose names no loop has yet, but those that they stand ``instead`` of."""
    taken = {loop.variable.name for loop in loops(body)}.difference(instead)
    for number, name in enumerate(names):
        if name in taken or name in names[:number]:
            step.fail(f"there already is a loop '{name}'")
    return [ir.Variable(name) for name in names]


def constant_extent(step: Step, loop: ir.For) -> int:
    """Return the extent of a loop, which must be a number."""
    if not isinstance(loop.extent, ir.Constant):
        step.fail(f"the extent of '{loop.variable.name}' is not a number")
    return int(loop.extent.value)


def around(body: ir.Statement, variable: ir.Variable) -> list[ir.Statement]:
    """Return the statements around the loop over a variable, outermost first, and the loop itself."""

    def search(statement: ir.Statement) -> list[ir.Statement] | None:
        if isinstance(statement, ir.For) and statement.variable is variable:
            return [statement]
        for inner in statement_children(statement):
            below = search(inner)
            if below is not None:
                return [statement, *below]
        return None

    found = search(body)
    assert found is not None, variable.name
    return found


def all_reach(body: ir.Statement, loop: ir.For, units: Sequence[ir.For], *conditions: ir.Expression) -> bool:
    """Whether no condition around a loop, nor one of more ``conditions`` in it, tells iterations of others apart."""
    apart = {unit.variable for unit in units}
    for one in around(body, loop.variable):
        if isinstance(one, ir.Let) and not apart.isdisjoint(free_variables(one.value)):
            apart.add(one.variable)
        if isinstance(one, ir.If):
            conditions = (*conditions, one.condition)
    return apart.isdisjoint(free_variables(*conditions))


def with_loop(body: ir.Statement, variable: ir.Variable, change: Callable[[ir.For], ir.Statement]) -> ir.Statement:
    """Return a statement with the loop over a variable replaced."""

    def rule(statement: ir.Statement) -> ir.Statement:
        return change(statement) if isinstance(statement, ir.For) and statement.variable is variable else statement

    return map_nested(body, rule)


def bounded(body: ir.Statement) -> Simplifier:
    """Return a simplifier that knows the bounds of the loops in a statement, and of what they bind."""
    simplifier = Simplifier()
    for one in walk_statements(body):
        if isinstance(one, ir.For):
            extent = simplifier.interval(simplifier(one.extent))
            bounds = None if extent is None else (0, max(0, extent[1] - 1))
        elif isinstance(one, ir.Let) and one.value.type == INT64:
            bounds = simplifier.interval(simplifier(one.value))
        else:
            continue
        if one.variable in simplifier.ranges:  # of another loop: it runs over both
            known = simplifier.ranges[one.variable]
            bounds = (min(known[0], bounds[0]), max(known[1], bounds[1])) if known and bounds else None
        simplifier = simplifier.with_range(one.variable, bounds)
    return simplifier


def with_body(function: ir.Function, body: ir.Statement) -> ir.Function:
    """Return the function with another body."""
    return replace(function, body=body)
