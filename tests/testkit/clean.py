"""A clean environment: no plugin but the project's, Graft as it is installed here, no network."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest


def installed(project: Path, place: Path) -> Path:
    """Install a project into an environment of its own and return its Python; skip where nothing can build it."""
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "graft_host.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = place / "bin" / "python"
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *offline, str(project)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=500, check=False)
    if done.returncode and "bdist_wheel" in done.stderr:
        pytest.skip("building a project needs setuptools 70.1 or newer: pip install -e '.[dev]'")
    assert done.returncode == 0, done.stderr
    return python


def outcome_of(python: Path, project: Path, *options: str) -> str:
    """Run a project's own tests and return what is printed; they must pass."""
    plugin = ("-p", "graft.testkit.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", *plugin, *options, str(project / "tests")],
        cwd=python.parent, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout
