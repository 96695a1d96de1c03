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

from graft.core.tensor_ir.ir import (
    Binary,
    BinaryOperator,
    Constant,
    Expression,
    For,
    Function,
    Let,
    Statement,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import map_statement, statement_children, walk_statements
from graft.core.types import INT64
from graft.errors import CompileError, ScheduleError


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """One primitive with its operands, which are the fields."""

    form: ClassVar[str]
    """The text, with fields in braces as operands; a last tuple, if it is empty, takes a word with it."""

    def check(self, function: Function) -> None:  # noqa: B027 (most steps ask nothing of dependences)
        """Raise ScheduleError where iterations depend on each other and the step would change what is computed."""

    @abstractmethod
    def change(self, function: Function) -> Function:
        """Return the changed function; raise ScheduleError where the loops are not such as the step takes."""

    def apply(self, function: Function) -> Function:
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


def index(value: int) -> Constant:
    """Return an int64 constant."""
    return Constant(value, INT64)


def combine(operator: BinaryOperator, left: Expression, right: Expression | int) -> Expression:
    """Return an operation on indices, shortened where a side is neutral."""
    other = index(right) if isinstance(right, int) else right
    match operator, other:
        case (("add" | "sub"), Constant(0)):
            return left
        case (("mul" | "div"), Constant(1)):
            return left
        case "add", _ if left == index(0):
            return other
    return Binary(operator, left, other)


def delinearize(number: Expression, extents: Sequence[int]) -> list[Expression]:
    """Return the place along each axis of a number that runs over all of them in row-major order.

    ``extents`` are those of the axes behind the first.
    """
    places, below = list[Expression](), 1
    for extent in reversed(extents):
        places.insert(0, combine("mod", combine("div", number, below), extent))
        below *= extent
    return [combine("div", number, below), *places]


def loops(body: Statement) -> list[For]:
    """Return the loops of a statement, outermost first."""
    return [one for one in walk_statements(body) if isinstance(one, For)]


def find(step: Step, body: Statement, name: str) -> For:
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


def find_place(step: Step, body: Statement, name: str) -> For:
    """Return the loop over the variable ``name``, in which memory may be allocated: it is no part of a vector."""
    loop = find(step, body, name)
    vector = [one for one in around(body, loop.variable) if isinstance(one, For) and one.kind == "vector"]
    if vector:
        step.fail(f"'{vector[0].variable.name}' is a vector already, and its lanes have no memory of their own")
    return loop


def fresh(step: Step, body: Statement, *names: str, instead: Collection[str] = ()) -> list[Variable]:
    """Return new variables, whose names no loop has yet, but those that they stand ``instead`` of."""
    taken = {loop.variable.name for loop in loops(body)}.difference(instead)
    for number, name in enumerate(names):
        if name in taken or name in names[:number]:
            step.fail(f"there already is a loop '{name}'")
    return [Variable(name) for name in names]


def constant_extent(step: Step, loop: For) -> int:
    """Return the extent of a loop, which must be a number."""
    if not isinstance(loop.extent, Constant):
        step.fail(f"the extent of '{loop.variable.name}' is not a number")
    return int(loop.extent.value)


def around(body: Statement, variable: Variable) -> list[Statement]:
    """Return the statements around the loop over a variable, outermost first, and the loop itself."""

    def search(statement: Statement) -> list[Statement] | None:
        if isinstance(statement, For) and statement.variable is variable:
            return [statement]
        for inner in statement_children(statement):
            below = search(inner)
            if below is not None:
                return [statement, *below]
        return None

    found = search(body)
    assert found is not None, variable.name
    return found


def with_loop(body: Statement, variable: Variable, change: Callable[[For], Statement]) -> Statement:
    """Return a statement with the loop over a variable replaced."""

    def rule(statement: Statement) -> Statement:
        return change(statement) if isinstance(statement, For) and statement.variable is variable else statement

    return map_statement(body, lambda expression: expression, rule)


def bounded(body: Statement) -> Simplifier:
    """Return a simplifier that knows the bounds of the loops in a statement, and of what they bind."""
    simplifier = Simplifier()
    for one in walk_statements(body):
        if isinstance(one, For):
            extent = simplifier.interval(simplifier(one.extent))
            bounds = None if extent is None else (0, max(0, extent[1] - 1))
        elif isinstance(one, Let) and one.value.type == INT64:
            bounds = simplifier.interval(simplifier(one.value))
        else:
            continue
        if one.variable in simplifier.ranges:  # of another loop: it runs over both
            known = simplifier.ranges[one.variable]
            bounds = (min(known[0], bounds[0]), max(known[1], bounds[1])) if known and bounds else None
        simplifier = simplifier.with_range(one.variable, bounds)
    return simplifier


def with_body(function: Function, body: Statement) -> Function:
    """Return the function with another body."""
    return replace(function, body=body)
