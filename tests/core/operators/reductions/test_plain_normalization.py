"""Normalisations as plain operators: what they compute is what `onnx.reference` computes of the operator."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.graph.dimensions import unique
from graft.core.operators.definition.function_body import OPSET, Body, Function
from graft.core.operators.reductions import plain_normalization as plain

SHAPES = {"x": [4, 4, 3, 5], "s": [4], "b": [4], "m": [4], "v": [4], "r": [5]}
CASES: list[tuple[Function, str]] = [
    (plain.layer, "y, mean, deviation = LayerNormalization <axis = 3, epsilon = 0.01> (x, r, r)"),
    (plain.root_mean_square, "y = RMSNormalization <epsilon = 0.1> (x, r)"),
    (plain.instance, "y = InstanceNormalization <epsilon = 0.1> (x, s, b)"),
    (plain.group, "y = GroupNormalization <num_groups = 2> (x, s, b)"),
    (plain.mean_variance, "y = MeanVarianceNormalization <axes = [0, 2]> (x)"),
    (plain.norm, "y = LpNormalization <p = 1, axis = 1> (x)"),
    (plain.norm, "y = LpNormalization <axis = 2> (x)"),
    (plain.batch, "y = BatchNormalization <epsilon = 0.1> (x, s, b, m, v)"),
    (plain.batch, "y, m2, v2 = BatchNormalization <training_mode = 1, momentum = 0.3> (x, s, b, m, v)"),
    (plain.local_response, "y = LRN <size = 3, alpha = 0.5, beta = 0.6, bias = 1.5> (x)"),
    (plain.local_response, "y = LRN <size = 2> (x)"),
]


@pytest.mark.parametrize(("function", "text"), CASES)
def test_it_computes_what_the_operator_does(function: Function, text: str) -> None:
    node = onnx.parser.parse_node(text)
    given = [helper.make_tensor_value_info(name, 1, SHAPES[name]) for name in dict.fromkeys(node.input)]
    body = Body(node, {one.name: one.type for one in given}, {}, partial(unique, taken=set(node.output)))
    function(body)
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    rng = np.random.default_rng(0)
    feeds = {one.name: rng.uniform(0.5, 1.5, SHAPES[one.name]).astype(np.float32) for one in given}
    found = [
        ReferenceEvaluator(
            helper.make_model(
                helper.make_graph(nodes, "g", given, results), opset_imports=[helper.make_opsetid("", OPSET)]
            )
        ).run(None, feeds)
        for nodes in ([node], body.nodes)
    ]
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
