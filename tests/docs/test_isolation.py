"""docs/isolation.md: its blocks run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.runtime.isolation.program import IsolatedProgram
from graft.runtime.isolation.sandbox import why_not
from tests.docs.blocks import ROOT, blocks, execute, prepare

PAGE = ROOT / "docs" / "isolation.md"


@pytest.mark.skipif(bool(why_not()), reason=f"no sandbox: {why_not()}")
def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "isolation"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/isolation.md", names)
    assert isinstance(names["program"], IsolatedProgram)
    assert isinstance(names["again"], IsolatedProgram)
    assert not isinstance(names["here"], IsolatedProgram)
    assert names["guarded"]._how["onednn"].sandbox
    image = np.zeros(names["here"].inputs[0].shape, np.float32)
    for program in ("again", "guarded"):
        np.testing.assert_array_equal(names[program](image), names["here"](image))
