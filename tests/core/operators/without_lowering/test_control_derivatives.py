"""Derivatives of If and Scan, beside differences."""

from __future__ import annotations

import pytest

from tests.core.differentiation.differences import of_text

STEP = """step (double[3] h, double[3] u) => (double[3] n, double[3] e) {
    a = Mul (h, u) b = Mul (a, w) n = Add (b, u) e = Sin (n) }"""


@pytest.mark.parametrize("taken", [0, 1])
def test_the_branch_that_was_taken_has_the_gradient(taken: int) -> None:
    text = f"""c = Constant <value = bool {{{taken}}}> () y = If (c) <
        then_branch = one () => (double[3,4] a) {{ a = Mul (x, z) }},
        else_branch = two () => (double[3,4] b) {{ b = Exp (x) }}>"""
    assert of_text(text, {"x": (3, 4), "z": (4,)}) <= 1


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("results", ["y, o", "o, y"])
def test_steps_are_gone_back(direction: int, results: str) -> None:
    text = f"""{results} = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{direction}],
        scan_output_axes = [1], scan_output_directions = [{1 - direction}], body = {STEP}> (s, x)"""
    assert of_text(text, {"s": (3,), "x": (3, 4), "w": (3,)}) <= 1


def test_a_scan_has_a_second_derivative() -> None:
    text = f"""s, o = Scan <num_scan_inputs = 1, body = {STEP}> (h, x)
        t = ReduceSum <keepdims = 0> (s) y = ai.onnx.preview.training.Gradient <xs = ["x"], y = "t"> (x)"""
    assert of_text(text, {"h": (3,), "x": (4, 3), "w": (3,)}, result=(4, 3)) <= 1
