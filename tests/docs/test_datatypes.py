"""The walk-through of docs/datatypes.md, run block by block."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.datatypes.networks import posit_library

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "datatypes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_the_walk_through_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {
        "digits": ROOT / "examples" / "digits" / "digits.onnx",
        "library": posit_library(tmp_path),
    }
    for block in BLOCKS:
        exec(compile(block, "docs/datatypes.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["float32", "posit8", "posit16", "float8e4m3"]
    logits, fast = names["logits"], names["fast"]
    assert isinstance(logits, np.ndarray)
    assert isinstance(fast, np.ndarray)
    results = names["results"]
    assert isinstance(results, list)
    for other in (fast, *results):
        assert np.argmax(other) == np.argmax(logits)
    assert names["numbers"].tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]  # type: ignore[attr-defined]


def test_a_registration_takes_at_most_forty_lines() -> None:
    for block in BLOCKS:
        assert len(block.splitlines()) <= 40
