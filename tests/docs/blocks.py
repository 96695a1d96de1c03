"""Code blocks of a page, run as a reader runs them: one after the other, in a folder that has the examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page with the line that each starts at."""
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        yield Block(found[1], found[2], page.count("\n", 0, found.start(2)) + 1)


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder with the examples and the command `graft`, and go there; its caches stay inside."""
    (folder / "examples").symlink_to(ROOT / "examples")
    commands = folder / "bin"
    commands.mkdir()
    command = commands / "graft"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m graft "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def shell(text: str) -> str:
    """Run lines of shell, stop at the first that fails, and return what they printed."""
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def execute(block: Block, path: str, names: dict[str, object]) -> None:
    """Run a Python block; a failure shows the line of the page."""
    exec(compile("\n" * (block.line - 1) + block.text, path, "exec"), names)
