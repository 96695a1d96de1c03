"""docs/cuda.md: its blocks run, and its table of strategies is the one that is asked."""

from __future__ import annotations

import re

from graft.plugins.cuda.strategies.table import TABLE
from tests.docs.blocks import ROOT, blocks, execute

PAGE = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")


def test_its_blocks_run() -> None:
    names: dict[str, object] = {"__name__": "cuda"}
    for block in blocks(PAGE):
        execute(block, "docs/cuda.md", names)


def test_it_lists_the_strategies() -> None:
    listed = re.findall(r"^\| `(cuda\.\w+)`", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted({row.name for row in TABLE.rows})
