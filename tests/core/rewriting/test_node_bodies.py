"""The nodes that stand for one: between the node's own values, in names of their own, computing what it does."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.graph.dimensions import unique
from graft.core.operators.all import OPERATORS
from graft.core.rewriting.node_bodies import body_of, is_function

OPSET = 22


def written(text: str, domain: str = "") -> list[onnx.NodeProto] | None:
    node = onnx.parser.parse_node(text)
    node.domain = domain
    types = {name: helper.make_tensor_type_proto(1, [2, 3]) for name in node.input}
    return body_of(node, {"": OPSET}, types, {}, partial(unique, taken={"x", "y"}))


def test_the_function_of_onnx_computes_what_the_operator_does() -> None:
    nodes = written("y = Selu <alpha = 2.0> (x)")
    assert nodes is not None
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 3])], [value("y", 1, [2, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    (got,) = ReferenceEvaluator(model).run(None, {"x": x})
    gamma = np.float32(1.05070102214813232421875)
    np.testing.assert_allclose(got, np.where(x > 0, gamma * x, gamma * 2 * np.expm1(x)), rtol=1e-5)


def test_values_within_have_names_that_nothing_else_has() -> None:
    nodes = written("y = Selu (x)")
    assert nodes is not None
    inner = [name for node in nodes for name in node.output if name != "y"]
    assert len(inner) == len(set(inner))
    assert all(name.startswith("y/") for name in inner)


def test_the_function_of_a_row_stands_for_operators_of_other_domains() -> None:
    nodes = written("y = QuickGelu (x)", "com.microsoft")
    assert nodes is not None
    assert [node.op_type for node in nodes][-1] == "Identity"


def test_what_has_no_function_has_no_nodes() -> None:
    assert written("y = Sin (x)") is None
    assert written("y = Foo (x)", "com.example.unknown") is None


def test_a_row_s_function_is_preferred_and_a_division_of_floats_is_a_product() -> None:
    nodes = written("y = Div (x, z)")
    assert nodes is not None
    assert [node.op_type for node in nodes] == ["Reciprocal", "Mul", "Identity"]
    nodes = written("y = LayerNormalization (x, z)")
    assert nodes is not None
    assert "Flatten" not in {node.op_type for node in nodes}
    assert is_function(OPERATORS.get("Div"))
    assert not is_function(OPERATORS.get("Conv"))
