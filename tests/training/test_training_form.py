"""The form of a model in which it is trained: what Dropout drops, and weights that are one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft
from graft.errors import ModelError
from graft.training import SGD, Trainer

DROPS = """<ir_version: 10, opset_import: ["" : 22]> drops (float[n,64] x) => (float loss) <float ratio = {0.25}> {
    a = Mul (x, w) b = Dropout (a, ratio) c = Dropout (b, ratio) loss = ReduceMean <keepdims = 0> (c) }"""


def dropping(seed: int = 0, threads: int = 1) -> Trainer:
    model = onnx.parser.parse_model(DROPS)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(64, np.float32), "w"))
    return Trainer(model, "loss", SGD(1.0), backends=["llvm", "reference"], seed=seed, threads=threads)


def dropped(trainer: Trainer) -> np.ndarray:
    """The gradient of one step on ones: how often each column was kept, in both Dropouts, by 16/9."""
    before = trainer.arrays["w"].copy()
    trainer.step({"x": np.ones((200, 64), np.float32)})
    return np.round((before - trainer.arrays["w"]) * 200 * 64 * 9 / 16).astype(int)


def test_dropout_keeps_the_share_that_it_should() -> None:
    kept = dropped(dropping())
    assert kept.sum() / (200 * 64) == pytest.approx(0.75**2, abs=0.02)
    assert kept.std() == pytest.approx(np.sqrt(200 * 0.5625 * 0.4375), rel=0.3)  # that of a binomial distribution


def test_dropout_follows_from_seed_and_batch_alone() -> None:
    first = dropping()
    one, two = dropped(first), dropped(first)
    assert not np.array_equal(one, two)
    again = dropping(threads=2)
    assert np.array_equal(dropped(again), one)
    assert np.array_equal(dropped(again), two)
    assert not np.array_equal(dropped(dropping(seed=1)), one)


TIED = """<ir_version: 10, opset_import: ["" : 22]> tied (float[n,3] x, float[n,3] t) => (float loss, float[n,3] y) {
    h = MatMul (x, first) k = Tanh (h) y = MatMul (k, second)
    d = Sub (y, t) s = Mul (d, d) loss = ReduceMean <keepdims = 0> (s) }"""


def tied(**more: object) -> Trainer:
    model, rng = onnx.parser.parse_model(TIED), np.random.default_rng(2)
    for name in ("first", "second"):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(3, 3)).astype(np.float32), name))
    return Trainer(model, "loss", SGD(0.1), backends=["llvm", "reference"], threads=1, **more)  # type: ignore[arg-type]


def test_tied_weights_are_one_and_have_the_sum_of_their_gradients() -> None:
    found = tied(tied={"second": "first"})
    assert found.weights == ("first",)
    w, rng = found.arrays["first"].astype(np.float64), np.random.default_rng(3)
    x, t = rng.normal(size=(2, 5, 3)).astype(np.float32)
    found.step({"x": x, "t": t})
    k = np.tanh(x @ w)
    away = 2 * (k @ w - t) / t.size
    gradient = k.T @ away + x.T @ ((away @ w.T) * (1 - k * k))
    np.testing.assert_allclose(found.arrays["first"], w - 0.1 * gradient, rtol=1e-4)
    y = graft.compile(found.model, threads=1, cache=False).run({"x": x, "t": t})["y"]
    np.testing.assert_allclose(y, np.tanh(x @ found.arrays["first"]) @ found.arrays["first"], rtol=1e-4)


def test_frozen_weights_stay() -> None:
    found = tied(frozen=["sec*"])
    assert found.weights == ("first",)
    assert "second" not in found.arrays


def test_what_cannot_be_tied_is_said() -> None:
    with pytest.raises(ModelError, match="'third' is no weight of the model, so it cannot be tied"):
        tied(tied={"third": "first"})
