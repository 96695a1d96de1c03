"""What rows demand of extents where ranks are unknown: nothing that the operator does not mean."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.shapes.equations import asked_of
from tests.core.operators.node_cases import cases


def test_demands_of_valid_nodes_are_never_contradicted_where_ranks_are_unknown() -> None:
    for case in cases():
        for number in range(len(case.model.graph.input)):
            for unknown in ({number}, {*range(number + 1)}):
                model = onnx.ModelProto()
                model.CopyFrom(case.model)
                for one in unknown:
                    model.graph.input[one].type.tensor_type.ClearField("shape")
                list(asked_of(NodeView(ir.from_proto(model).graph.node(0)), {}))  # ModelError where one is never met
