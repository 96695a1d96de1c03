import json
import sys

import pytest

from graft.cli.output import print_json, print_table
from graft.report.quantities import shape, size

ROWS = [("a", 1, 0.123456), ("bb[0]", 12, 1e-9), ("c", 3, 162300.4)]
PLAIN = "NAME   COUNT   VALUE\na          1   0.123\nbb[0]     12   1e-09\nc          3  162300\n"


def test_a_table_is_plain_text_where_nobody_watches(capsys):
    print_table(("NAME", "COUNT", "VALUE"), ROWS)
    assert capsys.readouterr().out == PLAIN


def test_a_table_of_no_rows_is_its_header(capsys):
    print_table(("NAME", "COUNT"), [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_a_table_on_a_terminal_keeps_brackets(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(("NAME", "COUNT", "VALUE"), ROWS)
    printed = capsys.readouterr().out
    assert "bb[0]" in printed
    assert printed != PLAIN


def test_a_table_is_plain_where_rich_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "rich.box", None)
    print_table(("NAME", "COUNT", "VALUE"), ROWS)
    assert capsys.readouterr().out == PLAIN


def test_numbers_that_json_lacks_become_strings(capsys):
    print_json({"worst": [float("inf"), float("nan"), (1.5, None)]})
    assert json.loads(capsys.readouterr().out) == {"worst": ["inf", "nan", [1.5, None]]}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes_are_for_people(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("extents", "text"), [((1, 3), "1x3"), ((), "scalar"), (None, "?"), (("batch", None, 4), "[batch, ?, 4]")]
)
def test_shapes_are_for_people(extents, text):
    assert shape(extents) == text
