"""docs/cortex_m.md: its blocks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cortex_m.tiny import missing
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_blocks_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path, monkeypatch)
    page = (ROOT / "docs" / "cortex_m.md").read_text(encoding="utf-8")
    first, second, third = blocks(page)
    assert "check passed\n" in shell(first.text)
    assert "instructions on mps2-an386; outputs differ" in shell(second.text)
    execute(third, "cortex_m.md", {})
    assert " instructions [(('conv_0', 'relu_2'), " in capsys.readouterr().out
