"""docs/shapes.md: its blocks run."""

from __future__ import annotations

from typing import Any

from tests.docs.blocks import ROOT, blocks, execute

PAGE = ROOT / "docs" / "shapes.md"


def test_the_python_blocks_run_in_order() -> None:
    names: dict[str, Any] = {"__name__": "shapes"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/shapes.md", names)
