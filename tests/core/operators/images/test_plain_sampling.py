"""GridSample as plain operators: the numbers of `onnx.reference`, inside and outside of the image."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.graph.dimensions import unique
from graft.core.operators.definition.function_body import OPSET, Body
from graft.core.operators.images.plain_sampling import grid_sample


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_it_computes_what_the_operator_does(mode: str, padding: str, align: int) -> None:
    node = onnx.parser.parse_node(
        f'y = GridSample <mode = "{mode}", padding_mode = "{padding}", align_corners = {align}> (x, grid)'
    )
    given = [helper.make_tensor_value_info(*one) for one in (("x", 11, [2, 3, 4, 5]), ("grid", 11, [2, 3, 2, 2]))]
    body = Body(node, {one.name: one.type for one in given}, {}, partial(unique, taken={"x", "grid", "y"}))
    grid_sample(body)
    rng = np.random.default_rng(3)
    reach = 1.0 if mode == "cubic" else 1.3  # beyond, the reference moves points, not elements as PyTorch
    feeds = {"x": rng.uniform(-1, 1, (2, 3, 4, 5)), "grid": rng.uniform(-reach, reach, (2, 3, 2, 2))}
    results = [helper.make_value_info("y", onnx.TypeProto())]
    expected, found = (
        ReferenceEvaluator(
            helper.make_model(
                helper.make_graph(nodes, "g", given, results), opset_imports=[helper.make_opsetid("", OPSET)]
            )
        ).run(None, feeds)[0]
        for nodes in ([node], body.nodes)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)  # its weights are float32
