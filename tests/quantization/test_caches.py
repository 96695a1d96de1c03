"""Caches as codes: against rounded caches of the float model, in pieces as at once, and by every operator."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from examples.decoders.models import Config, gpt2
from graft.errors import RecipeError
from graft.quantization import compare, notes_of, quantize
from graft.quantization.caches import caches_of
from tests.quantization.networks import convolutions, model

CONFIG = Config(layers=1, width=16, heads=2, inner=16, vocabulary=20, positions=16)
NAMES, PRESENT = ("past_k0", "past_v0"), ("present_k0", "present_v0")
IDS = np.random.default_rng(0).integers(0, 20, (3, 8))


def empty(kind: type | np.dtype = np.float32) -> dict[str, np.ndarray]:
    return {name: np.zeros((3, 2, 0, 8), kind) for name in NAMES}


def scale_and_zero(quantized: ir.Model, name: str) -> tuple[np.ndarray, np.ndarray]:
    tensors = quantized.graph.initializers
    return tensors[f"{name}_scale"].const_value.numpy(), tensors[f"{name}_zero"].const_value.numpy()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int4"])
def test_codes_are_the_rounded_keys_and_values_of_the_float_model(kind):
    floats = gpt2(CONFIG)
    scaling = {"type": kind, "symmetric": kind == "int8"}
    quantized = quantize(floats, {"weights": "float32", "caches": scaling}, {"ids": IDS, **empty()})
    exact = ReferenceEvaluator(floats).run(PRESENT, {"ids": IDS, **empty()})
    stored = {value.name: value.dtype.numpy() for value in quantized.graph.inputs}
    found = graft.compile(quantized).run({"ids": IDS, **empty(stored["past_k0"])})
    low, high = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}[kind]
    for name, values in zip(NAMES, exact, strict=True):
        scale, zero = scale_and_zero(quantized, name)
        places = np.asarray(values, np.float64) / scale + int(zero)
        codes = np.asarray(found[name.replace("past", "present")]).astype(np.float64)
        assert np.abs(codes - np.clip(places, low, high)).max() <= 0.5 + 1e-3
    assert notes_of(quantized)[0].endswith(f"2 caches of {kind}")


@pytest.mark.parametrize("kind", ["uint8", "float8e4m3fn"])
def test_a_text_in_pieces_gives_what_it_gives_at_once(kind):
    scaling = {"type": kind, "symmetric": kind != "uint8"}
    quantized = quantize(gpt2(CONFIG), {"weights": "float32", "caches": scaling}, {"ids": IDS, **empty()})
    program, stored = graft.compile(quantized), quantized.graph.inputs[1].dtype.numpy()
    assert [one.copied for one in program.caches] == (["", ""] if kind == "uint8" else [])  # bytes grow where they are
    whole = program.run({"ids": IDS, **empty(stored)})
    caches, logits = empty(stored), []
    for first in (0, 3, 6):
        found = program.run({"ids": IDS[:, first : min(first + 3, 8)], **caches})
        caches = {name: found[name.replace("past", "present")] for name in NAMES}
        logits.append(np.asarray(found["logits"]))
    np.testing.assert_allclose(np.concatenate(logits, axis=1), whole["logits"], rtol=1e-4, atol=1e-5)
    for name in NAMES:
        ours, theirs = (
            np.asarray(one).astype(np.float32) for one in (caches[name], whole[name.replace("past", "present")])
        )
        assert np.array_equal(ours, theirs)


ATTENTION = """g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,5,4] past_k, float[1,2,5,4] past_v)
    => (float[1,2,3,4] y, float[1,2,8,4] present_k, float[1,2,8,4] present_v) {
    y, present_k, present_v = Attention (q, k, v, , past_k, past_v) }"""
SCATTER = """g (float[1,2,8,4] past, float[1,2,3,4] rows, int64[1] place)
    => (float[1,2,8,4] present, float[1,2,8,4] y) {
    present = TensorScatter (past, rows, place) y = Relu (present) }"""


@pytest.mark.parametrize(("text", "count"), [(ATTENTION, 2), (SCATTER, 1)])
def test_caches_of_other_operators_are_compared_in_floats(text, count):
    one = model(text)
    one.opset_import[0].version = 24
    random = np.random.default_rng(1)
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in one.graph.input}
    data = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    if "place" in data:
        data["place"] = np.array([2], np.int64)
    quantized = quantize(one, {"weights": "float32", "caches": {}}, data)
    assert len(list(caches_of(graft.load(one).graph))) == count
    assert sum(value.dtype is ir.DataType.INT8 for value in quantized.graph.inputs) == count
    report = compare(one, quantized, data)
    assert all(30 < row.snr_db < 60 for row in report.outputs)


def test_caches_go_with_codes_of_weights_and_activations():
    data = {"ids": IDS, **empty()}
    quantized = quantize(gpt2(CONFIG), {"base": "int8-channel", "caches": {}}, data)
    report = compare(gpt2(CONFIG), quantized, data)
    assert {row.layer for row in report.outputs} == {"logits", "present_k0", "present_v0"}
    assert report.snr_db > 20


@pytest.mark.parametrize(
    ("given", "data", "message"),
    [
        (
            {"weights": "float32", "caches": {}}, {"x": np.zeros((1, 3, 12, 12))},
            "the recipe quantises caches, but no output of this model is a float32 input with new rows behind it (by "
            "Concat, TensorScatter or Attention)",
        ),
        (
            {"weights": "float32", "caches": {}}, None,
            "recipe 'custom' is calibrated with data; give some, or a recipe of weights alone that rounds to 'nearest' "
            "and corrects no bias",
        ),
        (
            {"caches": {"granularity": "channel"}}, None,
            "recipe: caches are of granularity 'channel'; ONNX scales them as a 'tensor'",
        ),
    ],
)  # fmt: skip
def test_recipes_without_caches_are_refused(given, data, message):
    with pytest.raises(RecipeError) as caught:
        quantize(convolutions(), given, data)
    assert str(caught.value) == message
