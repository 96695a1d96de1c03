"""docs/training.md: its blocks run, and its table is that of the rows."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from graft.core.differentiation.reverse import source_of
from graft.core.operators.all import OPERATORS
from graft.training import LOSSES
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PATH = ROOT / "docs" / "training.md"
PAGE = PATH.read_text(encoding="utf-8")
MARKER = "<!-- table: derivatives -->\n"


def table() -> str:
    names: dict[str, list[str]] = {"rule": [], "function": [], "zero": []}
    for row in OPERATORS:
        if not row.domain and (source := source_of(row)):
            names[source].append(row.name)
    rows = [f"| {source} | {len(found)} | {', '.join(sorted(found))} |" for source, found in names.items()]
    return "\n".join(["| derivative | operators | of ONNX |", "|---|---:|---|", *rows]) + "\n"


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "training"}
    for block in blocks(PAGE):
        execute(block, "docs/training.md", names) if block.language == "python" else shell(block.text)
    onnx.checker.check_model(onnx.load(tmp_path / "gradients.onnx"))
    assert (tmp_path / "step.graft").stat().st_size > 0


def test_the_table_is_that_of_the_rows(request: pytest.FixtureRequest) -> None:
    before, _, behind = PAGE.partition(MARKER)
    rest = behind.lstrip("\n").split("\n\n", 1)[1] if behind.lstrip("\n").startswith("|") else behind.lstrip("\n")
    wanted = f"{before}{MARKER}\n{table()}\n{rest}"
    if request.config.getoption("--update-golden"):
        PATH.write_text(wanted, encoding="utf-8")
    else:
        assert wanted == PAGE, "docs/training.md is stale; run pytest tests/docs/test_training.py --update-golden"


def test_every_loss_is_explained() -> None:
    assert [name for name in LOSSES if f"`{name}`" not in PAGE] == []
