"""Gradient nodes: where derivatives are taken, what is zero, and what has none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import graft
from graft.core.importer.load import load
from graft.core.passes.pipeline import record_of
from graft.errors import ModelError

HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>'


def model_of(text: str) -> onnx.ModelProto:
    """Return a model of Gradient nodes."""
    return parser.parse_model(f"{HEADER} g {text.replace('Gradient', 'ai.onnx.preview.training.Gradient')}")


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    program = graft.compile(model, ["reference"], threads=1, cache=False)
    return {name: np.asarray(value) for name, value in program.run(feeds).items()}


def note_of(model: onnx.ModelProto) -> str:
    return next(step.note for step in record_of(load(model)) if step.name == "write-gradients")


def test_a_gradient_is_taken_at_the_inputs_of_its_node() -> None:
    model = model_of("""(float[2] a, float[2] b) => (float[2] d) {
        y = Mul (a, a) d = Gradient <xs = ["a"], y = "y"> (b) }""")
    a, b = np.float32([1, 2]), np.float32([3, 5])
    np.testing.assert_array_equal(run(model, a=a, b=b)["d"], 2 * b)


def test_two_variables_at_one_value_have_a_gradient_each() -> None:
    model = model_of("""(float[2] a, float[2] b, float[2] c) => (float[2] da, float[2] db) {
        y = Sub (a, b) da, db = Gradient <xs = ["a", "b"], y = "y"> (c, c) }""")
    found = run(model, a=np.zeros(2, np.float32), b=np.zeros(2, np.float32), c=np.ones(2, np.float32))
    np.testing.assert_array_equal(found["da"], [1, 1])
    np.testing.assert_array_equal(found["db"], [-1, -1])


def test_a_gradient_has_a_gradient() -> None:
    model = model_of("""(double[2] a) => (double[2] dda) {
        s = Sin (a) y = Mul (s, a) da = Gradient <xs = ["a"], y = "y"> (a)
        dda = Gradient <xs = ["a"], y = "da"> (a) }""")
    a = np.array([0.3, 1.7])
    np.testing.assert_allclose(run(model, a=a)["dda"], 2 * np.cos(a) - a * np.sin(a))


def test_a_value_between_may_be_what_a_gradient_is_by() -> None:
    model = model_of("""(float[2] a) => (float[2] d) {
        t = Exp (a) y = Mul (t, t) d = Gradient <xs = ["t"], y = "y"> (t) }""")
    np.testing.assert_allclose(run(model, a=np.float32([0, 1]))["d"], 2 * np.exp([0, 1]), rtol=1e-6)


def test_the_forward_pass_of_a_model_is_not_computed_again() -> None:
    model = model_of("""(float[2] a) => (float[2] y, float[2] d) {
        y = Exp (a) d = Gradient <xs = ["a"], y = "y"> (a) }""")
    assert [node.op_type for node in load(model).graph].count("Exp") == 1


def test_a_value_whose_rank_nothing_tells_is_named() -> None:
    model = model_of("""(float[4] a) => (float[4] d) {
        e = SequenceEmpty () s = SequenceInsert (e, a) [many] t = ConcatFromSequence <axis = 0> (s)
        [sum] y = ReduceSum <keepdims = 0> (t) d = Gradient <xs = ["a"], y = "y"> (a) }""")
    with pytest.raises(ModelError, match=r"ReduceSum \(node 'sum'\): the type or rank of 't' cannot be inferred"):
        load(model)


def test_a_path_without_a_derivative_is_named_from_end_to_end() -> None:
    model = model_of("""(float[4] a) => (float[4] d) {
        [e] t = Exp (a) [same] u, i, j, c = Unique (t) [n] y = Neg (u)
        [g] d = Gradient <xs = ["a"], y = "y"> (a) }""")
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == (
        "Unique (node 'same'): no derivative of it is known; it stands on the path from 'a' by Exp (node 'e'), "
        "Unique (node 'same'), Neg (node 'n')"
    )


def test_what_the_result_does_not_depend_on_has_a_zero_gradient_and_that_is_said() -> None:
    model = model_of("""(float[2] a, float[3] b) => (float[2] da, float[3] db) {
        y = Exp (a) [g] da, db = Gradient <xs = ["a", "b"], y = "y"> (a, b) }""")
    np.testing.assert_array_equal(run(model, a=np.zeros(2, np.float32), b=np.ones(3, np.float32))["db"], np.zeros(3))
    assert note_of(model) == "g (zero for 'b': 'y' does not depend on it)"


@pytest.mark.parametrize(
    ("nodes", "cut"),
    [("i = ArgMax (a) [c] t = Cast <to = 1> (i)", "ArgMax (node 'i')"), ("[r] t = Round (a)", "Round (node 'r')")],
)
def test_whole_numbers_and_jumps_pass_no_gradient_and_that_is_said(nodes: str, cut: str) -> None:
    model = model_of(f"""(float[2] a) => (float[2] da) {{
        {nodes} y = ReduceSum <keepdims = 0> (t) [g] da = Gradient <xs = ["a"], y = "y"> (a) }}""")
    assert note_of(model) == f"g (zero for 'a': no gradient comes through {cut})"
    np.testing.assert_array_equal(run(model, a=np.ones(2, np.float32))["da"], np.zeros(2))


def test_a_result_that_is_no_value_is_refused() -> None:
    model = model_of("""(float[2] a, float[2] b) => (float[2] d) {
        y = Exp (b) [g] d = Gradient <xs = ["a"], y = "z"> (a) }""")
    with pytest.raises(ModelError, match=r"Gradient \(node 'g'\): its result 'z' is no value of the model"):
        load(model)
