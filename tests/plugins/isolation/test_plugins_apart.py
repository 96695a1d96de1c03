"""Plugins whose code runs in a process of its own while models are planned, compiled and run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.errors import PlanError, PluginError
from graft.plugins.registry.manager import PluginManager
from graft.runtime.isolation.program import IsolatedProgram
from tests.plugins.distributions import install

SOURCE = '''
import ctypes, os, time
import numpy as np
import graft
from graft.patterns import is_op, wildcard

MODE = "{mode}"
if MODE == "import":
    ctypes.string_at(0)
print("noise of a vendor's")

class Npu(graft.JsonBackend):
    """Takes MatMul with Relu, MatMul and Add, and misbehaves."""
    name = "apart"

    @graft.supports(is_op("Relu")(is_op("MatMul")(wildcard().named("a"), wildcard().named("b"))), name="apart.dense")
    def dense(self, match):
        if MODE == "check":
            ctypes.string_at(0)
        return match["b"].is_constant or graft.Reject("constant-required", "b is computed at run time")

    @graft.supports("MatMul", "Add")
    def one(self, node):
        if MODE == "supports":
            time.sleep(1000)
        return node.dtype == "float32" or graft.Reject("dtype", f"float32 only, got {{node.dtype}}")

    def compile(self, region, options):
        if MODE == "compile":
            os._exit(4)
        return super().compile(region, options)

    def load(self, graph, constants):
        def run(inputs):
            if MODE == "run":
                ctypes.string_at(0)
            return graph.run(inputs, constants, kernel)
        return run

KERNELS = {{"apart.dense": lambda a, b: np.maximum(a @ b, 0), "MatMul": lambda a, b: a @ b, "Add": lambda a, b: a + b}}

def kernel(node, arrays):
    return [KERNELS[node.name](*arrays)]
'''
MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[n,2] x, float[2,2] v) => (float[n,2] y)
    <float[2,2] w = {1, -2, 3, 4}> {
      m = MatMul(x, w) r = Relu(m) k = MatMul(r, v) q = Relu(k) s = Sin(q) y = Add(s, s) }"""
)
X, V = np.array([[1, 2], [3, -4]], np.float32), np.array([[1, 0.5], [-1, 2]], np.float32)
LIMITS = graft.Isolation(seconds=3, load_seconds=30)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function that installs the plugin in one of its modes."""
    return lambda mode="": install(
        tmp_path, monkeypatch, "graft-apart", "1.0", {"apart": "apart_npu"}, apart_npu=SOURCE.format(mode=mode)
    )


def expected() -> np.ndarray:
    s = np.sin(np.maximum(np.maximum(X @ np.array([[1, -2], [3, 4]], np.float32), 0) @ V, 0))
    result: np.ndarray = s + s
    return result


def compiled(**options: object) -> graft.Program:
    apart = {"apart": LIMITS}
    manager = PluginManager(isolation=apart)
    return graft.compile(MODEL, ["apart", "llvm"], isolation=apart, threads=1, manager=manager, **options)  # type: ignore[arg-type]


def test_isolated_plugin_plans_compiles_and_computes_what_it_does_in_this_process(
    plugin: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin()  # type: ignore[operator]
    apart = compiled()
    assert isinstance(apart, IsolatedProgram)
    assert "apart_npu" not in sys.modules
    assert capfd.readouterr().out == ""
    np.testing.assert_allclose(apart(X, V), expected(), rtol=1e-5)
    apart.save(tmp_path / "apart.graft")
    loaded = graft.runtime.load(tmp_path / "apart.graft")
    assert isinstance(loaded, IsolatedProgram)
    np.testing.assert_array_equal(loaded(X, V), apart(X, V))
    assert "apart_npu" not in sys.modules
    here = graft.compile(MODEL, ["apart", "llvm"], threads=1, manager=PluginManager())
    assert "apart_npu" in sys.modules
    del sys.modules["apart_npu"]
    assert here.description.metadata["plan"] == apart.description.metadata["plan"]
    np.testing.assert_array_equal(here(X, V), apart(X, V))


def test_import_that_crashes_is_an_error(plugin: object) -> None:
    plugin("import")  # type: ignore[operator]
    with pytest.raises(PluginError, match="plugin 'apart': its process was killed by SIGSEGV in its import"):
        compiled()


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        ("check", "its process was killed by SIGSEGV in the check of 'apart.dense'"),
        pytest.param(
            "supports", "its process did not answer within 3 s and was stopped in supports", marks=pytest.mark.slow
        ),
        pytest.param(
            "compile", "its process ended with status 4 in compile of region 'apart_0'", marks=pytest.mark.slow
        ),
    ],
)
def test_plugin_that_is_lost_while_a_model_is_compiled_leaves_it_to_the_others(
    plugin: object, caplog: pytest.LogCaptureFixture, mode: str, fault: str
) -> None:
    plugin(mode)  # type: ignore[operator]
    np.testing.assert_allclose(compiled()(X, V), expected(), rtol=1e-5)
    assert fault in caplog.text


def test_plugin_that_is_lost_is_an_error_with_strict(plugin: object) -> None:
    plugin("check")  # type: ignore[operator]
    with pytest.raises(PluginError, match=r"its process was killed by SIGSEGV in the check of 'apart\.dense'"):
        compiled(strict=True)


def test_region_that_crashes_is_compiled_anew_and_the_call_goes_on(plugin: object) -> None:
    plugin("run")  # type: ignore[operator]
    program = compiled()
    with pytest.warns(RuntimeWarning) as caught:
        np.testing.assert_allclose(program(X, V), expected(), rtol=1e-5)
    assert any("is compiled anew by the built-in compiler" in str(one.message) for one in caught)
    assert isinstance(program, IsolatedProgram)
    assert program.replaced
    assert "apart_npu" not in sys.modules


def test_name_that_is_no_backend_is_refused() -> None:
    with pytest.raises(PlanError, match="isolation names 'npu', which is none of the backends llvm"):
        graft.compile(MODEL, "llvm", isolation={"npu": "process"})


DIFFERENTIABLE = """
import ctypes
import graft
from graft.patterns import Composite, is_op, wildcard

def twofold(f):
    assert f.extents(f.input(0)) == [3, 4]
    slope = f.where(f("Greater", f.result(), f.like(0.0, f.result())), f.result())
    gradient = f.scaled(f("Mul", f.gradient, slope), f.attribute("alpha") * f.contents(f.input(2)).item())
    return [f("MatMul", gradient, f.swapped(f.input(1))), f("MatMul", f.swapped(f.input(0)), gradient)]

class Npu(graft.JsonBackend):
    name = "apart"
    product = is_op("MatMul")(wildcard(), wildcard())
    patterns = (Composite("apart.layer", is_op("LeakyRelu")(is_op("Mul")(product, wildcard())), vjp={rule}),)
"""
LAYER = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[3,4] x, float[4,2] w) => (float loss) <float[1] two = {2}> {
      m = MatMul(x, w) d = Mul(m, two) r = LeakyRelu<alpha = 0.5>(d) loss = ReduceSum<keepdims = 0>(r) }"""
)


@pytest.fixture
def differentiable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., graft.Backend]:
    """A function that installs a plugin with a derivative, and gives its backend in a process of its own."""

    def installed(rule: str, how: graft.Isolation = LIMITS) -> graft.Backend:
        source = DIFFERENTIABLE.format(rule=rule)
        install(tmp_path, monkeypatch, "graft-apart", "1.0", {"apart": "apart_npu"}, apart_npu=source)
        sys.modules.pop("apart_npu", None)
        return PluginManager(isolation={"apart": how}).backends(["apart"])[0]

    return installed


@pytest.mark.parametrize("sandbox", [False, True])
def test_derivative_of_a_composite_is_written_in_the_plugins_process(
    differentiable: Callable[..., graft.Backend], sandbox: bool
) -> None:
    backend = differentiable("twofold", replace(LIMITS, sandbox=sandbox))
    model = graft.grad(LAYER, wrt=["x", "w"], backends=[backend])
    assert "apart_npu" not in sys.modules
    x, w = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((3, 4), (4, 2)))
    found = graft.compile(model, ["reference"], cache=False).run({"x": x, "w": w})
    gradient = (x @ w > 0).astype(np.float32)
    np.testing.assert_allclose(found["x_grad"], gradient @ w.T, rtol=1e-5)
    np.testing.assert_allclose(found["w_grad"], x.T @ gradient, rtol=1e-5)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("lambda f: [1 / 0]", "backend 'apart': apart.layer (node 'r'): its derivative raised ZeroDivisionError: div"),
        ("lambda f: [ctypes.string_at(0)]", "its process was killed by SIGSEGV in the derivative of 'apart.layer'"),
        ("lambda f: [f.gradient]", "backend 'apart': apart.layer (node 'r'): its derivative is float[3,2] for 'x'"),
    ],
)
def test_wrong_derivative_in_another_process_is_named(
    differentiable: Callable[..., graft.Backend], rule: str, fault: str
) -> None:
    with pytest.raises(PluginError, match=re.escape(fault)):
        graft.grad(LAYER, wrt=["x", "w"], backends=[differentiable(rule)])
