"""Optimisers: ten steps of each on a quadratic beside the formulas of their papers in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graft.errors import ArgumentError
from graft.training import SGD, Adam, AdamW, Optimizer, Trainer

START = np.array([1.0, -2.0, 0.5])
TEXT = """<ir_version: 10, opset_import: ["" : 22]> net (double[3] a) => (double loss) {
    d = Sub (w, a) s = Mul (d, d) loss = ReduceSum <keepdims = 0> (s) }"""
Update = Callable[[np.ndarray, np.ndarray, dict[str, np.ndarray], int], np.ndarray]


def trainer(optimizer: Optimizer) -> Trainer:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(START, "w"))
    return Trainer(model, "loss", optimizer, backends=["llvm", "reference"], threads=1)


def descent(rate: float, momentum: float = 0.0, decay: float = 0.0, *, nesterov: bool = False) -> Update:
    def update(w: np.ndarray, g: np.ndarray, state: dict[str, np.ndarray], step: int) -> np.ndarray:
        g = g + decay * w
        v = state["v"] = momentum * state.get("v", np.zeros(3)) + g
        return w - rate * (g + momentum * v if nesterov else v)

    return update


def adam(rate: float, decay: float = 0.0, shrink: float = 0.0) -> Update:
    """ONNX's form: epsilon is added to the root before its bias is corrected."""

    def update(w: np.ndarray, g: np.ndarray, state: dict[str, np.ndarray], step: int) -> np.ndarray:
        w, g = w * (1 - rate * shrink), g + decay * w
        m = state["m"] = 0.9 * state.get("m", np.zeros(3)) + 0.1 * g
        v = state["v"] = 0.999 * state.get("v", np.zeros(3)) + 0.001 * g * g
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        return w - corrected * m / (np.sqrt(v) + 1e-8)

    return update


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        (SGD(0.1), descent(0.1)),
        (SGD(0.05, momentum=0.9, weight_decay=0.1), descent(0.05, 0.9, 0.1)),
        (SGD(0.05, momentum=0.9, nesterov=True), descent(0.05, 0.9, nesterov=True)),
        (Adam(0.1, weight_decay=0.1), adam(0.1, 0.1)),
        (AdamW(0.1, weight_decay=0.2), adam(0.1, shrink=0.2)),
    ],
)
def test_steps_are_those_of_the_formula(optimizer: Optimizer, update: Update) -> None:
    found, w, state = trainer(optimizer), START, {}
    a = np.array([0.3, 0.2, -0.1])
    for step in range(1, 11):
        loss = found.step({"a": a})
        assert loss == pytest.approx(float(np.sum((w - a) ** 2)), rel=1e-5)
        w = update(w, 2 * (w - a), state, step)
        np.testing.assert_allclose(found.arrays["w"], w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: SGD(-1.0), "SGD: learning_rate is float -1.0; give a number of at least 0"),
        (lambda: Adam(float("nan")), "Adam: learning_rate is float nan; give a number of at least 0"),
        (lambda: AdamW(weight_decay=-1), "AdamW: weight_decay is int -1; give a number of at least 0"),
        (
            lambda: Adam(betas=(0.9, 1.0)),
            "Adam: betas is tuple (0.9, 1.0); give two numbers of at least 0 and below 1",
        ),
    ],
)
def test_settings_that_lead_nowhere_are_refused(made: Callable[[], Optimizer], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        made()
    assert caught.value.message == message
