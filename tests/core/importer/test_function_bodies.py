"""Functions that ONNX gives, in the place of operators that nobody computes as a whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.importer.load import load
from graft.core.passes.pipeline import record_of


def model_of(text: str, opset: int = 25) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in load(model).graph]


LOSS = """g (float[2,3] x, int64[2] t) => (float l) {{ l = SoftmaxCrossEntropyLoss {attributes} (x, t) }}"""


def test_a_loss_becomes_what_it_is_made_of_down_to_what_is_computed() -> None:
    model = load(model_of(LOSS.format(attributes="")))
    found = {node.op_type for node in model.graph}
    assert "LogSoftmax" in found
    assert not found & {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}
    notes = [step.note for step in record_of(model) if step.name == "expand-functions"]
    assert notes == ["functions of SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss"]


def test_a_model_without_such_operators_has_no_such_step() -> None:
    model = load(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert "expand-functions" not in [step.name for step in record_of(model)]


def test_attributes_and_their_defaults_reach_the_body() -> None:
    scores, targets = np.array([[1, 2, 3], [0, 5, 1]], np.float32), np.array([2, 0])
    for attributes in ("", '<reduction = "sum">', "<ignore_index = 0>"):
        model = model_of(LOSS.format(attributes=attributes))
        (expected,) = ReferenceEvaluator(model).run(None, {"x": scores, "t": targets})
        np.testing.assert_allclose(graft.compile(model, ["llvm"])(scores, targets), expected, rtol=1e-5)


def test_two_nodes_of_one_operator_have_values_of_their_own() -> None:
    model = model_of(
        """g (float[2,3] x, float[2,3] z, int64[2] t) => (float l, float m) {
          l = SoftmaxCrossEntropyLoss(x, t)
          m = SoftmaxCrossEntropyLoss(z, t)
        }"""
    )
    x, z, targets = np.eye(2, 3, dtype=np.float32), np.ones((2, 3), np.float32), np.array([1, 2])
    expected = ReferenceEvaluator(model).run(None, {"x": x, "z": z, "t": targets})
    np.testing.assert_allclose(graft.compile(model, ["llvm"])(x, z, targets), expected, rtol=1e-5)


def test_bodies_of_control_flow_are_looked_through() -> None:
    model = model_of(
        """g (bool c, float[2,3] x, int64[2] t) => (float l) {
          l = If(c) <then_branch = a () => (float u) { u = NegativeLogLikelihoodLoss(x, t) },
                     else_branch = b () => (float v) { v = ReduceSum <keepdims = 0> (x) }>
        }"""
    )
    scores, targets = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2])
    program = graft.compile(model, ["llvm"])
    assert program(np.array(True), scores, targets) == -3
    assert program(np.array(False), scores, targets) == 15


@settings(max_examples=4)
@given(batch=st.integers(1, 2), steps=st.integers(1, 3), heads=st.integers(1, 2), seed=st.integers(0, 9))
@pytest.mark.filterwarnings("ignore")
def test_linear_attention_of_any_shape_is_what_its_function_is(batch: int, steps: int, heads: int, seed: int) -> None:
    width, random = 2 * heads, np.random.default_rng(seed)
    model = model_of(
        f"""g (float[{batch},{steps},{width}] q, float[{batch},{steps},{width}] k, float[{batch},{steps},{width}] v)
          => (float[{batch},{steps},{width}] y, float[{batch},{heads},2,2] s) {{
          y, s = LinearAttention <q_num_heads = {heads}, kv_num_heads = {heads}, update_rule = "linear"> (q, k, v)
        }}""",
        27,
    )
    arrays = {name: random.standard_normal((batch, steps, width)).astype(np.float32) for name in "qkv"}
    expected = ReferenceEvaluator(model).run(None, arrays)
    for result, wanted in zip(graft.compile(model, ["llvm"], threads=1)(*arrays.values()), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
