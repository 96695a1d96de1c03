"""Plugins are found by their metadata, without importing any of them."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from graft.plugins.discovery import BUILT_IN, LIBRARIES, PluginSource, clashes, discover
from graft.runtime.system.version import DISTRIBUTION

ROOT = Path(__file__).parents[2]


def installed(folder: Path, name: str, entries: str) -> None:
    """Write the metadata of a distribution."""
    metadata = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entries)


def test_the_built_in_plugins_are_those_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["graft"] == BUILT_IN
    assert set(LIBRARIES) <= set(BUILT_IN.values())


def test_built_in_plugins_are_found_sorted_and_once() -> None:
    own = [source for source in discover() if source.is_own]
    assert [source.name for source in own] == sorted(BUILT_IN)


def test_an_installed_plugin_is_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "graft-npu", "[graft]\nnpu = no_such_package.npu:Npu\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = (source for source in discover() if source.name == "npu")
    assert found == PluginSource("npu", "no_such_package.npu:Npu", "graft-npu", "1.2")
    assert (found.provider, found.is_own, found.missing()) == ("graft-npu 1.2", False, "")
    assert "no_such_package" not in sys.modules
    with pytest.raises(ImportError):
        found.load()


def test_damaged_metadata_hides_no_other_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "graft-broken", "[graft\nnpu = x\n")
    installed(tmp_path, "graft-npu", "[graft]\nnpu = npu_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {source.name for source in discover()}
    assert {*BUILT_IN, "npu"} <= names


def test_damage_is_told_when_the_plugin_is_loaded() -> None:
    with pytest.raises(ImportError, match="install it again"):
        PluginSource("npu", "", "graft-npu", "1.2", damage="unreadable; install it again").load()


def test_a_source_loads_what_it_names() -> None:
    assert PluginSource("math", "math:sqrt").load() is importlib.import_module("math").sqrt
    assert PluginSource("math", "math").load() is importlib.import_module("math")
    with pytest.raises(ImportError) as caught:
        PluginSource("odd", "not a reference").load()
    assert str(caught.value) == "'not a reference' is not an entry point; write my_package.npu or my_package.npu:Npu"


def test_a_file_is_imported_and_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "npu.py"
    path.write_text("ANSWER = 42\n")
    source = PluginSource("npu", str(path), is_file=True)
    assert source.load().ANSWER == 42  # type: ignore[attr-defined]
    assert (source.provider, source.is_own) == ("file npu.py", False)


def test_messages_name_the_distribution_or_the_entry_point() -> None:
    assert PluginSource("npu", "npu:Npu", "graft-npu").provider == "graft-npu"
    assert PluginSource("npu", "npu:Npu").provider == "entry point 'npu:Npu'"
    assert not PluginSource("llvm", "elsewhere", DISTRIBUTION).is_own
    assert not PluginSource("llvm", BUILT_IN["llvm"], "other").is_own


def test_names_that_several_sources_claim_clash() -> None:
    one, two, other = (PluginSource(name, value) for name, value in (("npu", "a"), ("npu", "b"), ("gpu", "a")))
    assert clashes([one, other, two]) == {"npu": [one, two]}
    assert clashes([]) == {}
