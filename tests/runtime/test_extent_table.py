"""Extents in manifests: tables of distinct operations, there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graft.runtime.extent_table import ExtentReader, ExtentWriter
from graft.runtime.extents import Extent, Operation, Symbol

SEQ, PAST = Symbol("seq"), Symbol("past")
OPERATORS = ["add", "sub", "mul", "floordiv", "mod", "min", "max"]
EXTENTS: st.SearchStrategy[Extent] = st.recursive(
    st.integers(-(2**40), 2**40) | st.sampled_from([SEQ, PAST]),
    lambda inner: st.builds(Operation, st.sampled_from(OPERATORS), inner, inner),
    max_leaves=12,
)


def test_an_operation_stands_once_in_the_table():
    writer = ExtentWriter(["seq", "past"])
    total = Operation("add", SEQ, PAST)
    assert writer.shape([1, PAST, Operation("mul", 2, total), total]) == [1, "s1", "e1", "e0"]
    assert writer.rows == [("add", "s0", "s1"), ("mul", 2, "e0")]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EXTENTS, max_size=4))
def test_shapes_survive_their_table(shape):
    writer = ExtentWriter(["seq", "past"])
    dimensions = writer.shape(shape)
    rows = json.loads(json.dumps(writer.rows))
    assert ExtentReader(["seq", "past"], rows).shape(dimensions) == tuple(shape)


@pytest.mark.parametrize("dimension", ["s2", "e0", "s", "x1", "s-1", "", None, True, 1.5, [1]])
def test_a_dimension_that_is_none_is_refused(dimension):
    with pytest.raises(ValueError, match="is neither a number nor an earlier symbol or extent"):
        ExtentReader(["seq", "past"], []).extent(dimension)


def test_an_entry_refers_to_earlier_ones_only():
    with pytest.raises(ValueError, match=r"^'e0' is neither a number nor an earlier symbol or extent$"):
        ExtentReader(["seq"], [("add", "e0", 1)])


@pytest.mark.parametrize("row", [("pow", 1, 2), ("add", 1), ("add", 1, 2, 3)])
def test_a_row_that_is_no_operation_is_refused(row):
    with pytest.raises(ValueError, match=r"^entry 0 of 'extents' is no operation on two extents$"):
        ExtentReader([], [row])


def test_a_table_that_doubles_with_each_entry_is_refused():
    rows = [("add", "s0", "s0")] + [("mul", f"e{i}", f"e{i}") for i in range(20)]
    with pytest.raises(ValueError, match=r"^entry 12 of 'extents' has more than 4096 operations, or is nested"):
        ExtentReader(["seq"], rows)


def test_a_table_that_nests_with_each_entry_is_refused():
    rows = [("add", "s0", 1)] + [("add", f"e{i}", 1) for i in range(300)]
    with pytest.raises(ValueError, match=r"^entry 256 of 'extents' .* nested more than 256 deep$"):
        ExtentReader(["seq"], rows)
