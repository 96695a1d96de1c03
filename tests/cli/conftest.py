from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from graft.cli.main import main

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,4] x) => (float[1,2] y)
<float[4,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}>
{
    [mm] t = MatMul(x, w)
    [sig] s = Sigmoid(t)
    [act] y = Relu(s)
}
"""
SYMBOLIC = '<ir_version: 10, opset_import: ["" : 21]> g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }'
PLUGIN = """
import numpy as np
import graft

class Npu(graft.JsonBackend):
    name = "{name}"

    @graft.supports("MatMul")
    def matmul(self, node):
        return node.dtype == "float32" or graft.Reject("dtype", "float32 only")

    def load(self, graph, constants):
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [arrays[0] @ arrays[1]])
"""


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def graft(capsys):
    """Run the command line in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), printed.out, printed.err)

    return run


def saved(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def model(tmp_path):
    return saved(tmp_path / "model.onnx", MODEL)


@pytest.fixture
def symbolic(tmp_path):
    return saved(tmp_path / "symbolic.onnx", SYMBOLIC)


@pytest.fixture
def npu(tmp_path):
    """The path of a file with a backend `npu` that takes MatMul."""
    path = tmp_path / "npu.py"
    path.write_text(PLUGIN.format(name="npu"))
    return path


@pytest.fixture
def artifact(graft, model, tmp_path):
    path = tmp_path / "model.graft"
    assert graft("compile", model, "-o", path, "-b", "reference").code == 0
    return path
