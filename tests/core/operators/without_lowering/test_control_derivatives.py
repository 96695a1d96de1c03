"""Derivatives of If, Scan and Loop, beside differences."""

from __future__ import annotations

import pytest

from graft.errors import ModelError
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


ROUND = """body = step (int64 i, bool go, double[3] h) => (bool on, double[3] n, double[3] e) {
    t = Cast <to = 11> (i) a = Mul (h, x) b = Sin (a) c = Add (b, t) n = Mul (c, w)
    z = Constant <value = int64 {2}> () on = Less (i, z) e = Exp (n) }"""


LIMITS = "m = Constant <value = int64 {2}> () g = Constant <value = bool {1}> () k = Constant <value_ints = [-1]> ()"
"""Of rounds: two by number, three by the condition of the body. Shapes of what a Loop gives are not known to ONNX."""


@pytest.mark.parametrize("given", ['m, ""', '"", g', "m, g"])
@pytest.mark.parametrize("result", ["v", "o"])
def test_rounds_of_a_loop_are_gone_back(given: str, result: str) -> None:
    text = f"{LIMITS} v, o = Loop <{ROUND}> ({given}, s) y = Reshape ({result}, k)"
    count = 3 if result == "v" else 6 if "m" in given else 9
    assert of_text(text, {"s": (3,), "x": (3,), "w": (3,)}, result=(count,)) <= 1


def test_a_loop_of_no_rounds_hands_its_gradient_on() -> None:
    text = f'{LIMITS.replace("{2}", "{0}")} v, o = Loop <{ROUND}> (m, "", s) y = Reshape (v, k)'
    assert of_text(text, {"s": (3,), "x": (3,), "w": (3,)}, result=(3,)) <= 1


def test_a_loop_has_a_second_derivative() -> None:
    text = f"""{LIMITS} v, o = Loop <{ROUND}> (m, g, s) r = Reshape (v, k) t = ReduceSum <keepdims = 0> (r)
        y = ai.onnx.preview.training.Gradient <xs = ["x"], y = "t"> (x)"""
    assert of_text(text, {"s": (3,), "x": (3,), "w": (3,)}, result=(3,)) <= 1


def test_what_is_a_first_state_and_read_in_each_round_has_both_gradients() -> None:
    text = f'{LIMITS} v, o = Loop <{ROUND}> (m, "", x) y = Reshape (v, k)'
    assert of_text(text, {"x": (3,), "w": (3,)}, result=(3,)) <= 1


def test_what_is_scanned_and_read_in_each_step_has_both_gradients() -> None:
    body = STEP.replace("n = Add (b, u)", "r = ReduceSum <keepdims = 0> (x) c = Add (b, u) n = Mul (c, r)")
    text = f"s, y = Scan <num_scan_inputs = 1, body = {body}> (w, x)"
    assert of_text(text, {"x": (4, 3), "w": (3,)}, result=(4, 3)) <= 1


def test_a_state_that_grows_is_an_error() -> None:
    text = """m = Constant <value = int64 {2}> () k = Constant <value_ints = [9]> () z = Loop <body =
        step (int64 i, bool go, double[a] h) => (bool go, double[b] n) { n = Concat <axis = 0> (h, x) }> (m, "", s)
        y = Reshape (z, k)"""
    with pytest.raises(ModelError, match="its derivative needs states that keep their shapes, unlike 'h'"):
        of_text(text, {"s": (3,), "x": (3,)}, result=(9,))


LAYER = """step (double[2,3] h, double[2,4] u) => (double[2,3] n, double[2,3] e) {
    a = MatMul (h, w) b = MatMul (u, v) c = Add (a, b) n = Tanh (c) e = MatMul (n, w) }"""


@pytest.mark.parametrize("direction", [0, 1])
def test_weights_of_all_steps_have_one_product_or_a_sum(direction: int) -> None:
    """``v`` is a factor once in a step, so its gradient is one product behind them; ``w`` twice, so it is summed."""
    text = f"s, y = Scan <num_scan_inputs = 1, scan_input_directions = [{direction}], body = {LAYER}> (h, x)"
    shapes = {"h": (2, 3), "x": (5, 2, 4), "w": (3, 3), "v": (4, 3)}
    assert of_text(text, shapes, result=(5, 2, 3)) <= 1


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_weights_of_all_rounds_have_one_product(rounds: int) -> None:
    text = f"""m = Constant <value = int64 {{{rounds}}}> () k = Constant <value_ints = [6]> () z = Loop <body =
        step (int64 i, bool go, double[2,3] h) => (bool go, double[2,3] n) {{
            a = MatMul (h, w) n = Sin (a) }}> (m, "", s) y = Reshape (z, k)"""
    assert of_text(text, {"s": (2, 3), "w": (3, 3)}, result=(6,)) <= 1


def test_a_scan_with_weights_has_a_second_derivative() -> None:
    text = f"""s, o = Scan <num_scan_inputs = 1, body = {LAYER}> (h, x)
        t = ReduceSum <keepdims = 0> (s) y = ai.onnx.preview.training.Gradient <xs = ["v"], y = "t"> (v)"""
    assert of_text(text, {"h": (2, 3), "x": (5, 2, 4), "w": (3, 3), "v": (4, 3)}, result=(4, 3)) <= 1
