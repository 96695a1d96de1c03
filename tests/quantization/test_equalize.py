"""Equalisation: the model computes the same, and ranges are as the papers say."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.equalize import equalize, joints_of, smooth
from graft.quantization.preparation import in_floats
from graft.quantization.sites import product_of
from graft.quantization.statistics.data import Batch
from graft.quantization.statistics.observation import Running
from tests.quantization.networks import convolutions, images, model, run

NORMALISED = """g (float[2,6,8] x) => (float[2,6,8] y) {
    [ln] a = LayerNormalization <axis = -1> (x, scale, bias)
    [q] b = MatMul (a, w1) [k] c = MatMul (a, w2) [e] y = Mul (b, c) }"""


def normalised():
    outliers = np.ones(8)
    outliers[3] = 40
    return model(NORMALISED, scale=outliers, bias=(8,), w1=(8, 8), w2=(8, 8))


def weights(one) -> dict[str, np.ndarray]:
    found = {node.name: product_of(node) for node in one.graph}
    return {name: constant_of(product.weights) for name, product in found.items() if product is not None}


def test_equalised_weights_have_one_range_on_both_sides_and_the_model_computes_the_same():
    one, x = in_floats(convolutions()), images()
    exact = run(one, x=x)
    assert equalize(one) == ["r2", "c2"]  # c1 is read by Add, too
    np.testing.assert_allclose(run(one, x=x), exact, rtol=1e-4, atol=1e-5)
    found = weights(one)
    before = np.abs(found["c2"]).reshape(8, -1).max(axis=1)
    np.testing.assert_allclose(before, np.abs(found["c3"]).reshape(8, 8).max(axis=0), rtol=2e-3)


def test_a_chain_with_groups_is_equalised_from_end_to_end():
    text = """g (float[1,4,5,5] x) => (float[1,4,5,5] y) {
        [a] p = Conv (x, w1, b1) [r] q = LeakyRelu (p) [b] s = Conv <group = 2> (q, w2)
        [m] t = MaxPool <kernel_shape = [1,1]> (s)
        [c] y = Conv (t, w3) }"""
    wide = np.geomspace(0.01, 5, 4).reshape(-1, 1, 1, 1) * np.random.default_rng(0).normal(size=(4, 4, 1, 1))
    one = in_floats(model(text, w1=wide, b1=(4,), w2=(4, 2, 1, 1), w3=(4, 4, 1, 1)))
    x = np.random.default_rng(1).normal(size=(1, 4, 5, 5)).astype(np.float32)
    exact = run(one, x=x)
    equalize(one)
    np.testing.assert_allclose(run(one, x=x), exact, rtol=1e-4, atol=1e-5)
    found = weights(one)
    rows = np.abs(found["a"]).reshape(4, 4).max(axis=1)
    columns = np.abs(found["b"]).reshape(2, 2, 2).max(axis=1).reshape(-1)
    np.testing.assert_allclose(rows, columns, rtol=1e-2)
    np.testing.assert_allclose(
        np.abs(found["b"]).reshape(4, 2).max(axis=1), np.abs(found["c"]).reshape(4, 4).max(axis=0), rtol=1e-2
    )


@pytest.mark.parametrize("power", [0.5, 0.8])
def test_smoothing_moves_a_power_of_the_range_and_the_model_computes_the_same(power):
    one = in_floats(normalised())
    x = np.random.default_rng(1).normal(size=(2, 6, 8)).astype(np.float32)
    exact, before = run(one, x=x), weights(one)
    a = run(model(NORMALISED.replace("float[2,6,8] y", "float[2,6,8] a"),  scale=constant_of(one.graph[0].inputs[1]),
                  bias=constant_of(one.graph[0].inputs[2]), w1=before["q"], w2=before["k"]), x=x)  # fmt: skip
    assert smooth(one, power, [Batch({"x": x})], Running()) == ["ln"]
    np.testing.assert_allclose(run(one, x=x), exact, rtol=1e-4, atol=1e-4)
    rows = np.maximum(np.abs(before["q"]).max(axis=1), np.abs(before["k"]).max(axis=1))
    factors = np.abs(a).max(axis=(0, 1)) ** power / rows ** (1 - power)
    np.testing.assert_allclose(weights(one)["q"], before["q"] * factors[:, np.newaxis], rtol=1e-4)


def test_nothing_moves_where_another_reader_would_see_it():
    text = """g (float[2,4] x) => (float[2,4] y, float[2,4] b) {
        [a] p = Gemm (x, w1, c) [r] b = Relu (p) [d] y = Gemm (b, w2, c2) }"""
    assert list(joints_of(in_floats(model(text, w1=(4, 4), c=(4,), w2=(4, 4), c2=(4,))))) == []
    through = text.replace(", float[2,4] b", "").replace("Relu", "Sigmoid")
    assert list(joints_of(in_floats(model(through, w1=(4, 4), c=(4,), w2=(4, 4), c2=(4,))))) == []
    free = text.replace(", float[2,4] b", "")
    one = in_floats(model(free, w1=(4, 4), c=(4,), w2=(4, 4), c2=(4,)))
    assert [(joint.source.name, joint.axis) for joint in joints_of(one)] == [("a", 1)]


def test_channels_of_zeros_are_left_alone():
    zeros = np.random.default_rng(0).normal(size=(4, 4))
    zeros[:, 1] = 0
    text = "g (float[2,4] x) => (float[2,4] y) { [a] p = Gemm (x, w1, c) [r] b = Relu (p) [d] y = Gemm (b, w2, c) }"
    one = in_floats(model(text.replace("w2, c)", "w2, c2)"), w1=zeros, c=(4,), w2=(4, 4), c2=(4,)))
    x = np.ones((2, 4), np.float32)
    exact = run(one, x=x)
    equalize(one)
    np.testing.assert_allclose(run(one, x=x), exact, rtol=1e-5)
    assert np.isfinite(weights(one)["d"]).all()


def test_outliers_of_activations_cost_less_when_they_are_smoothed():
    x = np.random.default_rng(1).normal(size=(64, 6, 8)).astype(np.float32)
    text = NORMALISED.replace("[2,6,8]", "[n,6,8]")
    outliers = np.ones(8)
    outliers[3] = 40
    one = model(text, scale=outliers, bias=(8,), w1=(8, 8), w2=(8, 8))
    snr = {
        power: graft.quantization.compare(
            one, graft.quantize(one, {"base": "int8", "smooth": power}, {"x": x}), {"x": x}
        ).snr_db
        for power in (0.0, 0.5)
    }
    assert snr[0.5] > snr[0.0] + 3
