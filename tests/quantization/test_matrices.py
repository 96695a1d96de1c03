"""Products as matrices: the matrix product is what onnx.reference computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.matrices import (
    POSITIONS,
    WINDOWS,
    as_matrices,
    as_weights,
    inputs_of,
    is_regular,
    means_of_terms,
)
from graft.quantization.sites import product_of
from tests.quantization.networks import model, run

CASES = {
    "conv": ("g (float[2,4,7,6] x) => (float[n,c,h,w] y) { y = Conv <pads = [1,0,1,2]> (x, w) }", (5, 4, 3, 2)),
    "strides": ("g (float[2,4,9,8] x) => (float[n,c,h,w] y) { y = Conv <strides = [2,3]> (x, w) }", (5, 4, 3, 2)),
    "dilations": ("g (float[2,4,9,8] x) => (float[n,c,h,w] y) { y = Conv <dilations = [2,1]> (x, w) }", (5, 4, 3, 2)),
    "groups": ("g (float[2,4,7,6] x) => (float[n,c,h,w] y) { y = Conv <group = 2> (x, w) }", (6, 2, 3, 2)),
    "depthwise": ("g (float[2,4,7,6] x) => (float[n,c,h,w] y) { y = Conv <group = 4> (x, w) }", (4, 1, 3, 3)),
    "same": ('g (float[2,4,7,6] x) => (float[n,c,h,w] y) { y = Conv <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w)}',
             (5, 4, 3, 3)),
    "line": ("g (float[2,4,9] x) => (float[n,c,l] y) { y = Conv <pads = [1,1]> (x, w) }", (5, 4, 3)),
    "matmul": ("g (float[2,3,4] x) => (float[n,r,c] y) { y = MatMul (x, w) }", (4, 5)),
    "gemm": ("g (float[3,4] x) => (float[n,c] y) { y = Gemm (x, w) }", (4, 5)),
    "gemm transposed": ("g (float[4,3] x) => (float[n,c] y) { y = Gemm <transA = 1, transB = 1> (x, w) }", (5, 4)),
}  # fmt: skip


def case(name: str, seed: int = 0) -> tuple[onnx.ModelProto, object, np.ndarray, np.ndarray]:
    text, shape = CASES[name]
    proto = model(text, seed, w=shape)
    loaded = graft.load(proto)
    product = next(found for node in loaded.graph if (found := product_of(node)) is not None)
    weights = constant_of(product.weights)
    assert weights is not None
    extents = [one.dim_value for one in proto.graph.input[0].type.tensor_type.shape.dim]
    return proto, product, weights, np.random.default_rng(seed + 1).normal(size=extents).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_the_product_of_the_matrices_is_the_operators(name):
    proto, product, weights, x = case(name)
    assert is_regular(product)
    found = np.matmul(as_matrices(product, weights), inputs_of(product, x, weights.shape))
    exact = run(proto, x=x)
    channels = exact.ndim - 1 if "mat" in name or "gemm" in name else 1
    wanted = np.moveaxis(exact, channels, 0).reshape(exact.shape[channels], -1)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_matrices_become_the_weights_again(name):
    _, product, weights, _ = case(name)
    assert np.array_equal(as_weights(product, as_matrices(product, weights), weights.shape), weights)


def test_means_stand_where_their_channels_are_multiplied():
    _, product, weights, x = case("groups")
    means = x.mean(axis=(0, 2, 3))
    found = means_of_terms(product, means, weights.shape)
    wanted = inputs_of(product, np.broadcast_to(means[:, None, None], (1, 4, 7, 6)), weights.shape)[:, :, 0]
    np.testing.assert_allclose(found, wanted)


def test_of_many_positions_some_are_looked_at_and_others_in_the_next_turn():
    _, product, weights, _ = case("conv")
    x = np.arange(4 * 50 * 40, dtype=np.float32).reshape(1, 4, 50, 40)
    turns = [inputs_of(product, x, weights.shape, turn)[0] for turn in range(20)]
    assert {one.shape[-1] for one in turns} == {WINDOWS}
    columns = [set(map(tuple, one.T)) for one in turns]
    assert len(columns[0] & columns[1]) <= 1  # those beyond the border are zeros alone
    assert len(set.union(*columns)) == 50 * 40 + 1  # every window of the image


def test_of_many_images_fewer_windows_of_each_are_looked_at():
    _, product, weights, _ = case("conv")
    found = inputs_of(product, np.zeros((64, 4, 30, 30), np.float32), weights.shape)
    assert found.shape[-1] == POSITIONS
