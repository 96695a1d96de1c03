"""docs/isolation.md: its block runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.runtime.isolation.program import IsolatedProgram
from tests.docs.blocks import ROOT, blocks, execute, prepare

PAGE = ROOT / "docs" / "isolation.md"


def test_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "isolation"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/isolation.md", names)
    assert isinstance(names["program"], IsolatedProgram)
    assert isinstance(names["again"], IsolatedProgram)
    assert not isinstance(names["here"], IsolatedProgram)
    image = np.zeros(names["here"].inputs[0].shape, np.float32)
    np.testing.assert_array_equal(names["again"](image), names["here"](image))
