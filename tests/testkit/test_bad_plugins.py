"""Each way in which a plugin is bad: what a program that uses it is told, and what the kit says of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from graft.testkit.conformance.apart import ApartSuite
from graft.testkit.conformance.suite import bad
from tests.testkit.backends import plugin

HOST = """
import os, sys
import numpy as np, onnx.parser
import graft
from graft.plugins.registry.manager import PluginManager

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
path, isolated, own = sys.argv[1], sys.argv[2] == "isolated", os.getpid()
how = {"npu_plugin": graft.Isolation(seconds=20)} if isolated else {}

def say(text):
    print(text if os.getpid() == own else f"child: {text}", flush=True)

try:
    manager = PluginManager(isolation=how)
    manager.load_file(path)
    names = ["npu", "llvm"]
    program = graft.compile(MODEL, names, place="greedy", threads=1, cache=False, manager=manager, isolation=how)
    x = X.copy()
    y = program(x)
    say("right" if np.array_equal(y, -np.maximum(X, 0)) else "wrong")
    if not np.array_equal(x, X):
        say("its input is changed")
except BaseException as error:
    say(f"{type(error).__name__}: {error}")
if os.getpid() != own:
    os._exit(0)
assert np.array_equal(graft.compile(MODEL, ["llvm"], threads=1, cache=False)(X), -np.maximum(X, 0))
say("goes on")
"""
"""Compiles a model onto the plugin of a file, runs it, and compiles another one; prints what it is told."""
FUNCTION = "node 'r': function 'npu_0' of module 'npu_0' (kind 'json:npu', plugin 'npu_plugin'): "
APART = "node 'r': function 'npu_0' of module 'npu_0' (kind 'json:npu, isolated for npu_plugin', plugin 'npu_plugin'): "
MEND = "; mend plugin 'npu_plugin' or compile without it"
CALL = "def kernel(self, node, arrays):\n    {}\n    return [np.maximum(arrays[0], 0)]\nNpu.kernel = kernel"
GIVES = "Npu.kernel = lambda self, node, arrays: [{}]"
SET = "ctypes.memset(arrays[0].ctypes.data, 7, arrays[0].nbytes)"
KEEPS = (
    "def load(self, graph, constants):\n    kept = []\n    def run(inputs):\n"
    "        kept.append(kept[0] if kept else (inputs[0].ctypes.data, inputs[0].shape))\n"
    "        address, shape = kept[0]\n"
    "        values = (ctypes.c_float * int(np.prod(shape))).from_address(address)\n"
    "        return [np.maximum(np.array(values, np.float32).reshape(shape), 0)]\n    return run\nNpu.load = load"
)
EVERY = "\n".join(
    (
        *(f"@graft.hookimpl\ndef graft_{one}(): {{0}}" for one in ("datatypes", "operators", "machines")),
        "@graft.hookimpl\ndef graft_passes(stage): {0}",
        "@graft.hookimpl\ndef graft_backends(): return [Npu]",
        "def every(*_, **__): {0}",
        *(f"Npu.{one} = every" for one in ("supports", "available", "compile", "load", "version", "fingerprint")),
        "Npu.patterns = property(every)",
    )
)


@dataclass(frozen=True)
class Bad:
    """What makes a good plugin bad, the beginnings of the lines that a host prints, and of what the kit says."""

    source: str
    told: tuple[str, ...]
    kit: str
    group: str = "1/Relu"
    isolated: bool = False


def fault(text: str, *, isolated: bool = False) -> tuple[str, ...]:
    return (f"RunError: {APART if isolated else FUNCTION}{text}{MEND}", "goes on")


BAD = {
    "claims what it cannot do": Bad("del KERNELS['Relu']", fault("KeyError: 'Relu'"), "fails when it runs: node "),
    "returns another shape": Bad(
        GIVES.format("np.zeros((1, 2, 7), np.float32)"),
        fault("output 0 must be float32[2,3], the function returned float32[1,2,7]"),
        "fails when it runs: node ",
    ),
    "returns another type": Bad(
        GIVES.format("arrays[0].astype(np.int8)"),
        fault("output 0 must be float32[2,3], the function returned int8[2,3]"),
        "fails when it runs: node ",
    ),
    "changes its inputs": Bad(
        CALL.format("arrays[0][...] = 7"),
        fault("ValueError: assignment destination is read-only"),
        "fails when it runs: node ",
    ),
    "changes its inputs from C": Bad(
        CALL.format(SET), ("wrong", "its input is changed", "goes on"), "changes its input 'x'"
    ),
    "changes its inputs from C, isolated": Bad(
        CALL.format(SET), ("wrong", "goes on"), "changes its input 'x'", isolated=True
    ),
    "keeps a pointer": Bad(KEEPS, ("right", "goes on"), "a second call is wrong though the first was right: "),
    "raises in every hook": Bad(
        EVERY.format("raise OSError('no device')"),
        ("PluginError: plugin 'npu_plugin' raised OSError in graft_datatypes: no device", "goes on"),
        "plugin 'npu_plugin' raised OSError in graft_datatypes: no device",
        "0/registration",
    ),
    "raises in a call": Bad(
        CALL.format("raise OSError('no device')"), fault("OSError: no device"), "fails when it runs: node "
    ),
    "prints": Bad(
        CALL.format("print('kernel', node.name)"), ("kernel Relu", "right", "goes on"),
        "prints to the standard output: kernel Relu",
    ),
    "prints, isolated": Bad(
        CALL.format("print('kernel', node.name)"), ("right", "goes on"), "prints to the standard output: kernel Relu",
        isolated=True,
    ),
    "calls sys.exit": Bad(CALL.format("raise SystemExit(3)"), fault("SystemExit: 3"), "fails when it runs: node "),
    "calls exit, isolated": Bad(
        CALL.format("__import__('os')._exit(3)"), ("right", "goes on"),
        "exits: the process ended with status 3 in kernel of npu_plugin.py, line ", isolated=True,
    ),
    "forks": Bad(
        CALL.format("__import__('os').fork() or __import__('time').sleep(1)"),
        ("right", f"child: RunError: {FUNCTION}it forked, and this is the child, which came back", "goes on"),
        "forks, and lets the child return into the call",
    ),
    "forks, isolated": Bad(
        CALL.format("__import__('os').fork()"), ("right", "goes on"),
        "forks, and lets the child return into the call", isolated=True,
    ),
    "forks in a hook": Bad(
        "Npu.available = lambda self: (__import__('os').fork() or __import__('time').sleep(1)) and None",
        (
            "right",
            "child: PluginError: plugin 'npu_plugin' forked in available of backend 'npu', and this is the child",
            "goes on",
        ),
        "forks, and lets the child return into the call",
        "0/registration",
    ),
    "is built for another level": Bad(
        "Npu.api_level = 99",
        (
            "PluginError: plugin 'npu_plugin' (file npu_plugin.py): backend 'npu' was written for plugin interface 99, "
            "this Graft supports 1; pip install --upgrade graft-compiler",
            "goes on",
        ),
        "plugin 'npu_plugin' (file npu_plugin.py): backend 'npu' was written for plugin interface 99",
        "0/registration",
    ),
    "shadows a name": Bad(
        "Npu.name = 'llvm'",
        (
            "PluginError: backend 'llvm' is Graft's own and is claimed by file npu_plugin.py; choose another name",
            "goes on",
        ),
        "backend 'llvm' is Graft's own and is claimed by file npu_plugin.py; choose another name",
        "0/registration",
    ),
}  # fmt: skip
"""What hangs, or is called by itself: conformance/test_apart.py, tests/plugins/test_hanging_plugins.py."""


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD)
def test_a_host_is_told_and_goes_on(case: str, tmp_path: Path) -> None:
    row = BAD[case]
    way = "isolated" if row.isolated else "here"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HOST, str(plugin(tmp_path, row.source)), way],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(row.told), done.stdout + done.stderr
    for told in row.told:
        assert any(line.startswith(told) for line in lines), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in BAD if not case.endswith(", isolated") or "exit" in case])
def test_the_kit_says_it(case: str, tmp_path: Path) -> None:
    row = BAD[case]
    suite = ApartSuite({"name": "npu", "level": 1, "plugin_files": (str(plugin(tmp_path, row.source)),)})
    wrong = bad([one for _, _, found in suite.run_all([row.group]) for one in found])
    assert wrong, "the kit finds nothing"
    assert wrong[0].text.startswith(row.kit), wrong[0].text
