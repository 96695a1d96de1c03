"""The documentation site: every page is in it, every public name, and it builds without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graft
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
MODULES = (
    "graft",
    "graft.datatypes",
    "graft.patterns",
    "graft.quantization",
    "graft.runtime",
    "graft.testkit",
    "graft.training",
)


def build(source: Path, output: Path) -> subprocess.CompletedProcess[str]:
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'graft-compiler[docs]'")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-c", str(DOCS)]
    return subprocess.run([*command, str(source), str(output)], capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_it_builds_without_a_warning_and_has_every_public_name(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for name in MODULES:
        text = (tmp_path / "reference" / f"{name.rpartition('.')[2]}.html").read_text(encoding="utf-8")
        module = __import__(name, fromlist=["__all__"])
        own = [
            one for one in module.__all__ if name == "graft" or getattr(graft, one, None) is not getattr(module, one)
        ]
        assert [one for one in own if f'id="{name}.{one}"' not in text] == []


@pytest.mark.parametrize(
    ("link", "said"),
    [("missing.md", "missing.md"), ("index.md#no-such-heading", "no-such-heading"), ("../gone.py", "gone.py")],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str, said: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[there]({link})\n", encoding="utf-8")
    done = build(tmp_path / "docs", tmp_path / "html")
    assert done.returncode != 0
    assert said in done.stderr


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = (DOCS / "index.md").read_text(encoding="utf-8").splitlines()
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page != "index" and page not in listed] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_public_module_has_a_page_of_reference(name: str) -> None:
    page = DOCS / "reference" / f"{name.rpartition('.')[2]}.md"
    assert f"<!-- public names: {name} -->" in page.read_text(encoding="utf-8")


def test_the_measured_times_of_the_comparison_are_those_of_the_page_of_performance() -> None:
    measured = rows("performance.md", "## Whole models")
    compared = rows("comparison.md", "## Measured")
    assert compared
    for model, ours, other, ratio, graft_error, other_error in compared:
        row = next(row for row in measured if row[:2] == [model, "2"])
        assert [ours, other, graft_error, other_error] == [row[2], row[3], row[7], row[8]]
        assert ratio == f"{float(ours) / float(other):.2f}"


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its head."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"{heading}\n")[2]
    table = text[text.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
