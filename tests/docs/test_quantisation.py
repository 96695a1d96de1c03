"""docs/quantisation.md: its blocks run, and its table has every field and recipe."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import onnx
import pytest

from graft.quantization import NAMED, Recipe, Scaling
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = (ROOT / "docs" / "quantisation.md").read_text(encoding="utf-8")


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "quantisation"}
    for block in blocks(PAGE):
        execute(block, "docs/quantisation.md", names) if block.language == "python" else shell(block.text)
    for name in ("int8.onnx", "mine.onnx"):
        onnx.checker.check_model(onnx.load(tmp_path / name))
    assert (tmp_path / "int8.graft").stat().st_size > 0


def test_every_recipe_and_field_is_explained() -> None:
    names = {*NAMED, *(one.name for one in (*fields(Recipe), *fields(Scaling)))}
    missing = {name for name in names - {"name"} if f"`{name}" not in PAGE and f"{name}`" not in PAGE}
    assert missing == set()
