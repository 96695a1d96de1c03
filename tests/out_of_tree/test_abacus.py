"""A made-up machine in a distribution of its own: a row, an emitter and a strategy; nothing in Graft knows it."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.target import host_target, target_named
from graft.plugins.registry.manager import PluginManager
from tests.plugins.distributions import install_project

PROJECT = Path(__file__).parent / "abacus"
RELU_OF_SUM = "t = Add(x, y) z = Relu(t)"
PRODUCT = "t = MatMul(x, w) z = Relu(t)"


@pytest.fixture
def manager(tmp_path, monkeypatch):
    install_project(tmp_path, monkeypatch, PROJECT)
    yield PluginManager()
    for name in [name for name in sys.modules if name.startswith("graft_abacus")]:
        sys.modules.pop(name)
    importlib.invalidate_caches()


def model(nodes: str, inputs: str = "float[3,7] x, float[3,7] y", result: str = "float[3,7] z") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({result}) {{ {nodes} }}'
    )


def compiled(manager: PluginManager, proto: onnx.ModelProto, *others: str) -> graft.Program:
    return graft.compile(proto, ["abacus", *others], manager=manager, cache=False, strict=not others)


def text_of(program: graft.Program) -> str:
    (module,) = program.description.modules
    assert (module.kind, module.plugin) == ("abacus", "abacus")
    return "\n".join(one["text"] for one in json.loads(module.data).values())


def strategies(program: graft.Program) -> list[str]:
    return [call.schedule["strategy"] for call in program.description.procedures[0].calls]


def test_its_machine_is_a_target_by_name(manager):
    assert target_named("abacus-4", manager.machines).machine.levels[0].count == 4


def test_it_generates_code_for_its_machine_alone(manager):
    abacus = manager.backends(["abacus"])[0]
    assert abacus.generates_code(manager.machines()["abacus-4"]) is True
    assert abacus.generates_code(target_named("x86-64-v3").machine) is False


def test_no_other_backend_takes_its_machine(manager):
    with pytest.raises(graft.GraftError) as caught:
        graft.compile(model(RELU_OF_SUM), ["llvm", "c_source"], target="abacus-4", manager=manager)
    assert caught.value.message == (
        "no backend generates code for target 'abacus-4'; llvm: it generates code for x86_64, aarch64, riscv64, "
        "wasm32, thumb, not for abacus; "
        f"c_source: it runs a compiler for {host_target().arch}, not for abacus; name one for that in CC"
    )


def test_its_strategy_binds_elementwise_loops_to_the_wires_of_the_row(manager):
    program = compiled(manager, model(RELU_OF_SUM))
    x, y = np.random.default_rng(0).standard_normal((2, 3, 7)).astype(np.float32)
    np.testing.assert_array_equal(program(x, y), np.maximum(x + y, 0))
    assert "in wires(4):" in text_of(program)
    assert strategies(program) == ["abacus.wires"]


def test_what_its_strategy_leaves_is_scheduled_by_grafts_for_a_machine_without_vectors(manager):
    program = compiled(manager, model(PRODUCT, "float[3,7] x, float[7,5] w", "float[3,5] z"))
    x, w = np.random.default_rng(1).standard_normal((2, 7, 7)).astype(np.float32)
    x, w = x[:3], np.ascontiguousarray(w[:, :5])
    np.testing.assert_allclose(program(x, w), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
    assert "abacus.wires" not in strategies(program)


def test_a_node_that_it_cannot_do_goes_to_the_next_backend(manager):
    program = compiled(manager, model("z = Floor(x)", "float[3,7] x"), "llvm")
    x = np.linspace(-2, 2, 21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_array_equal(program(x), np.floor(x))
    assert [module.plugin for module in program.description.modules] == ["llvm"]


def test_strictly_the_node_is_named(manager):
    with pytest.raises(graft.GraftError) as caught:
        compiled(manager, model("z = Floor(x)", "float[3,7] x"))
    assert caught.value.message == ("'z': function 'abacus_0_0_floor' has a Unary floor, which the abacus cannot do")
