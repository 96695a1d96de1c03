"""Machines that plugins describe: found by name, fenced, and refused where two claim one."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import MachineError, PluginError
from graft.plugins.discovery import PluginSource
from graft.plugins.registry.manager import PluginManager

PLUGIN = """
from graft.core.machine.machine import Machine, Memory
from graft.plugins.hooks import hookimpl


@hookimpl
def graft_machines():
    return [{rows}]
"""
ROW = 'Machine("npu1", "npu", memories=(Memory("host"),))'


def plugin(place: Path, name: str, *rows: str) -> PluginSource:
    path = place / f"{name}.py"
    path.write_text(PLUGIN.format(rows=", ".join(rows)), encoding="utf-8")
    return PluginSource(name, str(path), is_file=True)


def failure(place: Path, *rows: str) -> str:
    (found,) = PluginManager(sources=[plugin(place, "one", *rows)]).plugins()
    assert isinstance(found.failure, PluginError)
    return found.failure.message


def test_a_machine_of_a_plugin_is_found_by_its_name(tmp_path: Path) -> None:
    manager = PluginManager(sources=[plugin(tmp_path, "one", ROW)])
    assert manager.machines()["npu1"].arch == "npu"


def test_two_plugins_that_describe_one_machine_are_both_refused(tmp_path: Path) -> None:
    manager = PluginManager(sources=[plugin(tmp_path, name, ROW) for name in ("one", "two")])
    assert manager.machines() == {}
    assert {found.failure.message for found in manager.plugins() if found.failure is not None} == {
        "machine 'npu1' is claimed by file one.py and by file two.py; none of them is used: uninstall all but one"
    }


def test_a_row_that_contradicts_itself_keeps_its_plugin_out(tmp_path: Path) -> None:
    assert failure(tmp_path, 'Machine("npu1", "npu", registers=0, memories=(Memory("host"),))') == (
        "plugin 'one': machine 'npu1': 0 registers; a kernel needs at least one"
    )


def test_what_is_no_machine_is_refused(tmp_path: Path) -> None:
    assert failure(tmp_path, '"npu1"') == (
        "plugin 'one': graft_machines gave str; give graft.core.machine.machine.Machine objects"
    )


@pytest.mark.parametrize(("rows", "name"), [([ROW, ROW], "npu1"), ([ROW.replace("npu1", "riscv64")], "riscv64")])
def test_a_name_that_there_is_already_is_refused(tmp_path: Path, rows: list[str], name: str) -> None:
    assert failure(tmp_path, *rows) == (
        f"plugin 'one' gives a machine called '{name}', which there is already; give it a name of its own"
    )


def test_a_machine_that_no_plugin_describes_is_unknown(tmp_path: Path) -> None:
    from graft.core.machine.target import target_named

    manager = PluginManager(sources=[plugin(tmp_path, "one", ROW)])
    with pytest.raises(MachineError, match=r"unknown target 'npu2'; did you mean 'npu1'\?"):
        target_named("npu2", manager.machines)
