"""Extents in manifests: tables of distinct operations, there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graft.runtime.extent_table import ExtentReader, ExtentWriter
from graft.runtime.extents import Extent, Operation, Symbol
from graft.runtime.procedure import Call, ExtentBound, Procedure, SymbolSpec, procedure_from_json, procedure_to_json

from .programs import tensor

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


def test_a_procedure_with_symbols_survives_its_json_form():
    double = Operation("mul", 2, SEQ)
    tensors = (
        tensor("x", "float32", [SEQ, 8], "input", index=0),
        tensor("t", "float32", [double, 4], "arena"),
        tensor("v", "float32", [Operation("mul", 8, SEQ)], "view", of=1),
        tensor("e", "int64", [2], "extents", values=(double, -1)),
        tensor("d", "float32", [PAST, 4], "dynamic"),
        tensor("y", "float32", [double, 4], "output", index=0),
    )
    symbols = (SymbolSpec("seq", 1, 512, 0, 0), SymbolSpec("past", 0, None, 4, 0))
    calls = (Call("call", (0,), (1,), module=0, function="f"), Call("call", (2, 3), (4,), module=0, function="g"))
    bounds = (ExtentBound(Operation("add", SEQ, PAST), 1, 1024), ExtentBound(double, 0, None))
    procedure = Procedure("main", tensors, (0,), (5,), calls, symbols=symbols, bounds=bounds)
    data = procedure_to_json(procedure)
    assert procedure_from_json(json.loads(json.dumps(data))) == procedure
    assert data["extents"] == [("mul", 2, "s0"), ("mul", 8, "s0"), ("add", "s0", "s1")]
    assert data["bounds"] == [{"extent": "e2", "low": 1, "high": 1024}, {"extent": "e0", "low": 0, "high": None}]
    assert data["symbols"][1] == {"name": "past", "low": 0, "high": None, "tensor": 4, "axis": 0}
    assert "arena_bytes" not in data
    assert "offset" not in data["tensors"][1]


def test_a_procedure_without_symbols_has_none_of_it_in_its_json_form():
    assert procedure_to_json(Procedure("main", (), (), (), ())).keys() == {
        "name", "tensors", "inputs", "outputs", "calls", "arena_bytes", "arena_bound"
    }  # fmt: skip


def test_a_static_shape_has_numbers_only():
    assert tensor("t", "float32", [2, 3], "arena").static_shape == (2, 3)
    assert tensor("t", "float32", [], "arena").static_shape == ()
    assert tensor("t", "float32", [2, SEQ], "arena").static_shape is None
    assert tensor("t", "float32", None, "dynamic").static_shape is None
