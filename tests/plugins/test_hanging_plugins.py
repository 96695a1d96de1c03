"""Plugins that hang, each in one hook: the others compile the model, and the plugin and the hook are named."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import graft
from graft.errors import PluginError
from graft.partition.region import Region
from graft.plugins.discovery import PluginSource
from graft.plugins.registry.doctor import examine
from graft.plugins.registry.fence import PER_LIMIT, FencedBackend
from graft.plugins.registry.manager import PluginManager
from graft.plugins.time_limit import Limits

PRELUDE = """
import time
import graft
from graft.patterns import is_op, wildcard
from graft.plugins.hooks import hookimpl

def hang(*_, **__):
    while True:
        try:
            time.sleep(10)
        except Exception:
            pass

class Bad(graft.Backend):
    name = "bad"
    priority = 500
    def supports(self, node): return node.op_type == "Relu" or graft.Reject("dtype", "no")
    def compile(self, region, options): raise OSError("no compiler")

class Pass:
    name = "stuck"
    def run(self, model): hang()

"""
HANGS = {
    "import of file bad.py": "hang()",
    "graft_backends": "@hookimpl\ndef graft_backends(): hang()",
    "graft_datatypes": "@hookimpl\ndef graft_datatypes(): hang()",
    "graft_operators": "@hookimpl\ndef graft_operators(): hang()",
    "graft_machines": "@hookimpl\ndef graft_machines(): hang()",
    "graft_passes": "@hookimpl\ndef graft_passes(stage): hang()",
    "pass 'stuck'": "@hookimpl\ndef graft_passes(stage): return [Pass()]",
    "graft_module_loaders": "@hookimpl\ndef graft_module_loaders(): hang()",
    "graft_region_compiled": "@hookimpl\ndef graft_region_compiled(region): hang()",
    "supports(Relu (node 'r'))": "Bad.supports = hang",
    "patterns": "Bad.patterns = property(hang)",
    "the check of 'bad.relu'": (
        "from graft.patterns.composite import Composite\n"
        "Bad.patterns = (Composite('bad.relu', is_op('Relu')(wildcard()), hang),)"
    ),
    "available": "Bad.available = hang",
}
QUIET = frozenset({"graft_module_loaders"})
"""What nobody asks of a plugin that no module needs, but the doctor."""
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def manager(folder: Path, where: str) -> PluginManager:
    path = folder / "bad.py"
    source = HANGS[where]
    if source.startswith("@hookimpl") and "graft_backends" not in source:
        source += "\n@hookimpl\ndef graft_backends(): return [Bad]"
    path.write_text(PRELUDE + source)
    bad = PluginSource("bad", str(path), is_file=True)
    others = [one for one in PluginManager().sources() if one.name in ("llvm", "reference")]
    PluginManager(sources=others).plugins()  # so that the limits below are not those of imports of Graft's own
    return PluginManager(sources=[*others, bad], limits=Limits(load=2, answer=1, importing=2))


@pytest.mark.parametrize("where", HANGS)
def test_the_others_compile_the_model(where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugins = manager(tmp_path, where)
    program = graft.compile(MODEL, place="greedy", threads=1, manager=plugins)
    np.testing.assert_array_equal(program(X), -np.maximum(X, 0))
    said = [*caplog.messages, *(one.failure.message for one in plugins.plugins() if one.failure is not None)]
    assert where in QUIET or any(f"plugin 'bad': in {where}, it did not end within" in one for one in said), said


@pytest.mark.parametrize("where", ["import of file bad.py", "graft_passes", "patterns", "available"])
def test_the_doctor_names_the_hook_once(where: str, tmp_path: Path) -> None:
    (found,) = [one.text for one in examine(manager(tmp_path, where)) if "did not end within" in one.text]
    assert found.startswith(f"plugin 'bad': in {where}, it did not end within ")


def test_a_backend_that_has_hung_is_asked_no_more(tmp_path: Path) -> None:
    (backend,) = manager(tmp_path, "available").backends(["bad"])
    for question in (backend.available, backend.version, backend.fingerprint):
        with pytest.raises(PluginError, match="in available, it did not end within 1 s and was stopped"):
            question()


def test_an_import_in_another_process_is_stopped_as_soon(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(PRELUDE + HANGS["import of file bad.py"])
    bad = PluginSource("bad", str(path), is_file=True)
    plugins = PluginManager(sources=[bad], isolation={"bad": graft.Isolation()}, limits=Limits(importing=1))
    (plugin,) = plugins.plugins()
    assert plugin.failure is not None
    assert plugin.failure.message == (
        "plugin 'bad': in import of file bad.py, it did not end within 1 s and was stopped"
    )


def test_what_a_region_costs_may_take_longer_for_many_operators() -> None:
    left: list[float] = []

    class Npu(graft.Backend):
        name = "npu"

        def cost(self, region: Region) -> None:
            left.append(signal.getitimer(signal.ITIMER_REAL)[0])

    backend = FencedBackend(Npu(), "npu", limits=Limits(answer=100))
    for count in (10, 3 * PER_LIMIT):
        backend.cost(SimpleNamespace(name="npu_0", origin=("n",) * count))  # type: ignore[arg-type]
    assert [round(one, -1) for one in left] == [100, 300]
