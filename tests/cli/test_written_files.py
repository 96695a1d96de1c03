"""Where verbs write: devices and pipes stay, the standard output holds nothing but what was asked for."""

import io
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft as graft_package

GRAFT = (sys.executable, "-m", "graft")
WRITERS = [
    ("plan", "-o"),
    ("plan", "--html"),
    ("compile", "-o"),
    ("report", "-o"),
    ("profile", "-o"),
    ("datatypes convert", "-o"),
    ("datatypes sweep", "--html"),
    ("quantize", "-o"),
]
MORE = {
    "datatypes convert": ("--type", "posit16"),
    "datatypes sweep": ("--types", "posit16"),
    "quantize": ("--recipe", "int8-weights"),
}


def arguments(verb: str, model: Path) -> list[object]:
    more = MORE.get(verb, ("-b", "reference"))
    return [*verb.split(), model, *more]


@pytest.mark.parametrize(("verb", "option"), WRITERS)
def test_a_device_stays_a_device(graft, model, verb, option):
    outcome = graft(*arguments(verb, model), option, "/dev/null")
    assert outcome.code == 0, outcome.err
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert outcome.out != ""


@pytest.mark.parametrize(("verb", "option"), WRITERS)
def test_a_full_device_is_a_failure(graft, model, verb, option):
    outcome = graft(*arguments(verb, model), option, "/dev/full")
    assert outcome.code == 1
    assert "'/dev/full': No space left on device; a part of it may have been written" in outcome.err


@pytest.mark.parametrize(("verb", "option"), WRITERS)
def test_a_missing_folder_is_a_failure(graft, model, tmp_path, verb, option):
    outcome = graft(*arguments(verb, model), option, tmp_path / "none" / "file")
    assert outcome.code == 1
    assert f"'{tmp_path}/none/file': there is no folder '{tmp_path}/none', make it first" in outcome.err


def test_an_artifact_on_the_standard_output_is_whole(model, tmp_path):
    with (tmp_path / "out.graft").open("wb") as file:
        command = [*GRAFT, "compile", model, "-b", "reference", "-o", "/dev/stdout"]
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True, text=True)
    assert done.stderr.startswith("reference 3/3 ops")
    program = graft_package.runtime.load(tmp_path / "out.graft")
    assert program(np.ones((1, 4), np.float32)).shape == (1, 2)


def test_a_plan_on_the_standard_output_is_nothing_else(model):
    command = [*GRAFT, "plan", model, "-b", "reference", "-o", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout)
    assert done.stderr.startswith("reference 3/3 ops")


def test_an_output_goes_into_a_pipe_that_waits_for_it(graft, model, tmp_path):
    (tmp_path / "outputs").mkdir()
    pipe = tmp_path / "outputs" / "y.npy"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    outcome = graft("run", model, "-b", "reference", "--output", tmp_path / "outputs")
    reader.join(10)
    assert outcome.code == 0, outcome.err
    assert np.load(io.BytesIO(got[0])).shape == (1, 2)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_where_the_folder_of_outputs_should_be_is_a_failure(graft, model, tmp_path):
    outcome = graft("run", model, "-b", "reference", "--output", tmp_path / "file" / "deeper")
    assert outcome.code == 0
    (tmp_path / "other").touch()
    outcome = graft("run", model, "-b", "reference", "--output", tmp_path / "other" / "deeper")
    assert outcome.code == 1
    assert f"cannot make the folder '{tmp_path}/other/deeper' for outputs: Not a directory" in outcome.err


def test_intermediates_hold_the_weights_in_a_file_beside_them(graft, tmp_path):
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = onnx.helper.make_graph(nodes, "g", value[:1], value[1:], [onnx.numpy_helper.from_array(weight, "w")])
    opset = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(made, opset_imports=opset, ir_version=10), tmp_path / "model.onnx")
    folder = tmp_path / "stages"
    assert graft("compile", tmp_path / "model.onnx", "-b", "reference", "--keep-intermediates", folder).code == 0
    assert (folder / "01_normalized.onnx.data").stat().st_size >= weight.nbytes
    assert (folder / "01_normalized.onnx").stat().st_size < weight.nbytes
    kept = onnx.load(folder / "01_normalized.onnx")
    (tensor,) = kept.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight)
    onnx.checker.check_model(kept)
