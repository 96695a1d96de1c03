"""The dimensions that patterns demand."""

from __future__ import annotations

import onnx_ir as ir

from graft.patterns import (
    is_op,
    wildcard,
)
from graft.patterns.matching import match
from graft.runtime.extents import Symbol
from tests.patterns.graphs import graph_of, hits, root

ROWS = {"inputs": "float[seq,8] x", "outputs": "float[seq,8] y"}


def test_dtype_rank_and_shape_are_demands_on_the_value() -> None:
    shape = {"inputs": "float[n,3,4] x", "outputs": "float[n,3,4] y"}
    body = "y = Relu(x)"
    assert hits(is_op("Relu")(wildcard().has_dtype("float32", "float16")), body, **shape) == ["y"]
    assert hits(is_op("Relu")(wildcard().has_dtype("int8")), body, **shape) is None
    assert hits(is_op("Relu").has_rank(3), body, **shape) == ["y"]
    assert hits(is_op("Relu").has_rank(1, 2), body, **shape) is None
    for wanted, fits in (
        (("n", 3, 4), True), ((None, 3, 4), True), ((..., 4), True), (("n", ...), True), ((...,), True),
        (("n", ..., 4), True), (("m", 3, 4), True),
        ((2, 3, 4), False), (("n", 3), False), ((..., 3), False), ((..., 1, "n", 3, 4), False),
    ):  # fmt: skip
        assert (hits(is_op("Relu")(wildcard().has_shape(*wanted)), body, **shape) is not None) == fits


def test_same_shape_compares_two_values_of_a_match() -> None:
    left = wildcard()
    pattern = is_op("Add")(left, wildcard().same_shape_as(left))
    assert hits(pattern, "y = Add(x, b)", inputs="float[2,3] x, float[2,3] b") == ["y"]
    assert hits(pattern, "y = Add(x, b)", inputs="float[2,3] x, float[3] b") is None
    first = wildcard().same_shape_as(left)
    assert hits(is_op("Sub")(first, left), "y = Sub(x, b)", inputs="float[2,3] x, float[2,3] b") == ["y"]
    assert hits(is_op("Sub")(first, left), "y = Sub(x, b)", inputs="float[2,3] x, float[1,3] b") is None


def test_a_name_in_shapes_stands_for_one_extent_of_a_match() -> None:
    square = is_op("Relu")(wildcard().has_shape("n", "n"))
    for inputs, fits in (
        ("float[4,4] x", True), ("float[4,5] x", False), ("float[seq,seq] x", True), ("float[seq,4] x", False),
        ("float[seq,past] x", False), ("float[seq,?] x", False),
    ):  # fmt: skip
        assert (hits(square, "y = Relu(x)", inputs=inputs, outputs=inputs.replace("x", "y")) is not None) == fits


def test_a_name_in_two_shapes_is_the_same_provably_equal_extent() -> None:
    product = is_op("MatMul")(wildcard().has_shape("rows", "inner"), wildcard().has_shape("inner", None))
    assert hits(product, "y = MatMul(x, w)", inputs="float[n,k] x, float[k,8] w", outputs="float[n,8] y") == ["y"]
    assert hits(product, "y = MatMul(x, w)", inputs="float[n,k] x, float[j,8] w", outputs="float[n,8] y") is None
    graph = graph_of("y = MatMul(x, w)", inputs="float[n,k] x, float[j,8] w", outputs="float[n,8] y")
    for value, shape in zip(graph.inputs, (["n", "past + n"], ["n + past", 8]), strict=True):
        value.shape = ir.Shape(shape)
    assert match(product, root(graph)) is not None


def test_an_expression_of_names_is_judged_when_the_names_are_known() -> None:
    pattern = is_op("MatMul")(wildcard().has_shape("2*n"), wildcard().has_shape("n"))
    for left, right, fits in ((8, 4, True), (8, 5, False), ("2*s", "s", True), ("t", "s", False)):
        graph = graph_of("y = MatMul(x, w)", inputs="float[a] x, float[b] w", outputs="float y")
        graph.inputs[0].shape, graph.inputs[1].shape = ir.Shape([left]), ir.Shape([right])
        assert (match(pattern, root(graph)) is not None) == fits


def test_a_match_tells_what_the_names_in_shapes_stand_for() -> None:
    found = match(is_op("Relu")(wildcard().has_shape("rows", "columns")), root(graph_of("y = Relu(x)", **ROWS)))
    assert found is not None
    assert found.dimensions == {"rows": Symbol("seq"), "columns": 8}


def test_another_order_of_arguments_gives_names_other_extents() -> None:
    pattern = is_op("Add")(wildcard().has_shape("n", 1), wildcard().has_shape(1, "n"))
    shapes = {"inputs": "float[1,seq] x, float[seq,1] b", "outputs": "float[seq,seq] y"}
    assert hits(pattern, "y = Add(x, b)", **shapes) == ["y"]
