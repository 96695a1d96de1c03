"""The symbols that one procedure knows, and the shapes of its tensors in terms of them."""

from __future__ import annotations

import onnx_ir as ir

from graft.compiler.stitching.extent_scope import ExtentScope
from graft.core.affine.text import parsed
from graft.runtime.extents import Extent, ExtentEquation, Symbol
from graft.runtime.procedure import Procedure
from tests.runtime.programs import tensor

FLOAT = ir.TensorType(ir.DataType.FLOAT)
N, M = Symbol("n"), Symbol("m")


def value(name: str, shape: list[int | str | None] | None, kind: ir.TypeProtocol = FLOAT) -> ir.Value:
    return ir.Value(name=name, shape=None if shape is None else ir.Shape(shape), type=kind)


def read(text: str) -> Extent:
    extent = parsed(text)
    assert extent is not None
    return extent


def test_axes_of_inputs_that_are_symbols_alone_bind_them() -> None:
    scope = ExtentScope()
    shapes = scope.inputs([value("x", ["n + m", 3]), value("y", ["n", "m"])])
    assert shapes == [(read("n + m"), 3), (N, M)]
    assert scope.bound == {"n", "m"}
    assert scope.own == {}


def test_an_extent_that_no_bound_symbols_say_gets_one_of_the_procedures_own() -> None:
    scope = ExtentScope()
    (shape,) = scope.inputs([value("x", ["n", "n + past"])])
    assert shape == (N, Symbol("x_1"))
    assert scope.own == {read("n + past"): Symbol("x_1")}
    assert scope.inputs([value("y", ["n + past"])]) == [(Symbol("x_1"),)]
    assert scope.numbers({"n": 2, "past": 5}) == {"x_1": 7}
    assert scope.numbers({"n": 2}) == {}


def test_results_say_whether_they_are_known_before_the_call_is_done() -> None:
    scope = ExtentScope()
    scope.inputs([value("x", ["n"])])
    assert scope.results([value("y", ["n", 2]), value("z", ["found"]), value("w", None)]) == [
        ((N, 2), False),
        ((Symbol("found"),), True),
        (None, True),
    ]
    assert scope.bound == {"n", "found"}
    assert scope.results([value("v", ["found"])]) == [((Symbol("found"),), False)]


def test_an_unknown_axis_gets_a_symbol_with_a_name_that_is_free() -> None:
    scope = ExtentScope()
    scope.inputs([value("x", ["y_0"])])
    (shape,) = scope.inputs([value("y", [None])])
    assert shape is not None
    assert shape[0] not in (None, Symbol("y_0"))
    assert scope.own == {}


def test_a_packed_value_has_one_axis_of_bytes() -> None:
    scope = ExtentScope()
    assert scope.inputs([value("words", None, ir.TensorType(ir.DataType.STRING))]) == [(Symbol("words_bytes"),)]
    assert scope.bound == {"words_bytes"}


def test_equations_are_told_in_the_symbols_that_are_bound_here() -> None:
    scope = ExtentScope()
    scope.inputs([value("x", ["n", "n + past"])])
    says = ("", "", "")
    equations = [
        ExtentEquation(read(left), read("n"), "equal", says) for left in ("n + past", "n + past + 3", "2*n", "z")
    ]
    found = [one.left for one in scope.equations(equations)]
    assert found == [Symbol("x_1"), read("x_1 + 3"), read("2*n"), Symbol("z")]
    assert all(one.right == N for one in scope.equations(equations))


def test_a_regions_procedure_is_told_the_symbols_that_stand_for_extents_here() -> None:
    scope = ExtentScope()
    scope.inputs([value("x", ["n", "n + past"])])
    tensors = (tensor("a", "float32", (read("n + past"), 2), "input"), tensor("b", "float32", None, "input"))  # type: ignore[arg-type]
    region = Procedure("region", tensors, (0, 1), (), ())
    told = scope.with_symbols(region)
    assert [one.shape for one in told.tensors] == [(Symbol("x_1"), 2), None]
    assert ExtentScope().with_symbols(region) is region
