"""docs/patterns.md: its code runs, and every construct in its table has the test that it names."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from graft.patterns.explain import explain
from graft.patterns.parse import parse_pattern
from tests.patterns.graphs import graph_of, root

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "patterns.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ROWS = [line.strip("| ") for line in TEXT.splitlines() if line.startswith("|") and "`test" in line]


def grouped() -> SimpleNamespace:
    return SimpleNamespace(
        graph=graph_of(
            "c = Conv <group = 8> (x, w)\ny = Relu(c)",
            inputs="float[1,8,2,2] x",
            outputs="float[1,8,2,2] y",
            more="<float[8,1,1,1] w = {1, 1, 1, 1, 1, 1, 1, 1}>",
        )
    )


def test_the_code_runs_and_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    model = grouped()
    names: dict[str, object] = {"node": root(model.graph), "model": model}
    for block in BLOCKS:
        exec(block, names)
    printed = capsys.readouterr().out
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert printed == shown[0]
    assert str(parse_pattern(printed)) == printed.strip()
    explained = re.findall(r"^explain\(.*\)\n# (.*)$", TEXT, re.MULTILINE)
    assert [str(explain(parse_pattern(printed), root(model.graph)))] == explained


def test_the_table_is_long_enough_to_be_whole() -> None:
    assert len(ROWS) >= 40


@pytest.mark.parametrize("row", ROWS)
def test_every_construct_of_the_table_has_its_test(row: str) -> None:
    named = re.findall(r"`((?:tests/[\w/]+\.py::)?test_\w+)`", row)
    assert named
    for name in named:
        path, _, function = name.rpartition("::")
        files = [ROOT / path] if path else sorted((ROOT / "tests" / "patterns").glob("test_*.py"))
        assert any(f"def {function}(" in file.read_text(encoding="utf-8") for file in files)
