"""docs/security.md: its blocks run, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.runtime.trust.keys import read_keys
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = ROOT / "docs" / "security.md"


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography", reason="signatures need the extra `sign`")
    prepare(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "security"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/security.md", names)
        elif block.language == "sh":
            assert "release 2026" in shell(block.text)
        elif block.language == "toml":
            Path("keys.toml").write_text(block.text, encoding="utf-8")
            assert [key.label for key in read_keys("keys.toml").keys.values()] == ["release 2026"]
    image = np.zeros(names["here"].inputs[0].shape, np.float32)
    np.testing.assert_allclose(names["anew"](image), names["here"](image), rtol=1e-5, atol=1e-5)
    assert "holds machine code" in capsys.readouterr().out
