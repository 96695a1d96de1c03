from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import DatabaseError
from graft.partition.times import TimesDatabase


def test_a_time_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "times.sqlite3"
    TimesDatabase(path)["npu a"] = 0.25
    assert dict(TimesDatabase(path)) == {"npu a": 0.25}


def test_asking_makes_no_file(tmp_path: Path) -> None:
    times = TimesDatabase(tmp_path / "times.sqlite3")
    assert (list(times), len(times), times.get("a")) == ([], 0, None)
    assert list(tmp_path.iterdir()) == []


def test_a_time_can_be_replaced_and_forgotten(tmp_path: Path) -> None:
    times = TimesDatabase(tmp_path / "times.sqlite3")
    times["a"], times["b"], times["a"] = 1.0, 2.0, 3.0
    assert (dict(times), len(times)) == ({"a": 3.0, "b": 2.0}, 2)
    del times["a"]
    assert dict(times) == {"b": 2.0}
    with pytest.raises(KeyError):
        del times["a"]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "times.sqlite3"
    path.write_text("notes about times " * 100, encoding="utf-8")
    with pytest.raises(DatabaseError) as caught:
        TimesDatabase(path).get("a")
    assert str(caught.value) == (
        f"the database of measured times '{path}' cannot be used (file is not a database); delete it, or name another"
    )
    assert path.read_text(encoding="utf-8").startswith("notes about times")
