"""Distributions that look installed: a dist-info and a module on the path, for tests of discovery."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    place: Path, patch: pytest.MonkeyPatch, name: str, version: str, entries: Mapping[str, str], **modules: str
) -> None:
    """Make a distribution visible: its entry points of group ``graft``, and modules by name and source text."""
    home = place / f"{name}-{version}"
    information = home / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{key} = {value}\n" for key, value in entries.items())
    (information / "entry_points.txt").write_text(f"[graft]\n{lines}")
    for module, source in modules.items():
        (home / f"{module}.py").write_text(source)
    patch.syspath_prepend(home)


def install_project(place: Path, patch: pytest.MonkeyPatch, project: Path) -> None:
    """Make the project in a folder visible as if pip had installed it: name, version and entry points as it says."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    patch.syspath_prepend(project)
    install(place, patch, about["name"], about["version"], about["entry-points"]["graft"])
