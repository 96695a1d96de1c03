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
from graft.core.passes.eliminate_dead_code import EliminateDeadCode

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


TRAINED = """<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview.training" : 1]>
    g (KIND[4,3,5] x, KIND[4,3,5] g, KIND[3] s, KIND[3] b, KIND[3] m, KIND[3] v) => (KIND loss, KIND[3] m2, KIND[3] v2)
    <KIND[4,3,5] y, KIND[4,3,5] p> {
        y, m2, v2 = BatchNormalization <training_mode = 1, epsilon = 0.01> (x, s, b, m, v)
        p = Mul (y, g) q = Mul (p, y) loss = ReduceSum <keepdims = 0> (q)
        dx, ds, db = ai.onnx.preview.training.Gradient <xs = ["x", "s", "b"], y = "loss"> (x, s, b) }"""


def test_gradient_of_a_batch_takes_two_sums_over_the_image() -> None:
    text = TRAINED.replace("KIND[3] v2)", "KIND[3] v2, KIND[4,3,5] dx)").replace("KIND", "float")
    loaded = graft.load(onnx.parser.parse_model(text))
    EliminateDeadCode().run(loaded)
    operators = [node.op_type for node in loaded.graph]
    assert operators.count("ReduceSum") == 3  # that of the loss is one
    assert operators.count("ReduceMean") == operators.count("ReduceSumSquare") == 1  # those of the forward pass


def test_gradients_of_a_batch_are_its_slopes() -> None:
    outputs = "KIND[3] v2, KIND[4,3,5] dx, KIND[3] ds, KIND[3] db)"
    text = TRAINED.replace("KIND[3] v2)", outputs).replace("KIND", "double")
    program = graft.compile(onnx.parser.parse_model(text), cache=False)
    rng = np.random.default_rng(2)
    feeds = {one.name: rng.uniform(0.5, 1.5, one.shape) for one in program.inputs}
    found = program.run(feeds)
    for name, gradient in (("x", found["dx"]), ("s", found["ds"]), ("b", found["db"])):
        way = rng.normal(size=feeds[name].shape)
        sides = [program.run({**feeds, name: feeds[name] + side * 1e-5 * way})["loss"] for side in (1, -1)]
        assert np.sum(gradient * way) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-7)


def test_no_gradient_of_a_layer_stores_its_normal_rows() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[64,96] x, float[96] s, float[96] b, float[64,96] g)
        => (float loss) { y = LayerNormalization (x, s, b) p = Mul (y, g) loss = ReduceSum <keepdims = 0> (p) }"""
    model = graft.grad(onnx.parser.parse_model(text), wrt=["x", "s", "b"], outputs=[])
    program = graft.compile(model, ["llvm"], strict=True)
    stored = [one for one in program.description.procedures[0].tensors if one.storage == "arena"]
    assert all(one.shape != (64, 96) for one in stored)
