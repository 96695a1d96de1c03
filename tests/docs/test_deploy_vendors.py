"""docs/deploy.md, a vendor's kernels in C: its block runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.blocks import ROOT, blocks, execute

PAGE = ROOT / "docs" / "deploy.md"


def test_the_library_of_the_page_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block for block in blocks(PAGE.read_text(encoding="utf-8")) if "CSourceBackend" in block.text)
    names: dict[str, Any] = {"__name__": "deploy"}
    execute(block, "docs/deploy.md", names)
    assert [module.kind for module in names["program"].description.modules] == ["c_source"]
    assert capsys.readouterr().out.startswith("[[-0.84270")
