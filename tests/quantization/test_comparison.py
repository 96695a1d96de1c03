"""Comparison: its rows against errors and ranges computed here from both models by onnx.reference."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.datatypes.scaled.blocks import decode_scaled, encode_scaled
from graft.datatypes.scaled.scaled_type import scaled_type
from graft.errors import RecipeError
from graft.quantization import compare, quantize
from graft.quantization.preparation import in_floats
from tests.quantization.networks import convolutions, images, model, snr


def values(one: ir.Model, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of a model."""
    proto = ir.to_proto(one)
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, ReferenceEvaluator(proto).run(names, {"x": x}), strict=True))


@pytest.fixture(scope="module")
def pair():
    floats = in_floats(convolutions())
    recipe = {"base": "int8", "activations": {"calibration": "percentile", "percentile": 95.0}}
    return floats, quantize(floats, recipe, {"x": images()})


def test_a_layer_has_the_error_of_its_result_and_the_saturation_of_its_input(pair):
    floats, codes = pair
    x = images(8, seed=2)
    report = compare(floats, codes, {"x": x})
    exact, found = values(floats, x), values(codes, x)
    results = {node.name: node.outputs[0].name for node in floats.graph}
    assert [row.layer for row in report.layers] == ["c1", "c2", "c3", "add", "mean", "fc"]
    for row in report.layers:
        name = results[row.layer]
        assert row.snr_db == pytest.approx(snr(exact[name], found[name]), abs=0.3)
        assert row.elements == exact[name].size
    constants = {one.name: numpy_helper.to_array(one) for one in ir.to_proto(codes).graph.initializer}
    for layer, name, least in (("c1", "x", 100), ("c3", "e", 1)):
        value, scale, zero = {**found, "x": x}[name], constants[f"{name}_scale"], int(constants[f"{name}_zero"])
        places = np.rint(value / scale) + zero
        beyond = int(np.sum((places < -128) | (places > 127)))
        row = next(row for row in report.layers if row.layer == layer)
        assert row.saturated == pytest.approx(beyond, abs=3)
        assert beyond >= least
        assert row.underflowed == pytest.approx(np.sum((value != 0) & (places == zero)), abs=3)


@pytest.mark.parametrize("recipe", ["mxfp4", {"base": "int8-weights", "layers": {"[cf]*": "nvfp4"}}], ids=str)
def test_a_layer_in_blocks_has_the_saturation_of_its_input(recipe):
    floats, x = in_floats(convolutions()), images(8, seed=2)
    codes = quantize(floats, recipe)
    report = {row.layer: row for row in compare(floats, codes, {"x": x}).layers}
    assert {"c1", "c3", "fc"} <= report.keys()
    type = scaled_type("mxfp4" if recipe == "mxfp4" else "nvfp4")
    blocks = encode_scaled(x, type, axis=1, tensor_scale=1.0)
    limits, numbers = blocks.spread(blocks.scale_numbers()) * 6, decode_scaled(blocks)
    row = report["c1"]
    assert (row.saturated, row.underflowed) == (np.sum(np.abs(x) > limits), np.sum((x != 0) & (numbers == 0)))
    assert row.saturated > 10
    assert row.underflowed > 10


def test_an_output_that_is_not_finite_has_no_signal():
    floats, codes = (
        model("g (float[n,2] x) => (float[n,2] y) { [p] y = MatMul (x, w) }", w=w)
        for w in (np.eye(2), np.diag([1.0, 3e38]))
    )
    report = compare(floats, codes, {"x": np.full((4, 2), 2, np.float32)})
    assert (report.snr_db, report.outputs[0].invalid) == (-np.inf, 4)


@pytest.mark.parametrize(("given", "cause"), [
    (np.nan, "whose 'x' holds NaN or infinity"), (-np.inf, "whose 'x' holds NaN or infinity"),
    (3e38, "which are finite"),
])  # fmt: skip
def test_outputs_that_are_nan_in_floats_are_refused(given, cause):
    floats = model("g (float[n,2] x) => (float[n,1] y) { [p] a = MatMul (x, w) y = Sub (a, a) }", w=np.ones((2, 1)))
    x = {"x": np.full((4, 2), given, np.float32)}
    with pytest.raises(RecipeError) as caught:
        compare(floats, quantize(floats, "mxfp4"), x)
    assert caught.value.message == (
        f"output 'y' of the float model has 4 elements that are NaN on the data, {cause}; mend the data, or the model"
    )
    if not np.isfinite(given):  # float64, which the sweep compares with, holds the other
        with pytest.raises(RecipeError, match=cause):
            graft.sweep(floats, ["bfloat16"], x, shapes={"x": (4, 2)})


def test_layers_between_which_factors_moved_are_no_rows():
    quantized = quantize(convolutions(), {"base": "int8", "equalize": True}, {"x": images()})
    assert [row.layer for row in compare(convolutions(), quantized, {"x": images()}).layers] == [
        "c1", "c3", "add", "mean", "fc",
    ]  # fmt: skip


def test_the_float_side_is_prepared_as_the_quantised_one_was(tmp_path):
    floats = model(
        """g (float[n,4,6,6] x) => (float[n,4,12,12] y) {
        [norm] a = InstanceNormalization (x, s, b)
        [up] y = ConvTranspose <strides = [2,2]> (a, w) }""",
        s=(4,), b=(4,), w=(4, 4, 2, 2),
    )  # fmt: skip
    x = {"x": np.random.default_rng(0).normal(size=(8, 4, 6, 6)).astype(np.float32)}
    recipe = {
        "base": "int8", "decompose": ["InstanceNormalization"], "without": ["interleave-convolutions"],
        "operators": ["Sub", "Mul"],
    }  # fmt: skip
    path = tmp_path / "codes.onnx"
    onnx.save(ir.to_proto(quantize(floats, recipe, x)), path)
    rows = {row.layer: row for row in compare(floats, path, x).layers}
    assert rows["up"].operator == "ConvTranspose"
    assert len(rows) > 2  # what the normalisation is decomposed into has rows of its own


def test_the_metric_is_that_of_both_models(pair):
    floats, codes = pair
    x = images(8, seed=2)
    wanted = [float(values(one, x)["y"].mean()) for one in pair]
    report = compare(floats, codes, {"x": x}, metric=lambda outputs, labels: outputs["y"].mean())
    assert [report.float_metric, report.metric] == pytest.approx(wanted, rel=1e-2)
    assert compare(floats, codes).metric is None


def test_a_model_against_itself_has_no_error():
    report = compare(convolutions(), convolutions(), {"x": images()})
    assert (report.layers, report.snr_db) == ((), np.inf)


def test_models_of_other_outputs_are_refused():
    with pytest.raises(RecipeError, match="the models have different outputs: y and z"):
        compare(convolutions(), model("g (float[n,3,12,12] x) => (float[n,3,12,12] z) { z = Relu (x) }"))


def test_a_reloaded_file_is_compared_alike(pair, tmp_path):
    floats, codes = pair
    path = tmp_path / "codes.onnx"
    onnx.save(ir.to_proto(codes), path)
    x = {"x": images(4)}
    assert compare(floats, path, x) == compare(floats, codes, x)
    assert graft.quantization.notes_of(ir.load(path)) == graft.quantization.notes_of(codes)
