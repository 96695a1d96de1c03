"""docs/debugging.md: its plugin is wrong as it says, and its commands print what it quotes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click.testing
import pytest

from graft.cli.common import State
from graft.cli.main import cli
from tests.compiler.models import model
from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs" / "debugging.md"
BODY = "h = MatMul(x, w)\n a = Abs(h)\n b = Exp(a)\n c = Sigmoid(b)\n y = Add(c, h)"


def test_the_commands_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (source,) = (one for one in blocks(PAGE.read_text(encoding="utf-8")) if one.language == "python")
    Path("npu.py").write_text(source.text, encoding="utf-8")
    Path("model.onnx").write_bytes(model(BODY).SerializeToString())
    sessions = [one.text for one in blocks(PAGE.read_text(encoding="utf-8")) if one.language == "console"]
    assert len(sessions) == 2
    for session in sessions:
        line, _, quoted = session.partition("\n")
        assert line.startswith("$ graft ")
        result = click.testing.CliRunner().invoke(
            cli, shlex.split(line)[2:], catch_exceptions=False, standalone_mode=False, obj=State()
        )
        assert result.return_value == 4
        assert readable(result.output, tmp_path) == readable(quoted, tmp_path)
    assert {path.name for path in Path("cut").iterdir()} >= {"minimal.onnx", "report.json", "reproduce.sh"}


def readable(text: str, folder: Path) -> list[str]:
    """Return lines without what differs from machine to machine: the folder, numbers, the widths of columns."""
    text = re.sub(r"(?<![\w.])\d+(\.\d+)?(e[-+]?\d+)?(?!\w)", "#", text.replace(str(folder), "/tmp"))
    return [" ".join(line.split()) for line in text.strip().splitlines()]
