"""AWQ: the factors against a search that runs every candidate, and the gain where some inputs are large."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.quantization import quantize
from graft.quantization.awq import POWERS, factors_of, favour_large_inputs
from graft.quantization.preparation import in_floats
from graft.quantization.recipe import Recipe, Scaling
from graft.quantization.statistics.data import Batches
from graft.quantization.statistics.observation import Running
from tests.quantization.networks import model, run, snr

TEXT = "g (float[n,12] x) => (float[n,10] y) { [a] t = Gemm (x, v, c) [r] u = Relu (t) [b] y = Gemm (u, w) }"
SCALING = Scaling(type="int4", granularity="channel")
X = np.random.default_rng(5).normal(size=(64, 12)).astype(np.float32)


def network(seed: int = 0) -> onnx.ModelProto:
    """Two products, of whose inner channels a few are large."""
    random = np.random.default_rng(seed)
    large = np.where(np.arange(8) % 4 == 0, 20, 0.3)
    return model(TEXT, seed, v=random.normal(size=(12, 8)) * large, c=(8,), w=(8, 10))


def arrays(one) -> dict[str, np.ndarray]:
    return {name: value.const_value.numpy() for name, value in one.graph.initializers.items()}


def rounded(weights: np.ndarray) -> np.ndarray:
    """Weights ``[term, channel]`` in int4 with a scale for each channel, as the definition says."""
    scale = np.maximum(-weights.min(0), weights.max(0)).clip(0) / 7
    return np.clip(np.rint(weights / scale), -8, 7) * scale


@pytest.mark.parametrize("seed", range(4))
def test_the_factors_are_the_best_of_all_that_are_tried(seed):
    floats = in_floats(network(seed))
    before = next(array for array in arrays(floats).values() if array.shape == (8, 10))
    first, bias = (next(one for one in arrays(floats).values() if one.shape == shape) for shape in ((12, 8), (8,)))
    inner = np.maximum(X @ first + bias, 0)
    errors = {}
    for power in POWERS:
        sizes = np.abs(inner).mean(axis=0, dtype=np.float64) ** power
        factors = (sizes / np.sqrt(sizes.max() * sizes.min())).reshape(-1, 1)
        found = (inner / factors.T) @ rounded(before * factors)
        errors[power] = np.sum((found - inner @ before) ** 2)
    best = min(errors, key=errors.__getitem__)
    changed = favour_large_inputs(floats, Recipe(weights=SCALING), Batches({"x": X}, floats), Running())
    after = next(array for array in arrays(floats).values() if array.shape == (8, 10))
    assert best > 0
    np.testing.assert_allclose(after / before, np.repeat((after / before)[:, :1], 10, 1), rtol=1e-5)
    np.testing.assert_allclose((after / before)[:, 0], factors_of(np.abs(inner).mean(axis=0), best), rtol=1e-4)
    assert sorted(changed) == ["a", "r"]
    np.testing.assert_allclose(run(floats, x=X), run(in_floats(network(seed)), x=X), rtol=1e-4, atol=1e-3)


def test_large_inputs_lose_less():
    recipe = {"weights": {"type": "int4", "granularity": "channel"}, "nodes": ["b"]}
    exact = run(in_floats(network()), x=X)
    plain, found = (run(quantize(network(), {**recipe, "awq": on}, {"x": X}), x=X) for on in (False, True))
    assert snr(exact, found) > snr(exact, plain) + 2


def test_channels_of_zeros_have_factors():
    assert np.isfinite(factors_of(np.array([0.0, 1.0, 4.0]), 0.5)).all()
    assert (factors_of(np.zeros(3), 0.5) == 1).all()
    assert graft.quantization.recipe_of({"awq": True}).needs_data
