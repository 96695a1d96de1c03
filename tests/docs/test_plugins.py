"""docs/plugins.md: its first backend is what `graft plugin new` writes, and its commands are the command line's."""

from __future__ import annotations

import re

from graft.cli.main import cli
from graft.testkit.conformance.ledger import read
from graft.testkit.conformance.levels import LEVELS
from graft.testkit.scaffold.project import KINDS, contents
from tests.cli.test_wrong_options import commands
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def test_the_first_backend_is_the_generated_one() -> None:
    generated = contents("npu", "json")["graft_npu/backend.py"].partition('"""\n\n')[2]
    assert f"```python\n{generated}```" in PAGE


def test_the_test_is_the_generated_one() -> None:
    assert f"```python\n{contents('npu', 'json')['tests/test_conformance.py']}```" in PAGE


def test_every_kind_and_every_level_has_its_row() -> None:
    assert all(f"\n| `{kind}` | " in PAGE for kind in KINDS)
    assert all(f"\n| {level} | " in PAGE for level in range(len(LEVELS)))


def test_the_options_that_are_named_are_there() -> None:
    options = {
        name
        for words, command in commands(cli)
        if words[0] == "plugin"
        for parameter in command.params
        for name in parameter.opts
    }
    used = {word for line in re.findall(r"^graft plugin .*$", PAGE, re.M) for word in re.findall(r" (--[a-z]+)", line)}
    assert used and used <= options


def test_the_ledger_reads(tmp_path) -> None:
    text = PAGE.partition("```text\n")[2].partition("```")[0]
    (tmp_path / "ledger.txt").write_text(text)
    assert [entry.may_pass for entry in read(tmp_path / "ledger.txt")] == [False, True]
