"""Tunings as text: what a file has, and which files are none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from graft.core.schedule.parameters import ScheduleParameters
from graft.core.tuning.exchange import facts, read_rows, write_rows
from graft.core.tuning.tunings import Row, Tuning, Tunings
from graft.errors import TuningError

TUNING = Tuning("matmul 4x5", ScheduleParameters("split j 8 -> j0 j\n"), 1e-3, 2e-3, 2, "[]", "2026-11-30, Graft 1")
ROWS = [Row("a", "here", "now", TUNING), Row("b", "there", "now", Tuning("x", None, 1.0, 1.0, 3))]


def test_rows_survive_the_way_through_a_file(tmp_path: Path) -> None:
    assert write_rows(ROWS, tmp_path / "tuned.json") == 2
    assert read_rows(tmp_path / "tuned.json") == ROWS


def test_merging_keeps_what_has_come_further_and_leaves_machines_apart(tmp_path: Path) -> None:
    tunings = Tunings(tmp_path / "tuned.sqlite3", "here", "now")
    further = Tuning("matmul 4x5", None, 1e-3, 1e-3, 3)
    tunings.keep("a", further)
    assert tunings.merge(ROWS) == 1
    assert tunings.known() == {"a": further}
    assert Tunings(tunings.path, "there", "now").known() == {"b": ROWS[1].tuning}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name enclosed in double quotes"),
        ("[]", "it says that it is of version None, and this Graft reads 1"),
        ('{"tunings": 2, "rows": []}', "it says that it is of version 2, and this Graft reads 1"),
        ('{"tunings": 1, "rows": 7}', "its rows are no list, but int"),
        (
            json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"seconds": math.nan}]}),
            "row 0 has seconds = nan, which",
        ),
        (json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"untuned": -1}]}), "row 0 has untuned = -1, which must"),
        (json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"stage": -1}]}), "row 0 has stage = -1, which must be a"),
        (json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"stage": 10**30}]}), "row 0 has a stage beyond 9007"),
        (json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"label": "\ud800"}]}), "row 0 has a half of a surrogate"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"tunings": 1, "rows": [7]}', "row 0 has no workload, or one of another type"),
        (
            json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"stage": "2"}]}),
            "row 0 has no stage, or",
        ),
        (
            json.dumps({"tunings": 1, "rows": [facts(ROWS[0]) | {"parameters": {"family": "new"}}]}),
            "are of no known family",
        ),
    ],
)
def test_other_files_are_refused_by_name(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TuningError) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"the tunings '{path}' cannot be read: ")
    assert reason in str(caught.value)
