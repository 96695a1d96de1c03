"""The machine under the matcher: goals to reach, choices to come back to, and what to take back then.

A goal is a step with its arguments. A step fails (None), or is replaced by further goals, or offers several ways, each
a tuple of goals, of which later ones are tried if whatever follows fails. Neither the length of a match nor the
depth of the graph costs any of Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import onnx_ir as ir

from graft.errors import PatternError
from graft.patterns.language import Pattern
from graft.runtime.extents import Extent

STEP_LIMIT = 200_000
"""Steps for one pattern at one node; a pattern that needs more is ambiguous beyond use."""

Subject: TypeAlias = "ir.Value | None"
Found: TypeAlias = "ir.Node | ir.Value | None"
Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class Scope:
    """What patterns and names stand for; an unfolding of a recursive pattern has a scope of its own.

    ``graph`` is where the scope's operators must stand: a group of nodes never reaches into another graph.
    """

    graph: ir.Graph | ir.Function | None
    bound: dict[Pattern, Found] = field(default_factory=dict)
    captures: dict[str, Subject] = field(default_factory=dict)
    dimensions: dict[str, Extent] = field(default_factory=dict)
    """What the names in shapes stand for."""


Goals: TypeAlias = "tuple[Goal, ...]"
Step: TypeAlias = Callable[[Any, Any, Any, Scope], "Goals | Iterator[Goals] | None"]
"""Called with the machine, a pattern, its subject and a scope."""
Goal: TypeAlias = tuple[Step, Any, Any, Scope]
_Left: TypeAlias = "tuple[Goal, _Left] | None"


class StepLimitError(PatternError):
    """A search that was given up: whether the pattern matches is not known."""


class Machine:
    """Runs goals depth first, preferred ways first; what a step enters is taken back when its way fails."""

    def __init__(self) -> None:
        self.steps = 0
        self.choices: list[tuple[Iterator[Goals], _Left, int]] = []
        self._entered: list[tuple[Any, Any]] = []

    def bind(self, mapping: dict[Key, Item], key: Key, value: Item) -> None:
        """Enter a new key until the way taken fails."""
        mapping[key] = value
        self._entered.append((mapping, key))

    def push(self, items: list[Item], item: Item) -> None:
        """Append an item until the way taken fails."""
        items.append(item)
        self._entered.append((items, None))

    def forget(self) -> None:
        """Take back whatever an earlier search entered that was not run to its end."""
        self.choices.clear()
        self._take_back(0)
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Count steps; raise StepLimitError where a search took more than `STEP_LIMIT`."""
        self.steps += steps
        if self.steps > STEP_LIMIT:
            raise StepLimitError(
                f"a pattern took more than {STEP_LIMIT} steps at one node; give its alternatives different operators"
            )

    def solutions(self, *goals: Goal) -> Iterator[None]:
        """Yield once for every way in which all goals are reached.

        Raises StepLimitError where that takes more than `STEP_LIMIT` steps.
        """
        left: _Left = _before(goals, None)
        while True:
            if left is None:
                yield
                alternative = self._next_way()
            else:
                self.spend(1)
                (step, pattern, subject, scope), left = left
                found = step(self, pattern, subject, scope)
                if isinstance(found, tuple):
                    left = _before(found, left)
                    continue
                if found is not None:
                    self.choices.append((found, left, len(self._entered)))
                alternative = self._next_way()
            if alternative is None:
                return
            left = _before(*alternative)

    def _next_way(self) -> tuple[Goals, _Left] | None:
        """Return the next way of the latest choice that has one, with the goals that come after it."""
        while self.choices:
            ways, left, entered = self.choices[-1]
            self._take_back(entered)
            way = next(ways, None)
            if way is not None:
                return way, left
            self.choices.pop()
        self._take_back(0)
        return None

    def _take_back(self, count: int) -> None:
        while len(self._entered) > count:
            container, key = self._entered.pop()
            if isinstance(container, list):
                container.pop()
            else:
                del container[key]


def _before(goals: Goals, left: _Left) -> _Left:
    for goal in reversed(goals):
        left = (goal, left)
    return left
