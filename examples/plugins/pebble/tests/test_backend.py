import os
import subprocess

import numpy as np
import onnx

import graft
from graft_pebble import library

LAYER = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,-2, 3,4, -5,6}, float[2] b = {0.5,-0.5}>
{ h = MatMul(x, w) s = Add(h, b) r = Relu(s) y = Softmax(r) }"""
X = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)


def test_a_layer_is_one_call_of_the_library():
    program = graft.compile(onnx.parser.parse_model(LAYER), ["pebble"])
    calls = [call.schedule["strategy"] for call in program.description.procedures[0].calls]
    assert calls == ["pebble: pebble_dense", "pebble: pebble_softmax"]


def test_a_layer_of_no_terms_is_zeros():
    header, body = '<ir_version: 10, opset_import: ["" : 21]>', "(float[3,2] y) { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(f"{header} g (float[3,0] x, float[0,2] w) => {body}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((0, 2), np.float32), "w"))
    program = graft.compile(model, ["pebble"], strict=True)
    np.testing.assert_array_equal(program(np.zeros((3, 0), np.float32)), np.zeros((3, 2), np.float32))


def test_the_plan_says_why_not():
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x, float[3] b) => (float[2,3] y) { y = Add(x, b) }'
    (row,) = graft.plan(onnx.parser.parse_model(text), ["pebble", "reference"]).placements
    assert row.reasons["pebble"] == graft.Reject("shape", "pebble_add has operands of one shape")


def test_a_c_program_calls_the_library_without_python(tmp_path):
    program = graft.compile(onnx.parser.parse_model(LAYER), ["pebble"])
    program.export_c_project(tmp_path / "project", {"x": X}, name="layer")
    (built,) = library.FOLDER.glob("_library*.so")
    for name in ("libpebble.so", library.SONAME):
        (tmp_path / name).symlink_to(built)
    flags = [f"CFLAGS=-O2 -I{library.FOLDER / 'native'}", f"LDFLAGS=-L{tmp_path}"]
    found = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        ["make", "-C", str(tmp_path / "project"), *flags, "check"], env=found, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
