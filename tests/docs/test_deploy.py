"""docs/deploy.md: its commands run, and the project says what the page says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, prepare, shell


def test_the_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    prepare(tmp_path, monkeypatch)
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    said = "".join(shell(block.text) for block in blocks(text) if block.language == "bash")
    assert "digits: as recorded (arena 12288 bytes, weights 190120 bytes)" in said
    declared = [block.text for block in blocks(text) if block.text.startswith("int digits_run")]
    header = (tmp_path / "digits" / "digits.h").read_text(encoding="utf-8")
    assert all(line in header for line in declared[0].splitlines())
