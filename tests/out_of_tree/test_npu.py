import importlib
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions, target_named
from graft.core.reject import Reject
from graft.plugins.registry.manager import PluginManager
from tests.plugins.distributions import install_project
from tests.plugins.regions import region_of

PROJECT = Path(__file__).parent / "npu"
OPTIONS = CompileOptions(target_named("x86-64"))
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
    run = manager.module_loaders({module.plugin})[module.kind].load(module.name, module.data, module.constants)[
        module.name
    ]
    x = np.array([[1, -3]], np.float32)
    assert run([x])[0].tolist() == (np.maximum(x @ weight, 0) @ weight).tolist()


@pytest.fixture
def model(tmp_path):
    weights = ", ".join(str(value) for value in range(1, 9))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,4] x) => (float[1,2] y) <float[4,2] w = {{{weights}}}> {{ t = MatMul(x, w) y = Relu(t) }}"""
    return onnx.parser.parse_model(text)


def test_a_model_is_compiled_across_the_plugin_and_the_reference(manager, model):
    program = graft.compile(model, ["npu", "reference"], manager=manager)
    assert program(np.array([[1, 0, 0, -2]], np.float32)).tolist() == [[0, 0]]
    assert program(np.array([[1, 1, 0, 0]], np.float32)).tolist() == [[4, 6]]
    assert [module.kind for module in program.description.modules] == ["json:npu"]


def test_a_backend_object_needs_no_entry_point(manager, npu, model):
    program = graft.compile(model, [type(npu.backend)()], manager=PluginManager(sources=[]))
    assert program(np.array([[1, 1, 0, 0]], np.float32)).tolist() == [[4, 6]]


def test_the_plan_says_why_a_node_is_not_the_plugins(manager):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (double[2,2] x) => (double[2,2] y) { y = MatMul(x, x) }'
    plan = graft.plan(onnx.parser.parse_model(text), ["npu", "reference"], manager=manager)
    (placement,) = plan.placements
    assert placement.backend == "reference"
    assert dict(placement.reasons) == {"npu": Reject("dtype", "float32 only, got float64")}
