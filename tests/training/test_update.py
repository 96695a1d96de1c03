"""What a trainer does with gradients, beside the same in NumPy or another training."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graft.errors import ModelError
from graft.training import SGD, Trainer

TEXT = """<ir_version: 10, opset_import: ["" : 22]> line (float[n,3] x, float[n,2] t) => (float loss) {
    y = Gemm (x, w, b) d = Sub (y, t) s = Mul (d, d) loss = ReduceMean <keepdims = 0> (s) }"""
RNG = np.random.default_rng(5)
W, B = RNG.normal(size=(3, 2)).astype(np.float32), RNG.normal(size=2).astype(np.float32)
X, T = RNG.normal(size=(8, 3)).astype(np.float32), RNG.normal(size=(8, 2)).astype(np.float32)


def trainer(optimizer: SGD | None = None, **more: object) -> Trainer:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.extend([numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")])
    return Trainer(model, "loss", optimizer or SGD(0.1), backends=["llvm", "reference"], threads=1, **more)  # type: ignore[arg-type]


def gradients(w: np.ndarray, b: np.ndarray, x: np.ndarray = X, t: np.ndarray = T) -> tuple[np.ndarray, np.ndarray]:
    away = 2 * (x @ w + b - t) / t.size
    return x.T @ away, away.sum(0)


def test_gradients_are_cut_to_a_norm_of_all_together() -> None:
    found = trainer(clip_norm=0.01)
    found.step({"x": X, "t": T})
    gw, gb = gradients(W, B)
    factor = 0.01 / np.sqrt((gw**2).sum() + (gb**2).sum())
    assert factor < 1
    np.testing.assert_allclose(found.arrays["w"], W - 0.1 * factor * gw, rtol=1e-5)
    np.testing.assert_allclose(found.arrays["b"], B - 0.1 * factor * gb, rtol=1e-5)


def test_a_norm_that_is_small_and_elements_that_are_small_stay() -> None:
    found = trainer(clip_norm=1e3, clip_value=0.05)
    found.step({"x": X, "t": T})
    gw, _ = gradients(W, B)
    assert np.abs(gw).max() > 0.05 > np.abs(gw).min()
    np.testing.assert_allclose(found.arrays["w"], W - 0.1 * np.clip(gw, -0.05, 0.05), rtol=1e-5)


def test_batches_that_are_accumulated_are_one_step() -> None:
    found, whole = (trainer(SGD(0.1, momentum=0.9), accumulate=count) for count in (2, 1))
    for step in range(2):
        for half in (slice(0, 4), slice(4, 8)):
            before = found.arrays["w"].copy()
            found.step({"x": X[half], "t": T[half]})
            assert np.array_equal(found.arrays["w"], before) == (half.start == 0)
        whole.step({"x": X, "t": T})
        assert found.steps == whole.steps == step + 1
        np.testing.assert_allclose(found.arrays["w"], whole.arrays["w"], rtol=1e-5)
    assert not found.arrays["w_sum"].any()


def test_groups_have_optimisers_of_their_own() -> None:
    found = trainer(groups={"b*": SGD(0.01, weight_decay=0.5)})
    found.step({"x": X, "t": T}, learning_rate=0.2)
    gw, gb = gradients(W, B)
    np.testing.assert_allclose(found.arrays["w"], W - 0.2 * gw, rtol=1e-5)
    np.testing.assert_allclose(found.arrays["b"], B - 0.02 * (gb + 0.5 * B), rtol=1e-5)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_products_of_a_narrow_type_learn_nearly_the_same(precision: str) -> None:
    found = trainer(precision=precision)
    for _ in range(3):
        found.step({"x": X, "t": T})
    w, b = W, B
    for _ in range(3):
        gw, gb = gradients(w, b)
        w, b = w - 0.1 * gw, b - 0.1 * gb
    assert found.arrays["w"].dtype == np.float32
    assert 0 < np.abs(found.arrays["w"] - w).max() < 1e-2


def test_a_step_whose_gradients_are_not_finite_is_left_out_and_the_scale_halved() -> None:
    found = trainer(SGD(0.1, momentum=0.9), precision="float16")
    found.counts.scale = 2.0**24
    found.step({"x": X, "t": T + 100})
    assert (found.steps, found.counts.scale) == (0, 2.0**23)
    np.testing.assert_array_equal(found.arrays["w"], W)
    assert not found.arrays["w_velocity"].any()
    found.counts.scale = 2.0**4
    found.step({"x": X, "t": T})
    assert found.steps == 1
    assert not np.array_equal(found.arrays["w"], W)


def test_a_group_without_weights_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"the group 'bias' has no weights; there are w, b"):
        trainer(groups={"bias": SGD()})
