"""Gemm between two Reshapes: with rows that vary, a product over the axes that are around it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.passes.normalize import normalize

PLAIN = "Gemm(rows, w, c)"
KEPT = ["MatMul", "Add", "Abs"]


def model_of(gemm: str, x: str = "float[a, b, 2] x", results: str = "float[k, l, 3] y", more: str = "") -> ir.Model:
    """Return ``y = Abs(Reshape(Gemm(Reshape(x))))``, where the two axes in front are those of ``x``."""
    return load(
        parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 20]> g ({x}) => ({results})
            <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}, float[3, 2] wt = {{1, 2, 3, 4, 5, 6}}, float[3] c = {{1, 2, 3}},
             float[1, 3] row = {{1, 2, 3}}, int64[2] inner = {{-1, 2}}, int64[1] columns = {{3}}> {{
                rows = Reshape(x, inner)
                [product] p = {gemm}
                front = Shape <start = 0, end = 2> (x)
                outer = Concat <axis = 0> (front, columns)
                [whole] q = Reshape <allowzero = 1> (p, outer)
                y = Abs(q) {more} }}"""
        )
    )


def normalized(model: ir.Model, *shape: int) -> list[str]:
    """Return the operators of the normalised model, which computes what it did."""
    feeds = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
    expected = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)
    normalize(model)
    for old, new in zip(expected, ReferenceEvaluator(ir.to_proto(model)).run(None, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("gemm", [PLAIN, "Gemm <transB = 1> (rows, wt, c)"])
@pytest.mark.parametrize("shape", [(2, 5, 2), (1, 1, 2), (3, 0, 2)])
def test_rows_keep_their_axes(gemm: str, shape: tuple[int, ...]) -> None:
    assert normalized(model_of(gemm), *shape) == KEPT


def test_without_a_bias_there_is_no_add() -> None:
    model = model_of("Gemm(rows, w)")
    assert normalized(model, 2, 5, 2) == ["MatMul", "Abs"]
    assert "product" in model.graph.node(0).metadata_props["graft.origin"].split(",")


def test_what_comes_with_other_axes_is_reshaped_to_those_of_the_result() -> None:
    model = model_of(PLAIN, "float[a, b, 2, 1] x")
    assert normalized(model, 2, 5, 2, 1) == ["Reshape", *KEPT]
    assert str(model.graph.node(0).outputs[0].shape) == "[a,b,2]"


@pytest.mark.parametrize(
    ("gemm", "more"),
    [
        (PLAIN, "z = Neg(p)"),  # two kernels would compute it
        ("Gemm <alpha = 0.5> (rows, w, c)", ""),
        ("Gemm(rows, w, row)", ""),
        ("Gemm <transB = 1> (rows, wt, c)", "z = Neg(wt)"),  # it would be kept in both orders
    ],
)
def test_other_gemms_stay(gemm: str, more: str) -> None:
    results = "float[k, l, 3] y, float[m, n] z" if more else "float[k, l, 3] y"
    assert "Gemm" in normalized(model_of(gemm, results=results, more=more), 2, 5, 2)


def test_rows_that_are_a_number_stay_one_axis() -> None:
    assert "Gemm" in normalized(model_of(PLAIN, "float[2, 5, 2] x"), 2, 5, 2)
