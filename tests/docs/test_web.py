"""The page about the web: what it shows runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, prepare


def test_the_example_writes_the_files_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    prepare(tmp_path, monkeypatch)
    (block,) = (one for one in blocks(page) if one.language == "python")
    exec(compile(block.text, "docs/web.md", "exec"), {})
    written = capsys.readouterr().out.split()
    assert written == ["model.wasm", "model.weights", "model.js", "model.d.ts", "index.html"]
    assert all(f"`{name}`" in page for name in written)
