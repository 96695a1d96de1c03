"""Hard shapes cover what they say: each axis of each rank, and each two things that a window may have, on one axis."""

from __future__ import annotations

from itertools import combinations

import pytest

from graft.testkit.conformance.cases.hard_shapes import EVERY_AXIS, ROWS, Row, written


@pytest.mark.parametrize("operator", ROWS)
def test_onnx_takes_every_row_and_no_two_have_one_name(operator: str) -> None:
    rows = ROWS[operator]
    assert [str(row) for row in rows if written(operator, row) is None] == []
    assert len({str(row) for row in rows}) == len(rows)


def test_every_axis_of_every_rank_is_tried_from_either_end() -> None:
    assert {(len(shape), axis % len(shape)) for shape, axis in EVERY_AXIS} == {
        (rank, axis) for rank in range(1, 6) for axis in range(rank)
    }
    assert {axis < 0 for _, axis in EVERY_AXIS} == {True, False}


def aspects(row: Row, axis: int) -> set[str]:
    """Return what is not the default along an axis of a window."""
    rank = len(row.attributes["kernel_shape"])
    pads = row.attributes.get("pads", [0] * 2 * rank)
    found = {name for name in ("strides", "dilations") if row.attributes.get(name, [1] * rank)[axis] > 1}
    found |= {name for name, place in (("begin", axis), ("end", rank + axis)) if pads[place]}
    return found | ({"groups"} if row.attributes.get("group", 1) > 1 else set())


@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool"])
def test_each_two_things_that_a_window_has_meet_on_one_axis(operator: str) -> None:
    met = {
        pair
        for row in ROWS[operator]
        if "kernel_shape" in row.attributes
        for axis in range(len(row.attributes["kernel_shape"]))
        for pair in combinations(sorted(aspects(row, axis)), 2)
    }
    names = ["begin", "dilations", "end", "strides", *(["groups"] if operator == "Conv" else [])]
    assert set(combinations(sorted(names), 2)) <= met
