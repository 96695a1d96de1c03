"""Recurrences as Scans: derivatives beside differences of the kernels, of what ONNX's own cases leave out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text

SIZES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("operator", SIZES)
def test_directions_lengths_and_functions(operator: str) -> None:
    names = {"RNN": '"Affine", "Elu"', "GRU": '"HardSigmoid", "Softsign"', "LSTM": '"Sigmoid", "ScaledTanh", "Tanh"'}
    given = names[operator] if operator == "RNN" else f"{names[operator]}, {names[operator]}"
    text = f"""l = Constant <value = int32[2] {{3, 2}}> ()
        p, y = {operator} <hidden_size = 2, direction = "bidirectional", activations = [{given}], clip = 0.9,
        activation_alpha = [0.5, 0.6], activation_beta = [0.3, 0.4]> (x, w, r, b, l, h)"""
    gates = SIZES[operator] * 2
    shapes = {"x": (3, 2, 2), "w": (2, gates, 2), "r": (2, gates, 2), "b": (2, 2 * gates), "h": (2, 2, 2)}
    assert of_text(text, shapes) <= 1


def test_a_gru_may_be_linear_before_its_reset() -> None:
    text = "y, p = GRU <hidden_size = 2, linear_before_reset = 1, layout = 0> (x, w, r, b)"
    assert of_text(text, {"x": (3, 2, 2), "w": (1, 6, 2), "r": (1, 6, 2), "b": (1, 12)}) <= 1


def test_an_lstm_may_couple_its_gates() -> None:
    text = 'p, q, y = LSTM <hidden_size = 2, input_forget = 1, direction = "reverse"> (x, w, r)'
    assert of_text(text, {"x": (3, 2, 2), "w": (1, 8, 2), "r": (1, 8, 2)}) <= 1


@pytest.mark.parametrize("outputs", ["y, , ", "y, last, cell", ", y, "])
def test_a_layer_with_gradients_runs_forward_once(outputs: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[5,2,3] x) => (float loss, float y)
        <float[1,16,3] w, float[1,16,4] r> {{
        {outputs} = LSTM <hidden_size = 4> (x, w, r) loss = ReduceSumSquare <keepdims = 0> (y) }}"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name, shape in (("w", (1, 16, 3)), ("r", (1, 16, 4))):
        array = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model.graph.output[1].type.tensor_type.ClearField("shape")
    gradients = graft.grad(model, of="loss", wrt=["w", "r"])
    assert [node.op_type for node in gradients.graph if node.op_type in ("LSTM", "Scan")] == ["Scan", "Scan"]
    x = random.standard_normal((5, 2, 3)).astype(np.float32)
    found, wanted = (graft.compile(one, threads=1).run({"x": x}) for one in (gradients, model))
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-6)
