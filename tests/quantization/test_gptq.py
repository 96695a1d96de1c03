"""GPTQ: the error of the product, against each weight rounded by itself and against all roundings of a small one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graft
from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.gptq import Gram, rounded
from graft.quantization.grids import GRIDS
from graft.quantization.matrices import as_matrices, inputs_of
from graft.quantization.recipe import Scaling
from graft.quantization.scales import scaled
from graft.quantization.sites import product_of
from graft.quantization.weights import layout_of
from tests.quantization.networks import model
from tests.quantization.test_matrices import CASES, case


def rounded_both_ways(product, weights, x, scaling):
    grid = GRIDS[scaling.type]
    nearest = scaled(weights, layout_of(product, weights.shape, scaling), scaling, grid, "w")
    gram = Gram(product, weights.shape)
    for part in (x, x):
        gram.add(part)
    return nearest, rounded(product, weights, nearest, gram.sums)


def error(product, weights, x, one) -> float:
    off = np.matmul(as_matrices(product, one.numbers - weights), inputs_of(product, x, weights.shape))
    return float(np.sum(off**2))


@pytest.mark.parametrize("scaling", [Scaling(type="int4", granularity="channel"),
                                     Scaling(type="int4", granularity="group", group=2),
                                     Scaling(type="uint4", granularity="channel", symmetric=False),
                                     Scaling(type="float8e4m3fn")], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_the_error_of_the_product_is_less_than_that_of_the_nearest_weights(name, scaling):
    totals = np.zeros(2)
    for seed in range(8):
        _, product, weights, x = case(name, seed)
        x = np.abs(np.concatenate([x] * (1 if name == "gemm transposed" else 2))) + 0.5  # of like sign, so correlated
        nearest, found = rounded_both_ways(product, weights, x, scaling)
        assert np.array_equal(found.codes, found.grid.nearest(found.codes))
        totals += error(product, weights, x, nearest), error(product, weights, x, found)
    assert totals[1] < 0.8 * totals[0]


def test_it_is_near_the_best_of_all_roundings():
    random = np.random.default_rng(3)
    weights = random.normal(size=(50, 6)).astype(np.float32)
    x = (random.normal(size=(40, 1)) + 0.3 * random.normal(size=(40, 6))).astype(np.float32)
    text = "g (float[40,6] x) => (float[n,c] y) { y = Gemm <transB = 1> (x, w) }"
    loaded = graft.load(model(text, w=weights))
    product = next(found for node in loaded.graph if (found := product_of(node)) is not None)
    assert np.array_equal(constant_of(product.weights), weights)
    nearest, found = rounded_both_ways(product, weights, x, Scaling(type="int4", granularity="channel"))
    best = 0.0
    for row, scale in zip(weights, nearest.scale, strict=True):
        around = [(np.floor(place), np.ceil(place)) for place in row / scale]
        codes = np.array(list(itertools.product(*around)))
        best += float(np.sum((x @ (codes * scale - row).T) ** 2, axis=0).min())
    assert error(product, weights, x, found) < 1.1 * best
    assert error(product, weights, x, nearest) > 3 * best


def test_inputs_that_are_always_zero_leave_the_nearest_codes():
    text = "g (float[4,3] x) => (float[n,c] y) { y = Gemm <transB = 1> (x, w) }"
    loaded = graft.load(model(text, w=(5, 3)))
    product = next(found for node in loaded.graph if (found := product_of(node)) is not None)
    nearest, found = rounded_both_ways(product, constant_of(product.weights), np.zeros((4, 3), np.float32), Scaling())
    assert np.array_equal(found.codes, nearest.codes)
