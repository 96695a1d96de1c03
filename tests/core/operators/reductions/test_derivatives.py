"""Derivatives of reductions where elements are equal or 0, and of quantisation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text
from tests.core.operators.elementwise.test_derivatives import HEADER, gradient


@pytest.mark.parametrize(
    ("nodes", "x", "expected"),
    [
        ("y = ReduceMax <keepdims = 0> (x)", [1, 3, 3, 2], [0, 0.5, 0.5, 0]),
        ("y = ReduceMin <keepdims = 0> (x)", [1, 1, 3, 2], [0.5, 0.5, 0, 0]),
        ("y = ReduceProd <keepdims = 0> (x)", [2, 3, 4], [12, 8, 6]),
        ("y = ReduceProd <keepdims = 0> (x)", [2, 0, 4], [0, 8, 0]),
        ("y = ReduceProd <keepdims = 0> (x)", [0, 0, 4], [0, 0, 0]),
        ("y = ReduceL2 <keepdims = 0> (x)", [0, 0], [0, 0]),
        ("y = ReduceL2 <keepdims = 0> (x)", [3, 4], [0.6, 0.8]),
        ("y = ReduceL1 <keepdims = 0> (x)", [-3, 0, 4], [-1, 0, 1]),
        ("y = ReduceMean <keepdims = 0> (x)", [1, 2, 3, 4], [0.25] * 4),
    ],
)
def test_a_reduction_has_the_derivative_of_pytorch(nodes: str, x: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(gradient(nodes, x=x)["x"], expected, rtol=1e-6)


@pytest.mark.parametrize("operator", ["Sum", "Mean", "Prod", "Max", "L2", "LogSumExp", "SumSquare", "LogSum"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_that_are_gone_come_back(operator: str, keepdims: int) -> None:
    text = f"a = Constant <value_ints = [-1, 0]> () y = Reduce{operator} <keepdims = {keepdims}> (x, a)"
    assert of_text(text, {"x": (2, 3, 4)}, low=0.2) <= 1


def test_a_gradient_passes_straight_through_quantisation_but_where_it_is_cut() -> None:
    model = onnx.parser.parse_model(f"""{HEADER} g (float[5] x, float s) => (float[5] dx, float ds) {{
        z = Constant <value = int8 {{0}}> () q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)
        dx, ds = ai.onnx.preview.training.Gradient <xs = ["x", "s"], y = "y"> (x, s) }}""")
    x, s = np.float32([-20.0, -0.24, 0.0, 0.37, 20.0]), np.float32(0.1)
    found = graft.compile(model, ["reference"], threads=1, cache=False).run({"x": x, "s": s})
    assert np.asarray(found["dx"]).tolist() == [0, 1, 1, 1, 0]
    steps = [-128, np.round(-2.4) + 2.4, 0, np.round(3.7) - 3.7, 127]  # arXiv 1902.08153, equation 3
    np.testing.assert_allclose(found["ds"], np.sum(steps), rtol=1e-5)
