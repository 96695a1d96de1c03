"""docs/cortex_m.md: its blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tiny import missing
from tests.docs.blocks import ROOT, blocks, prepare, shell


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    page = (ROOT / "docs" / "cortex_m.md").read_text(encoding="utf-8")
    (printed,) = [shell(block.text) for block in blocks(page)]
    assert "check passed\n" in printed
