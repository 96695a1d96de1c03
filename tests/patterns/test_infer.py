"""Types and shapes of new nodes are those that ONNX infers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.errors import PatternError
from graft.patterns import is_op, wildcard
from graft.patterns.infer import infer_types
from graft.patterns.match import Match
from graft.patterns.rewrite import NewNodes, Rule, rewrite
from tests.patterns.graphs import graph_of


def test_values_that_a_rule_makes_have_types_and_shapes() -> None:
    graph = graph_of("y = Relu(x)")

    def build(match: Match, op: NewNodes) -> ir.Value:
        flat = op("Reshape", match["x"], op.constant(np.array([3, 2], np.int64)))
        return op("Reshape", op("Abs", flat), op.constant(np.array([2, -1], np.int64)))

    rewrite(graph, [Rule("fold", is_op("Relu")(wildcard().named("x")), build)])
    made = {node.op_type: node.outputs[0] for node in graph}
    assert str(made["Abs"].shape) == "[3,2]"
    assert all(node.outputs[0].type == ir.TensorType(ir.DataType(1)) for node in graph if node.op_type != "Constant")
    assert (made["Constant"].dtype, str(graph.outputs[0].shape)) == (ir.DataType.INT64, "[2,3]")


def new(operator: str, *inputs: ir.Value | None, domain: str = "", **attributes: int) -> ir.Node:
    node = ir.Node(domain, operator, inputs, [ir.AttrInt64(key, value) for key, value in attributes.items()])
    node.outputs[0].name = f"{operator}_out"
    return node


def test_types_flow_from_producers_to_consumers() -> None:
    x = graph_of("y = Relu(x)").inputs[0]
    cast = new("Cast", x, to=11)
    transposed = new("Transpose", cast.outputs[0])
    infer_types([cast, transposed], {"": 21})
    assert (transposed.outputs[0].dtype, str(transposed.outputs[0].shape)) == (ir.DataType.DOUBLE, "[3,2]")


def test_what_is_known_already_is_kept() -> None:
    x = graph_of("y = Relu(x)").inputs[0]
    node = new("Relu", x)
    node.outputs[0].shape = ir.Shape(["rows", "columns"])
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    infer_types([node], {"": 21})
    assert (node.outputs[0].dtype, str(node.outputs[0].shape)) == (ir.DataType.FLOAT16, "[rows,columns]")


def test_an_operator_of_a_domain_that_nobody_defines_stays_as_it_is() -> None:
    node = new("Glue", graph_of("y = Relu(x)").inputs[0], domain="com.acme")
    infer_types([node], {"": 21})
    assert node.outputs[0].type is None


@pytest.mark.parametrize(
    ("operator", "hint"),
    [("Reul", "did you mean 'Relu'?"), ("Zzzzzzzz", "name the domain of another: op(..., domain=...)")],
)
def test_an_operator_that_onnx_does_not_have_is_refused(operator: str, hint: str) -> None:
    with pytest.raises(PatternError) as caught:
        infer_types([new(operator, graph_of("y = Relu(x)").inputs[0])], {"": 21})
    assert str(caught.value) == f"ONNX has no operator '{operator}'; {hint}"


def test_a_node_that_is_wrong_is_named() -> None:
    x = graph_of("y = Relu(x)").inputs[0]
    node = new("MatMul", x, x)
    node.name = "product"
    with pytest.raises(PatternError) as caught:
        infer_types([node], {"": 21})
    assert str(caught.value).startswith("MatMul (node 'product') is wrong: ")
