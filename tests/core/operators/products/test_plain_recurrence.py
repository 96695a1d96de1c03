"""Recurrences as Scans: derivatives beside differences of the kernels, of what ONNX's own cases leave out."""

from __future__ import annotations

import pytest

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
