"""Seeded weights: the same everywhere, drawn by role, and only in the place of constant-filled ones."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import parser

from examples.models.seed_weights import SeedWeights
from graft.core.importer.load import load

CONV = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 8, 9, 9] x) => (float[1, 64, 7, 7] y)
    <int64[4] shape = {64, 8, 3, 3}, int64[1] channels = {64}, float[4] kept = {1, 2, 3, 4}, float[1] one = {1}> {
        w = ConstantOfShape<value = float[1] {0.02}>(shape) b = ConstantOfShape<value = float[1] {0.02}>(channels)
        s = ConstantOfShape<value = float[1] {0.02}>(channels) v = ConstantOfShape<value = float[1] {0.02}>(channels)
        r = Relu(x) c = Conv(r, w, b) y = BatchNormalization(c, s, b, b, v) }"""


def weights(text: str = CONV, seed: int = 0) -> dict[str, np.ndarray]:
    model = load(parser.parse_model(text))
    SeedWeights(seed).run(model)
    return {name: value.const_value.numpy() for name, value in model.graph.initializers.items() if value.const_value}


def test_a_weight_depends_on_seed_and_name_alone() -> None:
    first, again, other = weights(), weights(), weights(seed=1)
    extended = weights(CONV.replace("r = Relu(x)", "a = Neg(x) r = Relu(a)"))
    renamed = weights(CONV.replace("w = Const", "u = Const").replace("Conv(r, w, b)", "Conv(r, u, b)"))
    assert np.array_equal(first["w"], again["w"])
    assert np.array_equal(first["w"], extended["w"])
    assert not np.array_equal(first["w"], other["w"])
    assert not np.array_equal(first["w"], renamed["u"])


def test_the_first_weights_are_what_they_were() -> None:
    assert weights()["w"].reshape(-1)[:3].tolist() == [0.22890906035900116, 0.007146961521357298, -0.13123273849487305]


def test_a_convolution_behind_a_relu_gets_he_initialised_weights() -> None:
    drawn = weights()["w"]
    assert drawn.shape == (64, 8, 3, 3)
    assert drawn.dtype == np.float32
    assert abs(drawn.std() / np.sqrt(2 / 72) - 1) < 0.05


def test_scale_and_variance_of_a_normalisation_are_near_one() -> None:
    drawn = weights()
    assert 0.8 <= drawn["s"].min() <= drawn["s"].max() <= 1.2
    assert 0.5 <= drawn["v"].min() <= drawn["v"].max() <= 1.5
    assert np.abs(drawn["b"]).max() < 0.3


def test_constants_that_hold_something_are_kept() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y)
        <float[4] mask = {0, 0, -1, 0}, float two = {2}, float[4] ones = {1, 1, 1, 1}, int64[2] count = {3, 3}> {
            a = Add(x, mask) b = Add(a, two) y = Add(b, ones) }"""
    drawn = weights(text)
    assert drawn["mask"].tolist() == [0, 0, -1, 0]
    assert drawn["two"].tolist() == 2
    assert len(set(drawn["ones"].tolist())) == 4


def test_weights_are_found_behind_what_only_moves_them() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[5, 64] x) => (float[5, 32] y)
        <int64[2] shape = {32, 64}> { w = ConstantOfShape<value = float[1] {0.02}>(shape)
            t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t) }"""
    assert abs(weights(text)["w"].std() * 8 - 1) < 0.1


def test_a_model_with_its_own_weights_is_not_touched() -> None:
    proto = parser.parse_model(CONV)
    del proto.graph.node[:5]
    generator = np.random.default_rng(0)
    for name, shape in {"w": (64, 8, 3, 3), "b": (64,), "s": (64,), "v": (64,)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(generator.random(shape, np.float32), name))
    proto.graph.node[0].input[0] = "x"
    model = load(proto)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    assert not SeedWeights().run(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
