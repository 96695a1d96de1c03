"""Plugins that plan and compile in a sandbox: their answers are data, and what else they try is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.core.reject import Reject
from graft.errors import PluginError
from graft.plugins.isolation.answers import read_answer
from graft.plugins.registry.manager import PluginManager
from graft.runtime.isolation import sandbox
from graft.runtime.procedure import Module

needs_sandbox = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"no sandbox: {sandbox.why_not()}")
BACKEND = """
import os, socket
import numpy as np
import graft
class Npu(graft.JsonBackend):
    name = "npu_evil"
    @graft.supports("Relu")
    def relu(self, node):
        {deed}
        return True
    def load(self, graph, constants):
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [np.maximum(arrays[0], np.float32(0))])
"""
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def manager_of(folder: Path, deed: str) -> PluginManager:
    (folder / "npu_evil.py").write_text(BACKEND.format(deed=deed), encoding="utf-8")
    how = {"npu_evil": graft.Isolation(sandbox=True, retries=0, fallback=False)}
    manager = PluginManager(sources=PluginManager().sources(), isolation=how)
    manager.load_file(folder / "npu_evil.py")
    return manager


@needs_sandbox
def test_plugin_in_a_sandbox_plans_compiles_and_runs(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "pass")
    how = {"npu_evil": graft.Isolation(sandbox=True, retries=0, fallback=False)}
    program = graft.compile(MODEL, ["npu_evil", "llvm"], manager=manager, isolation=how, threads=1)
    assert [module.plugin for module in program.description.modules if module.kind.startswith("json")] == ["npu_evil"]
    np.testing.assert_array_equal(program(X), -np.maximum(X, 0))


@needs_sandbox
@pytest.mark.parametrize(
    ("deed", "says"),
    [
        ("socket.socket()", "Operation not permitted; its sandbox refused the system call 'socket'"),
        ("os.system('true')", "the sandbox of a plugin starts no processes: os.system"),
    ],
)
def test_decision_that_reaches_out_is_refused(tmp_path: Path, deed: str, says: str) -> None:
    manager = manager_of(tmp_path, deed)
    with pytest.raises(PluginError) as caught:
        graft.plan(MODEL, ["npu_evil", "llvm"], manager=manager)
    assert "npu_evil" in caught.value.message and says in caught.value.message


class Evil:
    """An object whose pickle calls a function."""

    def __init__(self, call: tuple[object, ...]) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize(
    "call",
    [(eval, ("1",)), (Path, ("/",)), (getattr, (Module, "mro")), (PluginManager, ()), (sandbox.enter, ((),))],
    ids=["eval", "path", "getattr", "class of Graft", "function of Graft"],
)
def test_answer_that_would_call_something_is_refused(call: tuple[object, ...]) -> None:
    data = pickle.dumps((True, Evil(call)))
    with pytest.raises(pickle.UnpicklingError, match="is not what answers from a sandbox are made of"):
        read_answer(data, True)


@pytest.mark.parametrize("value", [7, (True,), (False, 7), (False, (Module, "", {}, []))])
def test_what_is_no_answer_is_refused(value: object) -> None:
    with pytest.raises(pickle.UnpicklingError):
        read_answer(pickle.dumps(value), True)


def test_data_come_through() -> None:
    module = Module("m", "json:npu", ("f",), b"{}", {"w": np.ones((2, 3), np.float32)}, "npu")
    fine, (found, reject, number) = read_answer(
        pickle.dumps((True, (module, Reject("dtype", "no"), np.int64(3)))), True
    )
    assert fine and found.constants["w"].shape == (2, 3) and reject == Reject("dtype", "no") and number == 3
