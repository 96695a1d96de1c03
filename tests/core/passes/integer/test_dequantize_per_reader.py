"""The pass that brings dequantisation to its readers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graft.core.passes.integer.dequantize_per_reader import DequantizePerReader
from graft.core.shapes.inference import infer_shapes

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


def changed(text: str) -> tuple[ir.Model, bool, list[str]]:
    """Run the pass; check that the model computes what it did, and return its operators in order."""
    proto = onnx.parser.parse_model(HEAD + text)
    model = ir.from_proto(proto)
    infer_shapes(model)
    did = DequantizePerReader().run(model)
    x = np.random.default_rng(0).integers(-128, 128, (2, 4)).astype(np.int8)
    before, after = (ReferenceEvaluator(one).run(None, {"x": x}) for one in (proto, ir.to_proto(model)))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    return model, did, [node.op_type for node in model.graph]


SCALE = "<float s = {0.5}, int8 z = {3}, float t = {0.25}, int64[1] shape = {8}>"


def test_each_reader_gets_a_dequantize_linear_of_its_own() -> None:
    _, did, operators = changed(
        f"(int8[2,4] x) => (float[2,4] y, float[2,4] q) {SCALE} "
        "{ d = DequantizeLinear(x, s, z) y = Relu(d) q = Neg(d) }"
    )
    assert did
    assert operators.count("DequantizeLinear") == 2


def test_an_output_of_the_model_keeps_its_dequantize_linear() -> None:
    _, did, operators = changed(
        f"(int8[2,4] x) => (float[2,4] d, float[2,4] y) {SCALE} {{ d = DequantizeLinear(x, s, z) y = Relu(d) }}"
    )
    assert did
    assert operators.count("DequantizeLinear") == 2


def test_a_view_of_dequantized_bytes_becomes_a_view_of_bytes() -> None:
    _, did, operators = changed(
        f"(int8[2,4] x) => (float[8] y) {SCALE} {{ d = DequantizeLinear(x, s, z) r = Reshape(d, shape) y = Relu(r) }}"
    )
    assert did
    assert operators == ["Reshape", "DequantizeLinear", "Relu"]


def test_quantized_numbers_of_a_view_become_a_view_of_bytes() -> None:
    _, did, operators = changed(
        f"(int8[2,4] x) => (int8[8] y) {SCALE} "
        "{ d = DequantizeLinear(x, s, z) a = Relu(d) r = Reshape(a, shape) y = QuantizeLinear(r, t, z) }"
    )
    assert did
    assert operators == ["DequantizeLinear", "Relu", "QuantizeLinear", "Reshape"]


def test_bytes_that_are_dequantized_and_quantized_alike_stay() -> None:
    _, did, operators = changed(
        f"(int8[2,4] x) => (int8[8] y) {SCALE} "
        "{ d = DequantizeLinear(x, s, z) r = Reshape(d, shape) y = QuantizeLinear(r, s, z) }"
    )
    assert did
    assert [name for name in operators if name != "Identity"] == ["Reshape"]


def test_a_model_without_shared_readers_is_left_alone() -> None:
    _, did, _ = changed(f"(int8[2,4] x) => (float[2,4] y) {SCALE} {{ d = DequantizeLinear(x, s, z) y = Relu(d) }}")
    assert not did
