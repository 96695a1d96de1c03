"""Losses by name: beside NumPy, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.errors import GraftError

MODEL = '<ir_version: 10, opset_import: ["" : 22]> net (double[n,3] x) => (double[n,3] y) { y = Identity (x) }'
X = np.array([[0.5, -2.0, 1.0], [3.0, 0.1, -0.7]])
T = np.array([[0.0, 1.0, 1.5], [0.0, 1.0, 0.3]])
LOGARITHMS = X - np.log(np.exp(X).sum(1, keepdims=True))
D = np.abs(X - T)


def run(target: np.ndarray, kind: str, **more: object) -> float:
    model = graft.loss(onnx.parser.parse_model(MODEL), kind, **more)  # type: ignore[arg-type]
    program = graft.compile(model, ["llvm", "reference"], threads=1, cache=False)
    found = program.run({"x": X, "target": target})
    np.testing.assert_array_equal(found["y"], X)
    return float(np.asarray(found["loss"]))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mse", D**2),
        ("mae", D),
        ("huber", np.where(D < 1, D**2 / 2, D - 0.5)),
        ("bce", -(T * np.log(1 / (1 + np.exp(-X))) + (1 - T) * np.log(1 - 1 / (1 + np.exp(-X))))),
    ],
)
def test_a_loss_of_each_element(kind: str, expected: np.ndarray) -> None:
    assert run(T, kind) == pytest.approx(expected.mean())
    assert run(T, kind, reduction="sum") == pytest.approx(expected.sum())


def test_a_loss_over_classes() -> None:
    labels = np.array([2, 0])
    assert run(labels, "cross-entropy") == pytest.approx(-(LOGARITHMS[0, 2] + LOGARITHMS[1, 0]) / 2)
    assert run(labels, "nll", reduction="sum") == pytest.approx(-(X[0, 2] + X[1, 0]))
    assert run(np.array([2, 7]), "cross-entropy", ignore_index=7) == pytest.approx(-LOGARITHMS[0, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "mse", "of": "z"}, "the output 'z' is no value of the model"),
        ({"kind": "mse", "target": "x"}, "the model has a value 'x' already; rename it"),
        ({"kind": "mse", "ignore_index": 1}, "mse has no labels, which ignore_index is one of"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(GraftError) as caught:
        graft.loss(onnx.parser.parse_model(MODEL), **arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_an_unknown_loss_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(GraftError, match="cross-entropy"):
        graft.loss(onnx.parser.parse_model(MODEL), "crossentropy")
