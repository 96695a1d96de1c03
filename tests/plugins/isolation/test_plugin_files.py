"""Plugins that are files, ``--plugin FILE``: what they import beside them, and their modules in other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.errors import PlanError, PluginError
from graft.plugins.registry.manager import PluginManager
from graft.runtime.isolation.program import IsolatedProgram

KERNELS = "import os\nimport numpy as np\ndef relu(x):\n    {crash}\n    return np.maximum(x, np.float32(0))\n"
BACKEND = """
import graft
{imports}
class Npu(graft.JsonBackend):
    name = "{name}"
    @graft.supports("Relu")
    def relu(self, node): return True
    def load(self, graph, constants):
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [relu(*arrays)])
"""
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
FORMS = {
    "beside": ("{0}.py", "from {0}_kernels import relu"),
    "relative": ("{0}_package/inner/{0}.py", "from ..{0}_kernels import relu"),
    "absolute": ("{0}_package/{0}.py", "from {0}_package.{0}_kernels import relu"),
    "init": ("{0}/__init__.py", "from .{0}_kernels import relu"),
}


@pytest.fixture
def path_of_imports() -> Iterator[None]:
    """What a test adds to the modules and their path is taken away again."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "npu_" in name:
            del sys.modules[name]


def written(folder: Path, form: str, crash: str = "pass", name: str = "") -> Path:
    """Write a plugin called ``npu_FORM`` and return its file."""
    place, imports = (text.format(f"npu_{form}") for text in FORMS[form])
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    top = folder / Path(place).parts[0] if "/" in place else folder
    if top != folder:
        for one in {top, path.parent}:
            (one / "__init__.py").touch()
    (top / f"npu_{form}_kernels.py").write_text(KERNELS.format(crash=crash))
    path.write_text(BACKEND.format(imports=imports, name=name or f"npu_{form}"))
    return path


@pytest.mark.usefixtures("path_of_imports")
@pytest.mark.parametrize("form", FORMS)
def test_a_file_imports_what_lies_beside_it_and_what_its_package_has(form: str, tmp_path: Path) -> None:
    manager = PluginManager(sources=PluginManager().sources())
    assert manager.load_file(written(tmp_path, form)).name == f"npu_{form}"
    program = graft.compile(MODEL, [f"npu_{form}", "llvm"], threads=1, cache=False, strict=True, manager=manager)
    np.testing.assert_array_equal(program(X), -np.maximum(X, 0))


@pytest.mark.usefixtures("path_of_imports")
@pytest.mark.parametrize("form", ["beside", "relative"])
@pytest.mark.parametrize("compiling", [True, False])
def test_the_modules_of_a_file_run_in_a_process_of_their_own(form: str, compiling: bool, tmp_path: Path) -> None:
    how = {f"npu_{form}": graft.Isolation(compile=compiling, seconds=20)}
    manager = PluginManager(isolation=how)
    manager.load_file(written(tmp_path, form))
    program = graft.compile(MODEL, [*how, "llvm"], threads=1, cache=False, strict=True, isolation=how, manager=manager)
    assert isinstance(program, IsolatedProgram)
    np.testing.assert_array_equal(program(X), -np.maximum(X, 0))
    assert any(f"npu_{form}_kernels" in name for name in sys.modules) != compiling


def test_a_file_is_asked_in_a_process_and_its_modules_run_here(tmp_path: Path, path_of_imports: None) -> None:
    how = {"npu_beside": graft.Isolation(run=False)}
    manager = PluginManager(isolation=how)
    manager.load_file(written(tmp_path, "beside"))
    program = graft.compile(MODEL, [*how, "llvm"], threads=1, cache=False, strict=True, isolation=how, manager=manager)
    assert not isinstance(program, IsolatedProgram)
    np.testing.assert_array_equal(program(X), -np.maximum(X, 0))


def test_the_command_line_isolates_a_file_and_goes_on_behind_its_crash(tmp_path: Path) -> None:
    path = written(tmp_path, "beside", crash="os.abort()")
    (tmp_path / "model.onnx").write_bytes(MODEL.SerializeToString())
    words = ("--plugin", path.name, "--isolate", "npu_beside:retries=0")
    made = called(tmp_path, "compile", "model.onnx", "-b", "npu_beside,llvm", *words, "-o", "model.graft")
    assert made.returncode == 0, made.stderr
    for what in ("model.onnx", "model.graft"):
        backends = ("-b", "npu_beside,llvm") if what == "model.onnx" else ()
        run = called(tmp_path, "run", what, *backends, *words)
        assert run.returncode == 0, run.stderr
        assert "was killed by SIGABRT; 'npu_beside_0' is compiled anew by the built-in compiler" in run.stderr


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graft", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.usefixtures("path_of_imports")
def test_a_file_of_another_package_of_the_name_is_an_error(tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, "relative") for name in ("first", "second"))
    PluginManager(sources=[]).load_file(first)
    with pytest.raises(PluginError) as caught:
        PluginManager(sources=[]).load_file(second)
    assert caught.value.message == (
        "plugin 'npu_relative' raised ImportError in import of file npu_relative.py: package 'npu_relative_package' is "
        f"imported from {first.parent}, not from {second.parent}; name the installed plugin without --plugin, or "
        "uninstall it"
    )


@pytest.mark.usefixtures("path_of_imports")
def test_a_backend_that_is_named_in_the_place_of_its_plugin_is_an_error(tmp_path: Path) -> None:
    manager = PluginManager(isolation={"npu": graft.Isolation()})
    manager.load_file(written(tmp_path, "beside", name="npu"))
    with pytest.raises(PlanError) as caught:
        graft.compile(MODEL, ["npu", "llvm"], isolation={"npu": "process"}, manager=manager)
    assert caught.value.message == (
        "isolation names backend 'npu' of plugin 'npu_beside'; name the plugin, 'npu_beside', which is then imported "
        "in a process of its own"
    )
