"""Dequantised weights that are read transposed are stored K-major."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.passes.weights_k_major import WeightsKMajor


def transposed(reader: str, more: str = "") -> tuple[bool, ir.Model]:
    """Run the pass on a product by weights ``[3, 4]`` of blocks of two terms; what it computes stays the same."""
    model = load(
        parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2, 4] x) => (float[2, 3] y)
            <int8[3, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, float[3, 2] s = {{1, 2, 3, 4, 5, 6}},
             int8[3, 2] z = {{0, 1, 2, 3, 4, 5}}> {{
                whole = DequantizeLinear <axis = -1, block_size = 2> (w, s, z)
                {reader} {more} }}"""
        )
    )
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    expected = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)
    changed = WeightsKMajor().run(model)
    for old, new in zip(expected, ReferenceEvaluator(ir.to_proto(model)).run(None, feeds), strict=True):
        np.testing.assert_array_equal(old, new)
    return changed, model


@pytest.mark.parametrize(
    ("reader", "left"),
    [
        ("t = Transpose <perm = [1, 0]> (whole) y = MatMul(x, t)", ["DequantizeLinear", "MatMul"]),
        ("t = Transpose(whole) y = MatMul(x, t)", ["DequantizeLinear", "MatMul"]),
        ("y = Gemm <transB = 1> (x, whole)", ["DequantizeLinear", "Gemm"]),
    ],
)
def test_constants_are_transposed_where_all_readers_turn_them(reader: str, left: list[str]) -> None:
    changed, model = transposed(reader)
    assert changed
    assert [node.op_type for node in model.graph] == left
    weights = model.graph.node(0).outputs[0].shape
    assert weights is not None and weights.numpy() == (4, 3)


def test_weights_that_are_read_as_they_are_stay() -> None:
    changed, model = transposed("y = Gemm <transB = 1> (x, whole)", "other = Abs(whole) e = Identity(other)")
    assert not changed
    assert model.graph.node(0).attributes["axis"].value == -1
