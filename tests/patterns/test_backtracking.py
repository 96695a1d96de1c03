"""The machine that runs goals depth first and takes back what failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graft.patterns import (
    is_op,
    wildcard,
)
from graft.patterns.backtracking import STEP_LIMIT, Goals, Machine, Scope, StepLimitError
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, root


def test_a_pattern_without_end_is_stopped() -> None:
    deep = wildcard()
    for _ in range(17):
        deep = deep + wildcard()
    body = "v0 = Identity(x)\nu0 = Relu(x)\n"
    body += "".join(f"v{i + 1} = Add(v{i}, u{i})\nu{i + 1} = Add(u{i}, v{i})\n" for i in range(17)) + "y = Sub(v17, x)"
    with pytest.raises(StepLimitError) as caught:
        match(is_op("Sub")(deep, is_op("Relu")), root(graph_of(body)))
    assert str(caught.value) == (
        "a pattern took more than 200000 steps at one node; give its alternatives different operators"
    )


def pick(machine: Machine, pattern: object, subject: object, scope: Scope) -> Iterator[Goals]:
    """Offer the members of a list for a name, in order."""

    def ways() -> Iterator[Goals]:
        for one in subject:  # type: ignore[attr-defined]
            machine.bind(scope.captures, str(pattern), one)
            yield ()

    return ways()


def differ(machine: Machine, pattern: object, subject: object, scope: Scope) -> Goals | None:
    """Succeed where two names stand for different things."""
    first, second = scope.captures["a"], scope.captures["b"]
    return None if first == second else ()


def test_solutions_come_in_the_order_of_the_ways_and_failures_ask_for_the_next() -> None:
    machine, scope = Machine(), Scope(None)
    goals: Goals = ((pick, "a", [1, 2], scope), (pick, "b", [1, 2, 3], scope), (differ, None, None, scope))
    found = [dict(scope.captures) for _ in machine.solutions(*goals)]
    assert found == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 1}, {"a": 2, "b": 3}]
    assert scope.captures == {}
    assert machine.choices == []


def test_a_step_is_replaced_by_its_goals_before_those_that_follow() -> None:
    seen: list[str] = []

    def say(machine: Machine, pattern: str, subject: tuple[str, ...], scope: Scope) -> Goals:
        seen.append(pattern)
        return tuple((say, one, (), scope) for one in subject)

    scope = Scope(None)
    assert list(Machine().solutions((say, "first", ("inner", "other"), scope), (say, "last", (), scope))) == [None]
    assert seen == ["first", "inner", "other", "last"]


def test_no_goals_are_reached_at_once() -> None:
    assert list(Machine().solutions()) == [None]


def test_what_a_failed_way_pushed_is_popped_again() -> None:
    items: list[int] = []

    def push(machine: Machine, pattern: int, subject: object, scope: Scope) -> Iterator[Goals]:
        def ways() -> Iterator[Goals]:
            for one in (1, 2):
                machine.push(items, one)
                yield ()

        return ways()

    assert [list(items) for _ in Machine().solutions((push, 0, None, Scope(None)))] == [[1], [2]]
    assert items == []


def test_a_search_that_was_left_is_forgotten() -> None:
    machine, scope = Machine(), Scope(None)
    goals: Goals = ((pick, "a", [1, 2], scope),)
    next(machine.solutions(*goals))
    assert scope.captures == {"a": 1}
    assert machine.steps == 1
    machine.forget()
    assert (scope.captures, machine.choices, machine.steps) == ({}, [], 0)


def test_the_last_step_within_the_limit_is_free_of_it() -> None:
    machine = Machine()
    machine.spend(STEP_LIMIT)
    with pytest.raises(StepLimitError):
        machine.spend(1)


def test_what_a_step_entered_before_any_choice_is_taken_back_too() -> None:
    def enter(machine: Machine, pattern: str, subject: int, scope: Scope) -> Goals:
        machine.bind(scope.captures, pattern, subject)  # type: ignore[misc]
        return ()

    machine, scope = Machine(), Scope(None)
    same: Goals = ((enter, "a", 1, scope), (enter, "b", 1, scope), (differ, None, None, scope))
    assert list(machine.solutions(*same)) == []
    assert scope.captures == {}
