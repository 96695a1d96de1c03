"""docs/tuning.md: its blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = ROOT / "docs" / "tuning.md"


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    text = PAGE.read_text(encoding="utf-8").replace("--tune-seconds 5", "--tune-seconds 4").replace("=5.0", "=0.5")
    for block in blocks(text):
        execute(block, "docs/tuning.md", {"__name__": "tuning"}) if block.language == "python" else shell(block.text)
    assert (tmp_path / "digits.graft").read_bytes() != b""
    assert (tmp_path / "plain.graft").exists()
    assert (tmp_path / "cache" / "graft" / "tuned.sqlite3").exists()
