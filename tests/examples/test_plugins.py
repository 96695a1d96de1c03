"""The plugins under examples/plugins: each installs, conforms and passes its own tests in a clean environment."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.testkit.clean import installed, outcome_of
from tests.testkit.lines import lines_of_code

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
NEEDS = {"ort": ("onnxruntime",), "ethosu": ("ethosu", "tosa_reference_model"), "openvino": ("openvino",)}
"""By plugin what its vendor's packages are imported as."""
PYTHONS = {"rknn": "GRAFT_RKNN_PYTHON"}
"""By plugin the variable that names the interpreter with its vendor's packages."""
LEVELS = {"openvino": 6, "rknn": 4}
"""The level of the kit that a plugin is held to, where that is not 5."""
DEVICES = frozenset({"tensorrt"})
"""Plugins that need a device: without one their own tests run, with what is made up, and no level is asked."""
NAMES = sorted(path.name for path in PLUGINS.iterdir() if (path / "pyproject.toml").exists())


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_says_how_long_it_is(name: str) -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \|", (PLUGINS / name / "README.md").read_text(), re.MULTILINE)
    sources = {
        path for path in (PLUGINS / name / f"graft_{name}").rglob("*") if path.suffix in (".py", ".c", ".h", ".def")
    }
    named = {PLUGINS / name / f"graft_{name}" / path: int(lines) for path, lines in rows}
    wanted = {path: count for path in sources if (count := lines_of_code(path)) > 0}
    assert named == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_is_a_distribution_like_those_of_the_scaffold(name: str) -> None:
    about = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())
    assert about["project"]["name"] == f"graft-{name}"
    assert about["project"]["entry-points"]["graft"] == {name: f"graft_{name}.backend"}
    assert about["project"]["optional-dependencies"]["test"] == ["graft-compiler[testkit]"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_conforms_in_a_clean_environment(name: str, tmp_path: Path) -> None:
    for needed in NEEDS.get(name, ()):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    if name in PYTHONS and PYTHONS[name] not in os.environ:
        pytest.skip(f"{PYTHONS[name]} names no python with the packages of {name}'s vendor")
    project = tmp_path / "project"
    shutil.copytree(
        PLUGINS / name, project, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so", "__pycache__")
    )
    python = installed(project, tmp_path / "environment")
    printed = outcome_of(python, project, "--graft-scorecard", str(tmp_path / "badge.svg"))
    if name in DEVICES and "graft: " not in printed:
        assert re.search(r"[1-9]\d* passed, 1 skipped", printed), printed
        return
    level = LEVELS.get(name, 5)
    found = re.search(rf"graft: {name}: level {level} · (\d+)/(\d+)\b", printed)
    ledger = [line for line in (project / "tests" / "ledger.txt").read_text().splitlines() if not line.startswith("#")]
    assert found, printed
    failed = int(found[2]) - int(found[1])  # the kit has held the ledger to the cases; a line with * has several
    strict = [line for line in ledger if not line.startswith("~")]
    assert len(strict) <= failed
    assert failed == 0 or ledger
    assert f"level {level}" in (tmp_path / "badge.svg").read_text()
