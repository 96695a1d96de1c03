"""Training through quantisation: codes are trained as rounded numbers, and the model comes back in codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import graft
from graft.core.importer.load import load
from graft.errors import ModelError
from graft.quantization import left_by, recipe_for
from graft.training import Adam, Trainer
from graft.training.quantized_form import QuantizedForm

TEXT = """<ir_version: 10, opset_import: ["" : 21]> net (float[n,40] x) => (float[n,3] y) {
    [first] h = Gemm (x, w1, b1) r = Relu (h) [second] y = Gemm (r, w2, b2) }"""
SHAPES = {"w1": (40, 16), "b1": (16,), "w2": (16, 3), "b2": (3,)}
POWERS = {"scale": "power-of-two"}
RECIPES: dict[str, str | dict[str, object]] = {
    "bytes": "int8-channel",
    "groups whose last is short": "int4-weights",
    "3 bits": "int3-weights",
    "zero points": {"weights": {"type": "uint4", "symmetric": False, "granularity": "channel"}},
    "zero points of groups": {"weights": {"type": "uint4", "symmetric": False, "granularity": "group", "group": 8}},
    "microscaling": "mxfp4-weights",
    "6 bits": "mxfp6-weights",
    "wide range": {"weights": {"type": "float6e3m2"}},
    "eighths": {"weights": {"type": "float8e4m3fn", "granularity": "channel"}},
    "16 bits": {"base": "int8", "activations": {"type": "int16"}},
}


def network() -> onnx.ModelProto:
    model, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name))
    return model


def data(count: int = 120) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 40)).astype(np.float32)
    return {"x": x, "target": np.argmax(x[:, :3], axis=1)}


def quantised(recipe: str | Mapping[str, object] = "int8-channel") -> ir.Model:
    return graft.quantize(network(), recipe, {"x": data()["x"]}, threads=1)


def run(model: ir.Model, x: np.ndarray) -> np.ndarray:
    return np.asarray(graft.compile(model, threads=1, cache=False)(x))


def constants(model: ir.Model) -> dict[str, np.ndarray]:
    return {name: one.const_value.numpy() for name, one in model.graph.initializers.items()}  # type: ignore[union-attr]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_form_computes_what_the_codes_stand_for_and_goes_back_to_them(recipe: str | dict[str, object]) -> None:
    model, x = quantised(recipe), data(8)["x"]
    form = QuantizedForm.of(model)
    assert form is not None
    np.testing.assert_allclose(run(form.model, x), run(model, x), rtol=1e-4, atol=1e-5)
    again = form.written(constants(form.model))
    assert again.graph.initializers.keys() == model.graph.initializers.keys()
    assert all(one.tobytes() == constants(again)[name].tobytes() for name, one in constants(model).items())


def test_a_quantised_model_learns_and_stays_one() -> None:
    recipe = {"base": "int8-channel", "weights": {"type": "int3", **POWERS}, "activations": POWERS}
    model, given = quantised(recipe), data()
    found = Trainer(model, optimizer=Adam(0.02), threads=1)
    assert {"w1", "w2", "x_scale_log2", "w1_scale_log2"} < set(found.weights)
    before = found.evaluate(given, batch=20)
    found.fit(given, epochs=15, batch=20)
    result = found.model
    assert [(node.op_type, node.name) for node in result.graph] == [(node.op_type, node.name) for node in model.graph]
    logits = run(result, given["x"])
    assert np.mean(np.argmax(logits, axis=1) == given["target"]) > 0.9
    assert found.evaluate(given, batch=20) < 0.3 * before
    kept = constants(result)
    assert kept["w1_codes"].dtype.name == "int4"
    assert -4 <= kept["w1_codes"].astype(int).min() < kept["w1_codes"].astype(int).max() <= 3
    scales = [array for name, array in kept.items() if name.endswith("_scale")]
    assert all((np.frexp(scale)[0] == 0.5).all() for scale in scales)


def test_a_scale_that_is_a_power_of_two_grows_to_another_and_others_grow_freely() -> None:
    model = quantised({"base": "int8-channel", "results": True, "weights": POWERS, "activations": {"symmetric": True}})
    form = QuantizedForm.of(model)
    assert form is not None
    was = constants(model)
    grown = [name for name in constants(form.model) if name.endswith("_log2")]
    now = constants(form.written({name: np.full_like(was[name.removesuffix("_log2")], 0.75) for name in grown}))
    np.testing.assert_array_equal(now["w1_scale"], 2 * was["w1_scale"])
    np.testing.assert_allclose(now["x_scale"], 2**0.75 * was["x_scale"], rtol=1e-6)
    np.testing.assert_array_equal(now["first_bias_scale"], now["x_scale"] * now["w1_scale"])


def test_scales_that_are_frozen_stay_to_the_bit() -> None:
    model, given = quantised(), data(40)
    found = Trainer(model, optimizer=Adam(0.02), frozen=["*_log2"], threads=1)
    found.fit(given, epochs=1, batch=20)
    was, now = constants(model), constants(found.model)
    assert all(np.array_equal(now[name], was[name]) for name in was if name.endswith(("_scale", "_zero")))
    assert not np.array_equal(now["w1_codes"], was["w1_codes"])


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_a_scale_that_no_power_of_two_can_be_taken_of_is_an_error(wrong: float) -> None:
    model = quantised()
    scale = model.graph.initializers["w1_scale"]
    array = scale.const_value.numpy().copy()  # type: ignore[union-attr]
    array[3] = wrong
    scale.const_value = ir.tensor(array, name="w1_scale")
    with pytest.raises(ModelError) as found:
        Trainer(model)
    assert found.value.message == (
        "DequantizeLinear (node 'w1_dequantized_node'): the scale 'w1_scale' holds 0 or less, of which no "
        "power of two can be trained; quantise the model anew"
    )


def test_a_model_whose_codes_were_widened_is_refused() -> None:
    with pytest.raises(ModelError, match="the codes of this model were widened when it was loaded"):
        Trainer(load(quantised("int4-weights")))


def test_a_model_for_a_backend_is_trained_and_fits_it_still() -> None:
    shapes = {"x": (20, 40)}
    model = graft.quantize(network(), recipe_for("accelerator"), {"x": data()["x"]}, shapes=shapes, threads=1)
    found, given = Trainer(model, optimizer=Adam(0.02), threads=1), data()
    losses = found.fit(given, epochs=4, batch=20)
    assert losses[-1] < losses[0]
    assert left_by("accelerator", found.model) == []


def test_a_model_in_floats_has_no_such_form() -> None:
    assert QuantizedForm.of(network()) is None
