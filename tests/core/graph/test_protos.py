"""Walks over messages of ONNX, with the nodes of bodies and functions."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

from graft.core.graph.protos import (
    canonical,
    constants_of,
    every_graph,
    every_node,
    nodes_of_model,
    order,
    put_nodes,
    reads_of,
    types_of,
    where_of,
)
from graft.errors import ModelError

MODEL = """
<ir_version: 10, opset_import: ["": 21, "own": 1]>
main (float[n] x, bool c) => (float[n] y) <float[1] w = {2}>
{
  k = Constant <value = float[1] {3}> ()
  a = Add (x, w)
  y = If (c) <
    then_branch = yes () => (float[n] t) { t = Mul (a, k) },
    else_branch = no () => (float[n] e) { s = Neg (a) e = Abs (s) }
  >
}
<domain: "own", opset_import: ["": 21]>
twice (p) => (q) { q = Add (p, p) }
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def test_nodes_are_followed_by_those_of_their_bodies(model: onnx.ModelProto) -> None:
    assert [one.op_type for one in every_node(model.graph.node)] == ["Constant", "Add", "If", "Mul", "Neg", "Abs"]
    assert [one.op_type for one in nodes_of_model(model)][-2:] == ["Abs", "Add"]
    assert [one.name for one in every_graph(model.graph)] == ["main", "yes", "no"]


def test_a_body_reads_what_it_takes_from_outside(model: onnx.ModelProto) -> None:
    assert [*reads_of(model.graph.node[2])] == ["c", "a", "k", "a"]
    passing = helper.make_graph([], "g", [], [helper.make_tensor_value_info("outer", 1, [])])
    assert [*reads_of(helper.make_node("If", ["c"], ["y"], then_branch=passing))] == ["c", "outer"]


def test_constants_and_types_are_those_that_a_graph_states(model: onnx.ModelProto) -> None:
    assert {name: one.float_data[0] for name, one in constants_of(model.graph).items()} == {"w": 2.0, "k": 3.0}
    assert types_of(model.graph).keys() == {"x", "c", "y", "w"}
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    assert constants_of(model.graph).keys() == {"k"}


def test_an_order_keeps_what_is_in_order_and_moves_the_least(model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    assert [one.op_type for one in order(nodes)] == ["Constant", "Add", "If"]
    assert [one.op_type for one in order([nodes[2], nodes[1], nodes[0]])] == ["Add", "Constant", "If"]
    put_nodes(model.graph, order([nodes[2], nodes[0], nodes[1]]))
    assert [one.op_type for one in model.graph.node] == ["Constant", "Add", "If"]


def test_a_cycle_is_an_error_that_names_its_nodes() -> None:
    nodes = [helper.make_node("Neg", ["b"], ["a"], name="one"), helper.make_node("Abs", ["a"], ["b"])]
    with pytest.raises(ModelError, match=r"cycle: .*Neg \(node 'one'\) -> ") as caught:
        order(nodes)
    assert "Abs (node 'b')" in caught.value.message


def test_names_for_people() -> None:
    assert [canonical(one) for one in ("ai.onnx", "", "ai.onnx.ml")] == ["", "", "ai.onnx.ml"]
    assert where_of(helper.make_node("Relu", ["x"], ["y"])) == "Relu (node 'y')"
