"""Normalisations as plain operators: what they compute is what `onnx.reference` computes of the operator."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graft
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


@pytest.mark.parametrize("axis", [-1, 1])
def test_gradients_of_float32_take_the_statistics_that_the_layer_has(axis: int) -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]> g (KIND[4,3,5] x, KIND[4,3,5] g, KIND[LAST] s, KIND[LAST] b)
        => (KIND loss) { y = LayerNormalization <axis = AXIS> (x, s, b) p = Mul (y, g)
        loss = ReduceSum <keepdims = 0> (p) }""".replace("AXIS", str(axis))
    last = (5,) if axis == -1 else (3, 5)
    rng, text = np.random.default_rng(0), text.replace("LAST", ",".join(map(str, last)))
    feeds = {name: rng.normal(size=shape) + 100 * (name == "x") for name, shape in
             {"x": (4, 3, 5), "g": (4, 3, 5), "s": last, "b": last}.items()}  # fmt: skip
    kinds = {"float": np.float32, "double": np.float64}
    protos = {kind: onnx.parser.parse_model(text.replace("KIND", kind)) for kind in kinds}
    models = {kind: graft.grad(proto, wrt=["x", "s", "b"]) for kind, proto in protos.items()}
    narrow, wide = (
        graft.compile(models[name]).run({one: array.astype(kind) for one, array in feeds.items()})
        for name, kind in kinds.items()
    )
    for name in ("x_grad", "s_grad", "b_grad"):
        np.testing.assert_allclose(narrow[name], wide[name], rtol=1e-4, atol=1e-4)
    reductions = [node.op_type for node in models["float"].graph].count("ReduceSumSquare")
    assert (reductions, [node.op_type for node in models["double"].graph].count("ReduceSumSquare")) == (0, 1)
