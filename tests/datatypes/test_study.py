"""The study of a model in many formats: names, measures, the report and its page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.passes.normalize import normalize
from graft.datatypes.conversion import convert
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.study import (
    Errors,
    LayerRow,
    SweepReport,
    TypeRow,
    in_float64,
    layers_of,
    listed,
    type_named,
    with_layers,
)
from graft.datatypes.study_page import page
from graft.errors import DatatypeError

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def held_out() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The images that training never saw, by scikit-learn."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, np.newaxis]
    _, test, _, labels = train_test_split(images, digits.target, test_size=0.2, random_state=0, stratify=digits.target)
    return {"image": test}, labels


@pytest.fixture(scope="module")
def report() -> SweepReport:
    data, labels = held_out()
    return graft.sweep(DIGITS, ["posit8", "posit16", "float8e4m3"], data, labels, limit=60, threads=1)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("posit16", "custom[posit]16"),
        ("bfloat16", "custom[bfloat]16"),
        ("float8e4m3", "custom[float8e4m3fn]8"),
        ("float8e5m2fnuz", "custom[float8e5m2fnuz]8"),
        ("posit_es1_16", "custom[posit_es1]16"),
        ("custom[fixed]32", "custom[fixed]32"),
    ],
)
def test_short_names_stand_for_types(name, dtype):
    assert type_named(name) == dtype


def test_an_unknown_short_name_is_answered_with_the_nearest():
    with pytest.raises(DatatypeError) as caught:
        type_named("bfloat6")
    assert caught.value.message == (
        "no datatype is called 'bfloat6'; did you mean 'bfloat16'; or write custom[name]bits"
    )


def test_the_list_has_the_facts_of_every_type():
    rows = {row.name: row for row in listed()}
    assert (rows["float8e4m3fn"].largest, rows["float8e4m3fn"].smallest) == (448.0, 2.0**-9)
    assert (rows["posit16"].largest, rows["posit16"].epsilon) == (2.0**56, 2.0**-11)
    assert rows["bfloat16"].epsilon == 2.0**-7


def test_a_datatype_with_lowerings_only_is_listed_without_numbers():
    registry = DatatypeRegistry()
    registry.register("takum", widths=(16,), owner="plugin 'takum'")
    (row,) = listed(registry)
    assert (row.name, row.type, row.largest, row.owner) == ("takum16", "custom[takum]16", None, "plugin 'takum'")


def test_errors_are_those_of_the_definition():
    errors = Errors()
    actual = np.array([1.0, 8.0, 0.0, np.inf, np.inf, 3.0, -8.0])
    exact = np.array([1.5, 20.0, 1e-9, 9.0, np.inf, np.nan, -8.0])
    errors.add(actual, exact, largest=8.0, smallest=0.5)
    assert (errors.max_abs, errors.max_rel) == (12.0, 1.0)
    assert (errors.saturated, errors.underflowed, errors.invalid, errors.elements) == (3, 1, 0, 7)
    signal, noise = 1.5**2 + 20.0**2 + 8.0**2 + 1e-18, 0.5**2 + 12.0**2 + 1e-18
    assert errors.snr_db == pytest.approx(10 * np.log10(signal / noise))


@pytest.mark.parametrize(("actual", "exact"), [(np.nan, 1.0), (np.inf, 1.0), (-np.inf, np.inf), (1.0, -np.inf)])
def test_a_result_that_is_no_number_where_another_should_be_leaves_no_signal(actual, exact):
    errors = Errors()
    errors.add(np.array([2.0, actual], np.float32), np.array([2.0, exact]), largest=np.inf, smallest=0.0)
    assert (errors.invalid, errors.saturated, errors.snr_db) == (1, 0, -np.inf)


def test_a_model_in_float64_computes_as_float32_does_and_more_precisely():
    model = graft.load(DIGITS).clone()
    normalize(model)
    image = np.random.default_rng(0).uniform(0, 1, (1, 1, 8, 8))
    wide = graft.compile(in_float64(model), ["llvm"], threads=1)(image)
    narrow = graft.compile(model, ["llvm"], threads=1)(image.astype(np.float32))
    assert wide.dtype == np.float64
    assert 0 < np.max(np.abs(wide - narrow)) < 1e-4


def test_in_float64_casts_to_floats_of_any_width_are_to_float64_and_others_stay():
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) {
        a = Cast <to = 10> (x) b = Cast <to = 16> (a) c = Cast <to = 6> (b) y = Cast <to = 1> (c) }"""
    wide = in_float64(graft.load(onnx.parser.parse_model(text)))
    assert [node.attributes["to"].value for node in wide.graph] == [11, 11, 6, 11]
    assert [str(value.dtype) for value in (*wide.graph.inputs, *wide.graph.outputs)] == ["DOUBLE", "DOUBLE"]


def test_observing_layers_changes_no_result():
    image = np.random.default_rng(1).uniform(0, 1, (1, 1, 8, 8)).astype(np.float32)
    converted = convert(graft.load(DIGITS), "custom[posit]16")
    layers = [name for name, _ in layers_of(converted)]
    observed, names = with_layers(converted, layers)
    plain = graft.compile(converted, ["llvm"], threads=1).run({"image": image})
    seen = graft.compile(observed, ["llvm"], threads=1).run({"image": image})
    assert np.array_equal(plain["logits"], seen["logits"])
    assert list(names) == layers
    assert np.array_equal(seen[names["logits"]], plain["logits"].astype(np.float64))
    ir.to_proto(observed)


def test_a_sweep_measures_accuracy_and_every_layer(report):
    assert [row.name for row in report.rows] == ["float32", "posit8", "posit16", "float8e4m3"]
    assert (report.inputs, report.labelled) == (60, True)
    _, posit8, posit16, float8 = report.rows
    assert posit16.agreement == 1.0
    assert posit16.accuracy >= 0.95
    assert posit16.output.snr_db > posit8.output.snr_db + 30
    assert [layer.operator for layer in posit16.layers].count("Conv") == 3
    assert all(layer.snr_db > 40 for layer in posit16.layers)
    assert float8.underflowed > 0
    assert posit8.underflowed == 0


def row(name: str, bits: float, accuracy: float, snr: float) -> TypeRow:
    output = LayerRow("y", "output", 0.0, 0.0, snr, 0, 0, 0, 1)
    return TypeRow(name, name, accuracy, 1.0, output, 1.0, 1.0, weight_bits=bits)


def test_the_front_has_what_none_beats_at_its_cost():
    rows = (
        row("a", 32, 0.9, 100),
        row("b", 8, 0.9, 40),
        row("c", 8, 0.9, 30),
        row("d", 4, 0.8, 50),
        row("e", 5, 0.7, 60),
    )
    found = SweepReport("m", 1, True, "each", rows).front(lambda one: one.weight_bits)
    assert [one.name for one in found] == ["d", "b", "a"]


def test_bits_of_a_type_are_those_of_what_computes_in_it():
    data, _ = held_out()
    found = graft.sweep(DIGITS, ["posit8"], data, limit=2, threads=1, keep=["conv*"]).rows
    assert (found[0].weight_bits, found[0].weight_bytes) == (32, 47376 * 4)
    in_posits = 64 * 512 + 64 * 10
    assert found[1].weight_bytes == in_posits + (47376 - in_posits) * 4


def test_the_report_is_json(report):
    assert json.loads(json.dumps(report.to_json()))["rows"][2]["type"] == "custom[posit]16"


def test_the_page_stands_alone_and_shows_every_type_and_layer(report):
    text = page(report)
    assert "src=" not in text
    assert "href=" not in text
    assert "http" not in text
    for row in report.rows:
        assert f"<td>{row.name}</td>" in text
        for layer in row.layers:
            assert f"<td>{layer.layer}</td>" in text
    bars, *fronts, lines = (drawing for drawing in drawings(text) if drawing.get("role") == "img")
    assert [len(front.findall("circle")) for front in fronts] == [4, 4]
    by_bits = {row.name: row.weight_bits for row in report.front(lambda row: row.weight_bits)}
    assert len(fronts[0].find("polyline").get("points").split()) == len(by_bits)
    assert list(by_bits.values()) == sorted(by_bits.values())
    assert len(bars.findall("rect")) == 4
    assert len(lines.findall("polyline")) == 4
    assert len(lines.findall("circle")) == sum(len(row.layers) for row in report.rows)


def drawings(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(f"<svg{part.split('</svg>')[0]}</svg>") for part in text.split("<svg")[1:]]


def test_lines_of_many_types_differ_and_are_those_of_the_key(report):
    many = replace(report, rows=report.rows * 6)
    *_, lines = plots = drawings(page(many))
    strokes = [(line.get("stroke"), line.get("stroke-dasharray")) for line in lines.findall("polyline")]
    keys = [drawing[0] for drawing in plots if drawing.get("role") is None]
    assert len(set(strokes)) == len(strokes) == 24
    assert [(key.get("stroke"), key.get("stroke-dasharray")) for key in keys] == strokes
