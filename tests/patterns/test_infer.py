"""Types and shapes of new nodes are those that ONNX infers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graft.patterns import is_op, wildcard
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
