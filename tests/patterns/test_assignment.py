"""Perfect matchings of patterns with inputs are those that trying all orders finds."""

from __future__ import annotations

import random
from itertools import permutations

from graft.patterns.assignment import Assignment


def all_matchings(possible: list[list[int]], inputs: int) -> set[tuple[int, ...]]:
    orders = permutations(range(inputs), len(possible))
    return {order for order in orders if all(one in row for one, row in zip(order, possible, strict=True))}


def test_there_is_a_matching_exactly_where_an_order_of_the_inputs_fits() -> None:
    draw = random.Random(0)
    for _ in range(300):
        inputs = draw.randint(1, 5)
        rows = [[one for one in range(inputs) if draw.random() < 0.5] for _ in range(draw.randint(1, inputs))]
        found = Assignment(rows).start()
        matchings = all_matchings(rows, inputs)
        assert (found is None) == (not matchings)
        assert found is None or found in matchings


def test_a_choice_stands_exactly_where_an_order_with_it_and_the_earlier_ones_does() -> None:
    draw = random.Random(1)
    for _ in range(300):
        count = draw.randint(2, 5)
        rows = [[one for one in range(count) if draw.random() < 0.6] for _ in range(count)]
        assignment, matchings = Assignment(rows), all_matchings(rows, count)
        mates = assignment.start()
        if mates is None:
            continue
        for pattern in range(count):
            for chosen in rows[pattern]:
                if chosen in mates[:pattern]:
                    continue
                found = assignment.choose(mates, pattern, chosen)
                wanted = {one for one in matchings if one[: pattern + 1] == (*mates[:pattern], chosen)}
                assert (found is None) == (not wanted)
                assert found is None or found in wanted


def test_what_was_chosen_already_stays_as_it_is() -> None:
    assignment = Assignment([[0, 1], [0, 1]])
    assert assignment.start() == (0, 1)
    assert assignment.choose((0, 1), 0, 0) == (0, 1)
    assert assignment.choose((0, 1), 0, 1) == (1, 0)


def test_no_patterns_need_no_inputs() -> None:
    assert Assignment([]).start() == ()
