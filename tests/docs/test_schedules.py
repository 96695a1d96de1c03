"""docs/schedules.md: its blocks run, and its table names every primitive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from graft.core.schedule.primitives.schedule_text import PRIMITIVES
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = ROOT / "docs" / "schedules.md"


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "schedules"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        execute(block, "docs/schedules.md", names) if block.language == "python" else shell(block.text)
    # Which strategy makes it, by steps or without (then its line is a comment), follows from the machine.
    assert re.search(r"^(# )?\[llvm_0_0_conv_relu\]  # \w", (tmp_path / "schedules.txt").read_text(), re.MULTILINE)


def test_the_table_has_every_primitive() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {step.split()[0] for row in rows for step in re.findall(r"`([^`]+)`", row)}
    assert {primitive.form.split()[0] for primitive in PRIMITIVES} <= named
