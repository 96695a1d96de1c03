"""A sample of TOSA's conformance cases, and what they found."""

import numpy as np
import onnx
import pytest

import graft

pytest.importorskip("semver", reason="semver, which the generator of tosa-tools imports, is not installed")
pytest.importorskip("jsonschema", reason="jsonschema, which the generator of tosa-tools imports, is not installed")


@pytest.mark.parametrize(("name", "dtype"), [("argmax", "int8"), ("concat", "int16"), ("clamp", "int8")])
def test_cases_give_what_tosa_defines(name, dtype, tmp_path):
    from tosa_cases import make, outcome

    folders = make(tmp_path, name, dtype, 1)
    assert len(folders) >= 4
    assert {outcome(one, "u85-256") for one in folders} == {"right"}


def test_a_position_along_the_only_axis_is_no_scalar_of_tosa_s():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (int8[5] x) => (int64 y)
    <float s = {0.5}> { d = DequantizeLinear(x, s) y = ArgMax<axis=0, keepdims=0>(d) }""")
    program = graft.compile(model, ["ethosu", "reference"])
    assert {row.backend for row in graft.Plan.of(program).placements} == {"ethosu"}
    assert program(np.int8([3, -4, 9, 9, 1])) == 2


def test_what_stands_around_numbers_of_16_bits_has_16_bits():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (int16[2,3] x) => (int16[2,5] y)
    <int64[4] pads = {0,1,0,1}, int16 around = {6790}> { y = Pad(x, pads, around) }""")
    program, x = graft.compile(model, ["ethosu:accelerator=u85-256", "reference"]), np.int16([[1, -2, 3], [4, 5, 6]])
    assert {row.backend for row in graft.Plan.of(program).placements} == {"ethosu"}
    np.testing.assert_array_equal(program(x), np.pad(x, ((0, 0), (1, 1)), constant_values=6790))
