"""Mutants of a source: each differs in one place, and types and docstrings are left alone."""

from __future__ import annotations

from tests.mutation.mutants import mutants_of

SOURCE = '''
def least(x: "int | None", low: int = 0) -> int:
    """Return x, at least 0."""
    return low if x is None or x < low else x + 1
'''


def test_every_operator_and_number_is_changed_once() -> None:
    found = [mutant.change for mutant in mutants_of(SOURCE)]
    assert sorted(found) == sorted([
        "0  ->  1",
        "x is None or x < low  ->  x is None and x < low",
        "x is None  ->  x is not None",
        "x < low  ->  x <= low",
        "x + 1  ->  x - 1",
        "1  ->  2",
    ])  # fmt: skip


def test_a_mutant_is_another_program() -> None:
    for mutant in mutants_of(SOURCE):
        names: dict[str, object] = {}
        exec(mutant.source, names)
        assert mutant.line in (2, 4)


SAME = '''
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class Pair:
    """A docstring, and the number of it."""

    least: int | None = None
    __slots__ = (1, 2)

def held(x: "int | None"):
    assert x != 3, x + 1
    if isinstance(x, list | Pair):
        raise ValueError(f"{x} is {4 + 5}")
'''


def test_what_changes_no_behaviour_is_left_alone() -> None:
    assert not mutants_of(SAME)
