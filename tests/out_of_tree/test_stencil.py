"""A C library of a vendor's, called by a plugin outside the tree: compiled, planned, and run beside the built-in."""

import ctypes
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.core.reject import Reject
from graft.errors import GraftError
from graft.plugins.registry.manager import PluginManager
from tests.plugins.distributions import install_project

PROJECT = Path(__file__).parent / "stencil"
NATIVE = PROJECT / "graft_stencil" / "native"
SONAME = "libgraftstencil.so.1"


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A manager with the plugin installed, the library where the system finds it."""
    command = ["cc", "-shared", "-fPIC", "-O2", f"-Wl,-soname,{SONAME}", "-o", str(tmp_path / SONAME)]
    subprocess.run([*command, str(NATIVE / "stencil.c")], check=True)
    ctypes.CDLL(str(tmp_path / SONAME))  # from now on found by its soname, as an installed one is
    monkeypatch.setenv("CPATH", str(NATIVE))
    install_project(tmp_path, monkeypatch, PROJECT)
    yield PluginManager()
    for name in ("graft_stencil.backend", "graft_stencil"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def model(depth: int = 4) -> onnx.ModelProto:
    weights = ", ".join(str(value % 9) for value in range(2 * depth))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[3,{depth}] x) => (float[3,2] y) <float[{depth},2] w = {{{weights}}}>
    {{ a = Relu(x) t = MatMul(a, w) r = Relu(t) y = Sqrt(r) }}"""
    return onnx.parser.parse_model(text)


def test_a_model_is_compiled_across_the_library_and_the_built_in_compiler(manager):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    program = graft.compile(model(), ["stencil", "llvm"], manager=manager, strict=True, cache=False)
    assert [module.kind for module in program.description.modules] == ["c_source", "native"]
    assert np.allclose(program(x), graft.compile(model(), ["llvm"], cache=False)(x), rtol=1e-6)


def test_the_plan_says_why_a_node_is_not_the_librarys(manager):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (double[2,2] x) => (double[2,2] y) { y = Relu(x) }'
    (placement,) = graft.plan(onnx.parser.parse_model(text), ["stencil", "reference"], manager=manager).placements
    assert dict(placement.reasons) == {"stencil": Reject("dtype", "float32 only, got float64")}


def test_what_the_library_refuses_ends_the_run(manager):
    program = graft.compile(model(5000), ["stencil", "llvm"], manager=manager, strict=True, cache=False)
    with pytest.raises(GraftError) as caught:
        program(np.zeros((3, 5000), np.float32))
    assert caught.value.message == (
        "node 't', 'r': function 'stencil_0_1' of module 'stencil_0' (kind 'c_source', plugin 'stencil'): "
        "stencil_matmul returned 1"
    )
