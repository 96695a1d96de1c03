"""What a later level of the interface lacks is said when a plugin that uses it is loaded, and works."""

from __future__ import annotations

from pathlib import Path

import pytest

import graft
from graft.plugins import hooks
from graft.plugins.backend import API_LEVEL
from graft.plugins.registry import deprecations
from graft.plugins.registry.deprecations import DEPRECATIONS, Deprecation
from graft.plugins.registry.doctor import examine
from graft.plugins.registry.manager import PluginManager

SOURCE = """
import graft
from graft.plugins.hooks import hookimpl

class Base(graft.Backend):
    def compile(self, region, options): raise ValueError("never")

class Old(Base):
    name = "old"
    def cost(self, region): return None

@hookimpl
def graft_backends(): return [Old]

@hookimpl
def graft_report_sections(report): return []
"""
GONE = "which is deprecated since level 1 of the plugin interface and gone in level 2; define"
TOLD = [
    f"plugin 'old': backend 'old' defines Backend.cost, {GONE} Backend.estimate",
    f"plugin 'old' defines graft_report_sections, {GONE} graft_reports",
]


def loaded(folder: Path) -> PluginManager:
    (folder / "old.py").write_text(SOURCE)
    manager = PluginManager(sources=[])
    manager.load_file(folder / "old.py")
    return manager


def test_a_plugin_is_told_of_what_it_defines_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Deprecation("Backend.cost", 1, "Backend.estimate"),
        Deprecation("graft_report_sections", 1, "graft_reports"),
        Deprecation("Backend.tune", 1, "Backend.tuned"),
        Deprecation("graft_passes", 1, "graft_rewrites"),
    )
    monkeypatch.setattr(deprecations, "DEPRECATIONS", rows)
    with pytest.warns(DeprecationWarning, match=GONE) as warned:
        manager = loaded(tmp_path)
    assert [str(one.message) for one in warned] == TOLD
    assert [one.name for one in manager.backends()] == ["old"]
    assert [(one.severity, one.text) for one in examine(manager)] == [("note", text) for text in TOLD]


def test_nothing_is_said_where_nothing_is_deprecated(tmp_path: Path) -> None:
    assert examine(loaded(tmp_path)) == []


def test_every_row_names_what_there_is_and_stands_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text(encoding="utf-8")
    for row in (*DEPRECATIONS, Deprecation("Backend.cost", 1, "")):
        owner, _, member = row.name.rpartition(".")
        assert hasattr(getattr(graft, owner) if owner else hooks, member)
        assert row.since <= API_LEVEL <= row.since + 1
        assert row not in DEPRECATIONS or f"`{row.name}`" in page.partition("| level | what changed |")[2]
