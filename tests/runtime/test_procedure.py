"""Programs as data, and their JSON form."""

import json

from graft.runtime.extents import Operation, Symbol
from graft.runtime.procedure import (
    Call,
    ExtentBound,
    Procedure,
    SymbolSpec,
    TensorSpec,
    procedure_from_json,
    procedure_to_json,
)

from .programs import tensor


def test_a_procedure_survives_its_json_form():
    tensors = (
        TensorSpec("x", "float32", (2, 3), "input", index=0),
        TensorSpec("w", "float32", (3,), "constant", constant="abc"),
        TensorSpec("t", "float32", (2, 3), "arena", offset=64),
        TensorSpec("v", "float32", (6,), "view", of=2, offset=0),
        TensorSpec("d", "int64", None, "dynamic"),
        TensorSpec("y", "float32", (6,), "output", index=0),
    )
    calls = (
        Call("call", (0, 1, -1), (2,), module=3, function="f", origin=("a", "b"), flops=12),
        Call("scan", (2,), (4,), bodies=(1,), arguments=((0,),), attributes={"scan_inputs": 1}),
        Call("copy", (3,), (5,)),
    )
    procedure = Procedure("main", tensors, (0,), (5,), calls, 128, 64)
    assert procedure_from_json(json.loads(json.dumps(procedure_to_json(procedure)))) == procedure


SEQ, PAST = Symbol("seq"), Symbol("past")


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
