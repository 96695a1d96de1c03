"""Modules in a sandbox: they compute as elsewhere, and each attempt at anything else is refused by name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import graft.runtime._native as _native
from graft.errors import ArtifactError, RunError, UnsupportedError
from graft.runtime.isolation import sandbox
from graft.runtime.isolation.options import Isolation, isolations
from graft.runtime.isolation.program import loaded
from graft.runtime.isolation.system_calls import ALLOWED, LOOKED_AT, NAMED
from graft.runtime.loaders import PythonLoader
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program

sys.path.insert(0, str(Path(__file__).parent))

from malicious_module import DEEDS, load

sys.path.pop(0)

needs_sandbox = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"no sandbox: {sandbox.why_not()}")
HOW = Isolation(sandbox=True, retries=0, fallback=False)
NOTED = {
    "opens a network connection": "socket",
    "opens a local connection": "socket",
    "opens one in a thread": "socket",
    "removes a file": "unlink",
    "opens a file up": "chmod",
    "executes a program": "execve",
    "kills its parent": "kill",
    "traces its parent": "ptrace",
    "gives signals by a descriptor": "fcntl",
    "leaves its namespace": "unshare",
}
"""The deeds whose errors name the system call; those of others say it themselves."""


def program(function: str = "double", data: bytes = b"", how: Isolation = HOW) -> Program:
    tensors = (
        TensorSpec("x", "float32", (4,), "input", index=0),
        TensorSpec("y", "float32", (4,), "output", index=0),
    )
    calls = (Call("call", (0,), (1,), module=0, function=function, origin=("node",)),)
    module = Module("evil_0", "evil", ("double", "secrets"), data, plugin="evil")
    description = ProgramDescription((Procedure("main", tensors, (0,), (1,), calls),), (module,), {})
    return loaded(description, 1, [PythonLoader("evil", load)], {"evil": how})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def shared() -> Program:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        return program()
    finally:
        sys.path.pop(0)


@needs_sandbox
@pytest.mark.parametrize("deed", DEEDS)
def test_what_a_module_must_not_do_is_refused_and_named(shared: Program, deed: str) -> None:
    x = np.array([1 + list(DEEDS).index(deed), 0, 0, 0], np.float32)
    with pytest.raises(RunError) as caught:
        shared(x)
    message = caught.value.message
    assert message.startswith("node 'node': function 'double' of module 'evil_0' (kind 'evil, isolated for evil', ")
    assert any(text in message for text in ("PermissionError", "OSError")), message
    if deed in NOTED:
        assert message.endswith(f"; its sandbox refused the system call '{NOTED[deed]}'")
    np.testing.assert_array_equal(shared(-np.ones(4, np.float32)), -2 * np.ones(4))


@needs_sandbox
def test_the_sandbox_is_there_while_the_module_is_loaded() -> None:
    with pytest.raises(ArtifactError) as caught:
        program(data=b"opens a network connection")
    assert caught.value.message.endswith(
        "Operation not permitted; its sandbox refused the system call 'socket' (in a process of its own)"
    )


@needs_sandbox
def test_the_environment_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_TEST_SECRET", "token")
    np.testing.assert_array_equal(program("secrets")(np.ones(4, np.float32)), np.zeros(4))


@needs_sandbox
def test_without_a_sandbox_the_deeds_are_possible() -> None:
    run = program(how=Isolation(retries=0, fallback=False))
    x = np.array([1 + list(DEEDS).index("reads a file"), 0, 0, 0], np.float32)
    np.testing.assert_array_equal(run(x), 2 * x)


def test_where_there_is_no_sandbox_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    with pytest.raises(UnsupportedError) as caught:
        program()
    assert caught.value.message == (
        "no plugin can be isolated in a sandbox here: this kernel has no Landlock (Linux 5.13, and 'landlock' among "
        "the lsm= of its command line); isolation 'process' guards against faults, not against malice"
    )


def test_sandbox_is_a_word_for_its_defaults() -> None:
    assert isolations({"npu": "sandbox"}) == {"npu": Isolation(sandbox=True)}


def test_numbers_of_system_calls_are_there_once() -> None:
    tables = {**ALLOWED, **LOOKED_AT, **NAMED}
    assert len(tables) == len(ALLOWED) + len(LOOKED_AT) + len(NAMED)
    for place in (0, 1):
        numbers = [one[place] for one in tables.values() if one[place] >= 0]
        assert len(set(numbers)) == len(numbers)
    assert not {"socket", "connect", "execve", "fork", "ptrace", "io_uring_setup", "openat2"} & ALLOWED.keys()


@pytest.mark.parametrize("place", [0, 1], ids=["x86-64", "aarch64"])
def test_numbers_are_those_of_the_system_headers(place: int) -> None:
    header = Path("/usr/include", ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")[place])
    if not header.exists():
        pytest.skip(f"there is no {header}")
    text = header.read_text(encoding="utf-8")
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    for name, numbers in {**ALLOWED, **LOOKED_AT, **NAMED}.items():
        number = known.get("fstatat" if name == "newfstatat" and "newfstatat" not in known else name, -1)
        assert numbers[place] == number, name


def test_nothing_is_noted_outside_of_a_sandbox() -> None:
    assert _native.last_refusal() == ""


def test_doctor_says_where_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    from graft.plugins.registry.doctor import examine
    from graft.plugins.registry.manager import PluginManager

    manager = PluginManager(sources=())
    assert (examine(manager) == []) is (sandbox.why_not() == "")
    monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    (finding,) = examine(manager)
    assert (finding.plugin, finding.severity) == ("", "note")
    assert finding.text.startswith("no plugin can be isolated in a sandbox: this kernel has no Landlock")
    assert finding.text.endswith("; isolation guards against faults, not against malice")


def test_packages_that_a_pth_file_adds_are_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    others = [str(tmp_path / name) for name in ("site-packages", "dist-packages", "project")]
    monkeypatch.setattr(sys, "path", [*sys.path, *others, ""])
    assert {*others, ""} & {*sandbox.installed()} == {*others[:2]}
