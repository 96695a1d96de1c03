"""The sweep with recipes: their rows say what `compare` and the definitions of their sizes say."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.datatypes.study import SweepReport
from graft.errors import DatatypeError, RecipeError
from graft.quantization import compare, quantize
from tests.quantization.networks import convolutions, images

X = images(24)
WEIGHTS = {"c1": 8 * 27, "c2": 8 * 9, "c3": 64, "fc": 40}
CHANNELS = {"c1": 8, "c2": 8, "c3": 8, "fc": 5}
INPUTS = {"c1": 3 * 144, "c2": 8 * 36, "c3": 8 * 36, "fc": 8}
MIXED = {"base": "int8-channel", "name": "mixed", "layers": {"c1": "int8-weights", "fc": "float32"}}


@pytest.fixture(scope="module")
def report() -> SweepReport:
    shapes = {"x": (1, 3, 12, 12)}
    return graft.sweep(
        convolutions(), ["bfloat16"], {"x": X}, shapes=shapes, recipes=["int8-channel", MIXED], threads=1
    )


def test_recipes_stand_beside_types(report):
    assert [(row.name, row.type) for row in report.rows] == [
        ("float32", "float32"), ("bfloat16", "custom[bfloat]16"), ("int8-channel", "recipe"), ("mixed", "recipe"),
    ]  # fmt: skip
    assert all(row.milliseconds > 0 and row.agreement > 0.9 for row in report.rows)


def test_accumulators_are_swept_by_recipes_and_of_scaled_types():
    half = {"base": "int8-channel", "name": "half", "accumulators": "float16"}
    report = graft.sweep(
        convolutions(), ["mxfp8e4m3"], {"x": X[:4]}, shapes={"x": (1, 3, 12, 12)}, recipes=["int8-channel", half],
        accumulate="bfloat16", threads=1,
    )  # fmt: skip
    _, blocks, exact, found = report.rows
    assert blocks.output.snr_db != pytest.approx(
        compare(convolutions(), quantize(convolutions(), "mxfp8e4m3"), {"x": X[:4]}).snr_db, abs=1e-3
    )
    assert found.output.snr_db != exact.output.snr_db
    assert [row.layer for row in found.layers] == [row.layer for row in exact.layers]


def test_layers_have_the_errors_of_the_comparison(report):
    wanted = compare(convolutions(), quantize(convolutions(), "int8-channel", {"x": X}), {"x": X}).layers
    found = report.rows[2].layers
    assert [row.layer for row in found] == [row.layer for row in wanted]
    np.testing.assert_allclose([row.snr_db for row in found], [row.snr_db for row in wanted], atol=0.5)
    np.testing.assert_allclose([row.underflowed for row in found], [row.underflowed for row in wanted], rtol=0.02)


def test_sizes_count_codes_scales_and_what_stays_in_floats(report):
    row = report.rows[2]
    bits = sum(8 * count for count in WEIGHTS.values()) + sum(32 * count for count in CHANNELS.values())
    assert row.weight_bits == pytest.approx(bits / sum(WEIGHTS.values()))
    assert (row.weight_bytes, row.activation_bits) == (-(-bits // 8), 8)
    mixed = report.rows[3]
    assert mixed.weight_bytes == -(-(bits + 40 * 24 - 5 * 32) // 8)
    in_floats = INPUTS["c1"] + INPUTS["fc"]
    assert mixed.activation_bits == pytest.approx(8 + 24 * in_floats / sum(INPUTS.values()))


def test_scaled_types_stand_beside_them_with_the_bits_of_their_scales():
    types = ["mxfp8e4m3-floor", "mxfp8e4m3"]
    _, row, other = graft.sweep(convolutions(), types, {"x": X[:4]}, shapes={"x": (1, 3, 12, 12)}, threads=1).rows
    assert (row.type, row.output.snr_db > 20) == ("mxfp8e4m3-floor", True)
    assert (other.weight_bits, other.output.snr_db > row.output.snr_db) == (row.weight_bits, True)
    # A block of c1 has 3 channels, one of c3 and fc 8; c2 is depthwise and stays.
    bits = WEIGHTS["c1"] * (8 + 8 / 3) + (WEIGHTS["c3"] + WEIGHTS["fc"]) * (8 + 8 / 8) + WEIGHTS["c2"] * 32
    assert row.weight_bytes == -(-round(bits) // 8)
    wanted = compare(convolutions(), quantize(convolutions(), types[0]), {"x": X[:4]}).layers
    assert [layer.layer for layer in row.layers] == ["c1", "c3", "fc"]
    assert [layer.saturated for layer in row.layers] == [layer.saturated for layer in wanted]
    assert row.saturated > other.saturated == 0


def test_other_data_may_calibrate():
    small = {"x": X[:2] / 100}
    found = graft.sweep(convolutions(), [], {"x": X[:2]}, shapes={"x": (1, 3, 12, 12)}, recipes=["int8"],
                        calibration=small, threads=1).rows[1]  # fmt: skip
    assert found.saturated > 100
    assert found.output.snr_db < 10


def test_labels_stand_beside_the_data_or_among_them_and_a_limit_takes_whole_batches():
    shapes, labels = {"x": (2, 3, 12, 12)}, np.arange(24) % 5
    beside = graft.sweep(convolutions(), ["bfloat16"], {"x": X}, labels, shapes=shapes, limit=7, threads=1)
    among = graft.sweep(convolutions(), ["bfloat16"], [{"x": X, "labels": labels}], shapes=shapes, limit=8, threads=1)
    assert (beside.inputs, beside.labelled) == (among.inputs, among.labelled) == (4, True)
    assert [row.accuracy for row in beside.rows] == [row.accuracy for row in among.rows]
    with pytest.raises(RecipeError, match="there are 3 labels for 24 rows of data; give one label for each row"):
        graft.sweep(convolutions(), ["bfloat16"], {"x": X}, labels[:3], shapes=shapes)
    with pytest.raises(DatatypeError, match="labels are given without data"):
        graft.sweep(convolutions(), ["bfloat16"], labels=labels, shapes=shapes)


def test_an_unknown_recipe_is_refused_before_anything_runs():
    with pytest.raises(RecipeError, match="no recipe is called 'int9'; did you mean 'int8'"):
        graft.sweep(convolutions(), [], recipes=["int9"])
