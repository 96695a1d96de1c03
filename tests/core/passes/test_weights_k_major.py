"""Dequantised weights that are read transposed are stored K-major."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.passes.weights_k_major import WeightsKMajor

BLOCKS = """float[3, 2] s = {1, 2, 3, 4, 5, 6}, int8[3, 2] z = {0, 1, 2, 3, 4, 5}"""


def transposed(
    reader: str, more: str = "", scales: str = BLOCKS, given: str = "<axis = -1, block_size = 2> (w, s, z)",
    inputs: str = "float[2, 4] x", outputs: str = "float[2, 3] y",
) -> tuple[bool, ir.Model]:  # fmt: skip
    """Run the pass on a product by weights ``[3, 4]``, of blocks of two terms; what it computes stays the same."""
    model = load(
        parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs})
            <int8[3, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {scales}> {{
                whole = DequantizeLinear {given}
                {reader} {more} }}"""
        )
    )
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    feeds |= {value.name: np.float32(3) for value in model.graph.inputs[1:]}
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


@pytest.mark.parametrize(
    ("scales", "given", "axis"),
    [
        ("float[4] s = {1, 2, 3, 4}", "(w, s)", 0),
        ("float[4] s = {1, 2, 3, 4}, int8[4] z = {1, 2, 3, 4}", "<axis = 1> (w, s, z)", 0),
        ("float[3] s = {1, 2, 3}", "<axis = 0> (w, s)", 1),
        ("float[3] s = {1, 2, 3}", "<axis = -2> (w, s)", 1),
        ("float s = {2}", "(w, s)", 0),
    ],
)
def test_scales_of_rows_columns_or_all_weights_stay_what_they_are(scales: str, given: str, axis: int) -> None:
    changed, model = transposed("t = Transpose(whole) y = MatMul(x, t)", scales=scales, given=given)
    assert changed
    node = model.graph.node(0)
    assert node.attributes["axis"].value == axis
    assert node.inputs[1] is model.graph.initializers["s"]


@pytest.mark.parametrize(
    ("changes", "reader"),
    [
        ({"outputs": "float[2, 3] y, float[4, 3] t"}, "t = Transpose(whole) y = MatMul(x, t)"),
        ({"outputs": "float[3, 4] t"}, "t = Transpose <perm = [0, 1]> (whole)"),
        ({"outputs": "float[2, 3] y, float[3, 4] e"}, "u = Transpose <perm = [0, 1]> (whole) e = Identity(u)"
         " t = Transpose(whole) y = MatMul(x, t)"),
        ({"outputs": "float[2, 3] y, float[3, 4] whole"}, "y = Gemm <transB = 1> (x, whole)"),
        ({"outputs": "float[3, 2] y"}, "y = Gemm <transB = 1> (whole, x)"),
        ({"outputs": "float[2, 3] y", "scales": "float unread = {2}", "inputs": "float[2, 4] x, float s",
          "given": "(w, s)"}, "y = Gemm <transB = 1> (x, whole)"),
    ],
)  # fmt: skip
def test_weights_of_which_a_reader_or_the_caller_has_another_view_stay(changes: dict[str, str], reader: str) -> None:
    changed, _ = transposed(reader, **changes)
    assert not changed


def test_weights_that_are_read_as_they_are_stay() -> None:
    changed, model = transposed("y = Gemm <transB = 1> (x, whole)", "other = Abs(whole) e = Identity(other)")
    assert not changed
    assert model.graph.node(0).attributes["axis"].value == -1
