"""Coordinate descent over points of a template: it finds what trying all finds where costs have one valley."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from graft.core.schedule.templates.descent import Space, descend


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    order: str = "ij"


ROWS, COLUMNS = (1, 2, 4, 8, 16, 32), (1, 3, 5, 7)
ALL = [Tile(*values) for values in product(ROWS, COLUMNS, ("ij", "ji"))]


def test_what_is_near_differs_in_one_knob_and_is_possible() -> None:
    space = Space.of(one for one in ALL if one.rows * one.columns <= 24)
    assert list(space.near(Tile(4, 3))) == [
        Tile(2, 3), Tile(1, 3), Tile(8, 3), Tile(4, 1), Tile(4, 5), Tile(4, 3, "ji"),
    ]  # fmt: skip
    assert list(Space.of([Tile(1, 1)]).near(Tile(1, 1))) == []


@given(st.sampled_from(ALL), st.sampled_from(ALL))
def test_the_bottom_of_a_valley_is_found_from_anywhere(start: Tile, bottom: Tile) -> None:
    def cost(one: Tile) -> float:
        apart = abs(ROWS.index(one.rows) - ROWS.index(bottom.rows))
        return apart + abs(one.columns - bottom.columns) + (one.order != bottom.order)

    found = descend(Space.of(ALL), [start], cost)
    assert found[start] == cost(start)
    assert min(found, key=found.__getitem__) == min(ALL, key=cost) == bottom
    assert all(found[one] == cost(one) for one in found)


@given(st.integers(0, 20), st.lists(st.sampled_from(ALL), max_size=6))
def test_no_more_is_tried_than_the_budget_allows_and_nothing_twice(trials: int, starts: list[Tile]) -> None:
    tried: list[Tile] = []
    descend(Space.of(ALL), starts, lambda one: tried.append(one) or one.rows, trials)
    assert len(tried) == len(set(tried)) <= trials
    assert tried[: len(set(starts))] == list(dict.fromkeys(starts))[:trials]
