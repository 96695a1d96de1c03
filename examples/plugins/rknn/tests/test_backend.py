"""The backend: what float32 becomes, calibration, what goes to a board, versions of the toolkit."""

import io
import json
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft_rknn import toolkit
from graft_rknn.backend import Rknn
from graft_rknn.calibration import values_of

RNG = np.random.default_rng(0)
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,8,8] x) => (float[1,3] y)
{ [conv] a = Conv<pads=[1,1,1,1]>(x, w) [relu] b = Relu(a) [pool] c = GlobalAveragePool(b) [flat] d = Flatten(c)
  [dense] e = Gemm<transB=1>(d, v) [y] y = Sigmoid(e) }"""


def network():
    model, rng = onnx.parser.parse_model(NETWORK), np.random.default_rng(1)
    for name, shape in (("w", (6, 4, 3, 3)), ("v", (3, 6))):
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def images(count):
    return RNG.normal(size=(count, 1, 4, 8, 8)).astype(np.float32)


def taken(plan):
    return {row.node for row in plan.placements if row.backend == "rknn"}


def test_float32_is_refused_until_the_user_says_what_becomes_of_it():
    reasons = graft.plan(network(), ["rknn", "llvm"])["conv"].reasons
    assert str(reasons["rknn"]) == (
        "dtype: the NPU computes in float16 or int8: precision=f16, or precision=int8,calibration=FILE.npz, allows that"
    )
    program = graft.compile(network(), ["rknn:precision=f16", "llvm"], strict=True)
    assert len(taken(graft.Plan.of(program))) == 6
    x = images(1)[0]
    np.testing.assert_allclose(program(x), graft.compile(network(), ["reference"])(x), atol=2e-3)


def test_a_network_is_quantised_by_the_user_s_data(tmp_path):
    model, data = network(), images(16)
    np.savez(tmp_path / "data.npz", x=data)
    program = graft.compile(
        model, [Rknn(precision="int8", calibration=str(tmp_path / "data.npz")), "llvm"], strict=True
    )
    (module,) = program.description.modules
    program.save(tmp_path / "m.graft")
    found = np.concatenate([graft.runtime.load(tmp_path / "m.graft")(one) for one in data])
    expected = np.concatenate([graft.compile(model, ["reference"])(one) for one in data])
    assert 0 < np.abs(found - expected).max() < 0.05
    assert len(np.unique(found)) <= 256
    assert len(module.data) > data.nbytes  # the simulator quantises again where the program is loaded


def test_a_region_without_data_goes_to_the_next_backend_and_the_reason_says_what_writes_them(tmp_path):
    model, data = network(), images(4)
    np.savez(tmp_path / "data.npz", x=data)
    options = f"rknn:precision=int8,calibration={tmp_path / 'data.npz'}"
    policy = graft.Policy(exclude_node=["rknn:relu"])
    reason = graft.Plan.of(graft.compile(model, [options, "llvm"], policy=policy))["pool"].reasons["rknn"]
    assert reason.text == f"{tmp_path / 'data.npz'} has no values of b; graft_rknn.calibration writes them"
    onnx.save(model, tmp_path / "m.onnx")
    command = ["m.onnx", "data.npz", "values.npz"]
    subprocess.run([sys.executable, "-m", "graft_rknn.calibration", *command], cwd=tmp_path, check=True)
    options = f"rknn:precision=int8,calibration={tmp_path / 'values.npz'}"
    assert taken(graft.Plan.of(graft.compile(model, [options, "llvm"], policy=policy))) == {
        "conv", "pool", "flat", "dense", "y",
    }  # fmt: skip


def test_values_inside_a_model_are_those_that_the_reference_computes():
    model, data = network(), images(3)
    values = values_of(model, {"x": data})
    assert {"x", "a", "b", "c", "d", "e", "y"} <= values.keys()
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    padded = np.pad(data[2, 0], ((0, 0), (1, 1), (1, 1)))
    assert np.isclose(values["a"][2, 0, 5, 2, 3], (padded[:, 2:5, 3:6] * w[5]).sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": "int8"}, "belong together"),
        ({"calibration": "d.npz"}, "belong together"),
        ({"optimise": 4}, "is 4, not 0 to 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, text):
    with pytest.raises(graft.GraftError, match=text):
        Rknn(**options)


@pytest.mark.parametrize(("number", "text"), [("1.6.0", "too old"), ("3.1.0", "newer than")])
def test_a_toolkit_of_another_time_says_what_to_install(number, text, monkeypatch):
    monkeypatch.setattr(toolkit, "version_of", lambda name: number)
    with pytest.raises(RuntimeError, match=rf"rknn-toolkit2 {number} is {text}.*; pip install 'rknn-toolkit2>=2.3,<3'"):
        toolkit.version()


def test_what_the_toolkit_refuses_is_said_with_what_it_printed():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float16[1,4,8,8] x) => (float16[1,4,8,8] y) { y = Mish(x) }'
    )
    backend = Rknn()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(graft.GraftError, match=r"raised RuntimeError in compile: \S*InvalidGraph: .* NoSuchOperator"):
        backend.ask("compile", model.SerializeToString(), {**backend.option_values(), "samples": []})


def test_a_board_loads_the_file_for_the_npu_by_the_small_toolkit(monkeypatch):
    """The calls that are made on a board, of a made-up toolkit: no board was at hand."""
    calls = []

    class Lite:
        def load_rknn(self, path):
            calls.append(Path(path).read_bytes())
            return 0

        def init_runtime(self):
            return 0

        def inference(self, inputs, data_format):
            calls.append(data_format)
            return [inputs[0] * 2]

    monkeypatch.setitem(sys.modules, "rknnlite", types.ModuleType("rknnlite"))
    monkeypatch.setitem(sys.modules, "rknnlite.api", types.SimpleNamespace(RKNNLite=Lite))
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w") as file:
        file.writestr("region.rknn", b"for the NPU")
        file.writestr("outputs.json", json.dumps(["float16"]))
    run = toolkit.load(blob.getvalue(), {"device": "board"})
    (result,) = run([np.ones((1, 2, 2, 2), np.float32)])
    assert result.dtype == np.float16
    assert (result == 2).all()
    assert calls == [b"for the NPU", ["nchw"]]
