"""Weights on their grids: layouts, short groups, and the mean that rounding adds."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.api import notes_of, quantize
from graft.quantization.matrices import channel_axis
from graft.quantization.recipe import Recipe, Scaling
from graft.quantization.scales import Layout
from graft.quantization.sites import product_of, sites_of
from graft.quantization.statistics.facts import Facts
from graft.quantization.weights import bias_shift, layout_of, scaled_weights
from tests.quantization.networks import convolutions, model, run, snr
from tests.quantization.test_matrices import CASES, case

GROUPS = Scaling(granularity="group", group=4)


@pytest.mark.parametrize(
    ("text", "shape", "scaling", "layout"),
    [
        ("y = MatMul (x, w)", (10, 6), Scaling(), Layout((10, 6))),
        ("y = MatMul (x, w)", (10, 6), Scaling(granularity="channel"), Layout((10, 6), 1)),
        ("y = MatMul (x, w)", (10, 6), GROUPS, Layout((10, 6), 0, 4)),
        ("y = Gemm <transB = 1> (x, w)", (6, 10), GROUPS, Layout((6, 10), 1, 4)),
        ("y = MatMul (x, w)", (4, 6), GROUPS, Layout((4, 6), 1)),
    ],
)
def test_which_weights_share_a_scale(text, shape, scaling, layout):
    one = model(f"g (float[3,{shape[1] if 'Gemm' in text else shape[0]}] x) => (float[n,m] y) {{ {text} }}", w=shape)
    product = next(found for node in graft.load(one).graph if (found := product_of(node)) is not None)
    assert layout_of(product, shape, scaling) == layout


@pytest.mark.parametrize("name", [one for one in CASES if one not in ("same", "conv", "line")])  # no borders
def test_the_shift_is_the_mean_of_what_rounding_adds(name):
    proto, product, _, x = case(name)
    axis, means = channel_axis(product, x.ndim), np.float32([1, 2, 3, 4])
    x = np.ascontiguousarray(np.moveaxis(np.broadcast_to(means, (*np.delete(x.shape, axis), 4)), -1, axis))
    sites = sites_of(graft.load(proto).clone(), Recipe(weights=Scaling(type="int4")))
    (one,) = scaled_weights(sites, Facts(), []).values()
    off = run(model(CASES[name][0], w=one.numbers), x=x) - run(proto, x=x)
    channels = 1 if x.ndim == 4 else off.ndim - 1
    wanted = np.moveaxis(off, channels, 0).reshape(off.shape[channels], -1)[:, 0]
    np.testing.assert_allclose(bias_shift(product, one, means), wanted, rtol=1e-3, atol=1e-5)


def test_a_recipe_without_weights_has_none():
    sites = sites_of(graft.load(convolutions()).clone(), Recipe(weights=None))
    assert scaled_weights(sites, Facts(), []) == {}


def test_what_gptq_cannot_round_is_noted():
    text = "g (float[1,4,5,5] x) => (float[n,c,h,w] y) { [t] y = ConvTranspose (x, v) }"
    recipe, facts = Recipe(weights=Scaling(rounding="gptq")), Facts()
    sites = sites_of(graft.load(model(text, v=(4, 3, 2, 2))).clone(), recipe)
    facts.want(sites, recipe)
    notes: list[str] = []
    (found,) = scaled_weights(sites, facts, notes).values()
    assert notes == ["weights 'v' of ConvTranspose are rounded each by itself"]
    assert np.abs(found.numbers - constant_of(sites.products[0].weights)).max() <= found.scale[0] / 2 * 1.001


def test_products_that_share_weights_round_them_by_their_own_axes():
    text = "g (float[n,64] x) => (float[n,64] y) { [a] t = MatMul (x, w) [b] y = Gemm <transB = 1> (t, w) }"
    floats = model(text, w=(64, 32))
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    found = quantize(floats, {"weights": {"type": "int4", "granularity": "channel"}})
    axes = {node.attributes["axis"].value for node in found.graph if node.op_type == "DequantizeLinear"}
    assert axes == {0, 1}
    assert snr(run(floats, x=x), run(found, x=x)) > 15


def test_stacks_of_matrices_are_quantised_without_correction_of_a_bias_that_each_would_have():
    floats = model("g (float[n,3,4,32] x) => (float[n,3,4,8] y) { [p] y = MatMul (x, w) }", w=(3, 32, 8))
    x = np.random.default_rng(0).normal(size=(6, 3, 4, 32)).astype(np.float32)
    for name, least in (("int8-channel", 35), ("int4-weights", 17)):
        assert snr(run(floats, x=x), run(quantize(floats, name, {"x": x}), x=x)) > least


def test_a_last_block_that_is_short_is_noted():
    floats = model(
        "g (float[n,40] x) => (float[n,8] y) { [a] h = MatMul (x, v) y = MatMul (h, w) }", v=(40, 8), w=(8, 8)
    )
    notes = notes_of(quantize(floats, "mxfp4"))
    assert notes[1:] == ["weights whose last block is short: 'v' (8 of 32)"]  # that of w is its whole channel
    assert len(notes_of(quantize(floats, {"base": "mxfp4", "blocks": {"block": 8}}))) == 1
