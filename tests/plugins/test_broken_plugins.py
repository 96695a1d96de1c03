"""Plugins broken in every way that we know: none stops another one, and the doctor names each in one line."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from graft.cli.main import main
from graft.plugins.registry.manager import PluginManager
from tests.plugins.distributions import install

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


@dataclass(frozen=True)
class Broken:
    """A broken plugin: its source, and the beginnings of the doctor's line and of what compiling logs."""

    name: str
    source: str
    doctor: str
    logged: str


def table() -> list[Broken]:
    """Read the cases of broken_plugins.txt."""
    text = Path(__file__).with_name("broken_plugins.txt").read_text(encoding="utf-8")
    parts = re.findall(r"^=== (\w+)(?:: ([^\n]*))?\n(.*?)(?=^===|\Z)", text, re.MULTILINE | re.DOTALL)
    bodies = {kind: body for kind, name, body in parts if not name}
    cases = []
    for kind, name, body in parts:
        if name:
            source, _, said = body.partition("\ndoctor:")
            doctor, _, logged = said.partition("\nlogged:")
            before = bodies["prelude"] + (bodies["class"] if kind != "module" else "")
            own = {"module": source, "member": textwrap.indent(source, "    "), "hook": f"@hookimpl\n{source}"}[kind]
            cases.append(Broken(name, f"{before.rstrip()}\n{own}\n", doctor.strip(), logged.strip()))
    return cases


@pytest.fixture(params=[pytest.param((number, one), id=one.name) for number, one in enumerate(table())])
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    """A broken plugin, installed as the distribution graft-bad."""
    number, one = request.param
    name = f"broken_plugin_{number}"
    install(tmp_path, monkeypatch, "graft-bad", "1", {"bad": name}, **{name: one.source})
    yield Broken(one.name, one.source, one.doctor.replace("MODULE", name), one.logged)
    sys.modules.pop(name, None)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as caught:
        main(["backends", *arguments, "--without", "onednn"])
    return int(caught.value.code or 0), capsys.readouterr().out.splitlines()


def test_a_broken_plugin_stops_nothing_and_is_named(
    broken: Broken, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    code, lines = printed(capsys, "list")
    assert code == 0
    assert {"bad", "llvm", "reference"} <= {line.split()[0] for line in lines}

    code, lines = printed(capsys, "show")
    assert code == 0
    assert {"llvm", "reference"} <= set(lines)

    code, lines = printed(capsys, "doctor")
    about = [line for line in lines if line not in ("note: plugin 'onednn' is disabled", "every plugin is well")]
    if broken.doctor:
        assert about[0].startswith(f"error: {broken.doctor}"), about
        assert code == 5
    assert all(line.partition(": ")[0] in ("error", "warning", "note") for line in about)

    caplog.clear()
    for backends in (None, "llvm"):
        manager = PluginManager({"onednn"})
        program = graft.compile(MODEL, backends, place="greedy", threads=1, cache=False, manager=manager)
        np.testing.assert_array_equal(program(X), -np.maximum(X, 0))
    if broken.logged:
        assert any(message.startswith(broken.logged) for message in caplog.messages), caplog.messages


def test_the_table_has_its_hundred_cases() -> None:
    assert len(table()) >= 100
    assert len({one.name for one in table()}) == len(table())
