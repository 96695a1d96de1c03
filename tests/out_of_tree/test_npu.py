import importlib
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.reject import Reject
from graft.core.target import CompileOptions, Target
from graft.core.view import NodeView
from graft.plugins.manager import PluginManager
from tests.plugins.distributions import install_project
from tests.plugins.regions import region_of

PROJECT = Path(__file__).parent / "npu"
OPTIONS = CompileOptions(Target("x86_64", "x86-64"))
MATMUL_RELU = ("npu.matmul_relu", "(a, b) => (c) { t = MatMul(a, b) c = Relu(t) }")


@pytest.fixture
def manager(tmp_path, monkeypatch):
    install_project(tmp_path, monkeypatch, PROJECT)
    yield PluginManager()
    for name in ("graft_npu.npu", "graft_npu"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def npu(manager):
    return manager.backends(["npu"])[0]


def matmul(dtype: ir.DataType) -> NodeView:
    inputs = [ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape((2, 2))) for name in "ab"]
    return NodeView(ir.Node("", "MatMul", inputs, name="mm"))


def test_the_plugin_is_listed_from_its_metadata_alone(manager):
    (source,) = (one for one in manager.sources() if one.name == "npu")
    assert (source.provider, source.value) == ("graft-npu 0.1", "graft_npu.npu")
    assert "graft_npu.npu" not in sys.modules


def test_ten_lines_make_a_backend(npu):
    assert [composite.name for composite in npu.patterns] == ["npu.matmul_relu"]
    assert npu.supports(matmul(ir.DataType.FLOAT)) is True
    assert npu.supports(matmul(ir.DataType.DOUBLE)) == Reject("dtype", "float32 only, got float64")


def test_a_region_runs_on_the_engine_of_the_plugin(manager, npu):
    weight = np.array([[1, -1], [2, 1]], np.float32)
    region = region_of(
        "t = graft.composite.c0(x, w) y = MatMul(t, w)",
        {"x": (1, 2)},
        constants={"w": weight},
        composites={"c0": MATMUL_RELU},
        outputs={"y": (1, 2)},
    )
    module = npu.compile(region, OPTIONS)
    assert (module.plugin, module.install) == ("npu", "pip install graft-npu")
    run = manager.module_loaders()[module.kind].load(module.name, module.data, module.constants)[module.name]
    x = np.array([[1, -3]], np.float32)
    assert run([x])[0].tolist() == (np.maximum(x @ weight, 0) @ weight).tolist()
