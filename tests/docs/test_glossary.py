"""The glossary: every term has one row, and lives where the row says."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

ROWS = re.findall(r"^\| (.+?) \| (.+) \| `(\S+)` \|$", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)


def test_every_row_names_a_file_or_folder_that_exists() -> None:
    assert len(ROWS) > 60
    assert [path for _, _, path in ROWS if not (ROOT / path).exists()] == []


def test_no_term_has_two_rows() -> None:
    terms = [term for term, _, _ in ROWS]
    assert sorted(terms) == sorted(set(terms))


def test_every_row_of_the_page_is_read() -> None:
    lines = (ROOT / "docs/glossary.md").read_text("utf-8").splitlines()
    tables = [line for line in lines if line.startswith("| ") and not line.startswith(("| term", "| ---"))]
    assert len(tables) == len(ROWS)
