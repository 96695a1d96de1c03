"""Gradient nodes: against differences of what they differentiate, computed in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import graft
from graft.core.importer.gradients import RULES
from graft.core.importer.load import load
from graft.errors import ModelError

HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>'
EXPRESSIONS = {
    "Add": "Add (a, b)", "Sub": "Sub (b, a)", "Mul": "Mul (a, b)", "Div": "Div (b, a)", "MatMul": "MatMul (a, c)",
    "Squeeze": "Squeeze (a, zero)", "Unsqueeze": "Unsqueeze (a, zero)", "Flatten": "Flatten <axis = 2> (a)",
    "Reshape": "Reshape (a, flat)", "Transpose": "Transpose <perm = [1, 2, 0]> (a)",
    "ReduceSum": "ReduceSum <keepdims = 0> (a, one)", "ReduceMean": "ReduceMean <axes = [1]> (a)",
}  # fmt: skip


def model_of(expression: str) -> onnx.ModelProto:
    """Return a model of the derivatives of the sum of the squares of an expression."""
    return parser.parse_model(f"""{HEADER} g (double[1,2,3] a, double[2,1] b, double[3,2] c) =>
        (double y, double[1,2,3] da, double[2,1] db)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[2] flat = {{3, 2}}> {{
            t = {expression} u = Mul (b, b) v = Mul (t, t) p = ReduceSum <keepdims = 0> (v)
            q = ReduceSum <keepdims = 0> (u) y = Add (p, q)
            [n] da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "y"> (a, b) }}""")


def feeds() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"a": (1, 2, 3), "b": (2, 1), "c": (3, 2)}
    return {name: generator.uniform(0.5, 2.0, shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("operator", RULES)
def test_a_derivative_is_the_limit_of_differences(operator: str) -> None:
    model, given = model_of(EXPRESSIONS.get(operator, f"{operator} (a)")), feeds()
    program = graft.compile(model, ["reference"], threads=1, cache=False)
    results = program.run(given)
    for name in ("a", "b"):
        for place in np.ndindex(given[name].shape):
            values = []
            for step in (-1e-6, 1e-6):
                moved = {**given, name: given[name].copy()}
                moved[name][place] += step
                values.append(float(program.run(moved)["y"]))
            assert results[f"d{name}"][place] == pytest.approx((values[1] - values[0]) / 2e-6, rel=1e-5)


def test_an_operator_without_a_rule_is_named_with_those_that_have_one() -> None:
    with pytest.raises(ModelError) as caught:
        load(model_of("Round (a)"))
    assert str(caught.value) == (
        "Round (node 't'): it stands between the inputs and the result 'y' of Gradient (node 'n'), and no derivative "
        f"of it is known; known are those of {', '.join(sorted(RULES))}"
    )


def test_a_gradient_is_taken_at_the_inputs_of_its_node() -> None:
    model = parser.parse_model(f"""{HEADER} g (float[2] a, float[2] b) => (float[2] d) {{
        y = Mul (a, a) d = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (b) }}""")
    program = graft.compile(model, ["reference"], threads=1, cache=False)
    a, b = np.float32([1, 2]), np.float32([3, 5])
    np.testing.assert_array_equal(program.run({"a": a, "b": b})["d"], 2 * b)
