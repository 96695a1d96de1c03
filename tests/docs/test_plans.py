"""docs/plans.md: its blocks run, and the output that it quotes is what comes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import click.testing
import pytest

from benchmarks.zoo import path_of
from graft.cli.common import State
from graft.cli.main import cli
from graft.compiler.request import plugins
from graft.core.reject import BACKEND_CODES, CORE_CODES
from graft.report.reasons import ADVICE
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = ROOT / "docs" / "plans.md"
DIGITS = str(path_of("digits"))


def printed(*arguments: str) -> str:
    result = click.testing.CliRunner().invoke(
        cli, list(arguments), catch_exceptions=False, standalone_mode=False, obj=State()
    )
    assert result.exit_code == 0, result.output
    return result.output.strip()


@cache
def outputs(folder: Path) -> dict[str, str]:
    """Return what the page quotes, by the name of its marker, with the command in front."""
    shown = {}
    for name, model in (("bert", "bert_base"), ("resnet", "light_resnet50")):
        text = printed("plan", str(path_of(model)), "-b", "onednn,llvm", "--why")
        shown[name] = f"$ graft plan {model}.onnx -b onednn,llvm --why\n{text}"
    old, new = str(folder / "plan.json"), str(folder / "other.json")
    printed("plan", DIGITS, "-b", "onednn,llvm", "-o", old)
    printed("plan", DIGITS, "-b", "onednn,llvm", "--exclude-op", "onednn:Gemm", "-o", new)
    shown["diff"] = printed("plan", "diff", old, new)
    plan = json.loads(Path(new).read_text(encoding="utf-8"))
    shown["file"] = json.dumps({**plan, "nodes": [plan["nodes"][-1]]}, indent=1, ensure_ascii=False)
    return shown


def filled(page: str, folder: Path) -> str:
    """Return the page with the block behind every marker replaced."""
    bare = re.sub(r"(<!-- output: \w+ -->)\n\n```text\n.*?\n```\n", r"\1\n", page, flags=re.DOTALL)
    return re.sub(
        r"<!-- output: (\w+) -->\n", lambda found: f"{found[0]}\n```text\n{outputs(folder)[found[1]]}\n```\n", bare
    )


@pytest.fixture(autouse=True)
def onednn() -> None:
    missing = plugins().backends(["onednn"])[0].available()
    if missing is not None:
        pytest.skip(missing)


def test_the_page_quotes_what_is_printed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled(page, tmp_path)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    else:
        assert page == wanted, "docs/plans.md is stale; run pytest tests/docs --update-golden"
    assert set(re.findall(r"<!-- output: (\w+) -->", page)) == set(outputs(tmp_path))


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "plans"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/plans.md", names)
        elif block.language == "sh":
            shell(block.text)
    assert (tmp_path / "cache" / "graft" / "times.sqlite3").exists()
    assert (tmp_path / "digits.html").exists()


def test_every_reason_code_is_in_the_table_and_has_advice() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("### Reason codes")[2].partition("## Steering")[0]
    assert set(re.findall(r"`([a-z-]+)`", table)) == {*BACKEND_CODES, *CORE_CODES}
    assert set(ADVICE) == {*BACKEND_CODES, *CORE_CODES}
