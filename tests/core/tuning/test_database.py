"""Databases of measurements: whose file it is, and what is refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from graft.core.tuning.database import APPLICATION, Database, usable, why_not_usable
from graft.errors import DatabaseError


def numbers(path: Path) -> Database:
    return Database(path, "numbers", "key TEXT PRIMARY KEY, value REAL", "numbers")


def message(database: Database) -> str:
    with pytest.raises(DatabaseError) as caught:
        database.rows("SELECT * FROM numbers")
    assert caught.value.path == str(database.path)
    return str(caught.value)


def foreign(path: Path, *statements: str) -> Database:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return numbers(path)


def test_what_is_written_is_there_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "new" / "numbers.sqlite3"
    assert numbers(path).write("INSERT INTO numbers VALUES (?, ?)", "a", 2.5) == 1
    assert numbers(path).rows("SELECT * FROM numbers") == [("a", 2.5)]
    assert numbers(path).clear() == 1
    assert numbers(path).rows("SELECT * FROM numbers") == []


def test_asking_makes_no_file(tmp_path: Path) -> None:
    database = numbers(tmp_path / "numbers.sqlite3")
    assert (database.rows("SELECT * FROM numbers"), database.clear()) == ([], 0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_says_whose_it_is_and_does_not_block_readers(tmp_path: Path) -> None:
    database = numbers(tmp_path / "numbers.sqlite3")
    database.write("INSERT INTO numbers VALUES ('a', 1)")
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute("BEGIN IMMEDIATE")
        assert database.rows("SELECT key FROM numbers") == [("a",)]


def test_a_file_of_before_the_mark_is_adopted(tmp_path: Path) -> None:
    database = foreign(
        tmp_path / "old.sqlite3",
        "CREATE TABLE numbers (key TEXT PRIMARY KEY, value REAL)",
        "INSERT INTO numbers VALUES ('a', 1)",
    )
    assert database.rows("SELECT * FROM numbers") == [("a", 1.0)]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite3"
    path.write_text("notes " * 1000, encoding="utf-8")
    assert message(numbers(path)) == (
        f"the database of numbers '{path}' cannot be used (file is not a database); delete it, or name another"
    )


@pytest.mark.parametrize(
    "statements", [("CREATE TABLE bookmarks (url TEXT)",), ("PRAGMA application_id = 7",)], ids=["tables", "mark"]
)
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = tmp_path / "numbers.sqlite3"
    database = foreign(path, *statements)
    before = path.read_bytes()
    assert message(database) == (
        f"the database of numbers '{path}' cannot be used (it holds no table 'numbers' of Graft); "
        "delete it, or name another"
    )
    with pytest.raises(DatabaseError):
        database.write("INSERT INTO numbers VALUES ('a', 1)")
    assert path.read_bytes() == before


def test_a_database_of_a_newer_graft_is_left_alone(tmp_path: Path) -> None:
    database = numbers(tmp_path / "numbers.sqlite3")
    database.write("INSERT INTO numbers VALUES ('a', 1)")
    newer = foreign(database.path, "PRAGMA user_version = 9")
    assert message(newer) == (
        f"the database of numbers '{database.path}' cannot be used (it is of version 9, and this Graft knows up to 1); "
        "delete it, or name another"
    )


def test_a_file_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    first = numbers(tmp_path / "numbers.sqlite3")
    first.write("INSERT INTO numbers VALUES ('a', 1)")
    added = ("unit TEXT NOT NULL DEFAULT ''", "note TEXT NOT NULL DEFAULT '-'")
    second = replace(first, added=added)
    assert second.rows("SELECT * FROM numbers") == [("a", 1.0, "", "-")]
    assert second.write("INSERT INTO numbers VALUES ('b', 2, 's', 'new')") == 1
    assert replace(first, added=added).rows("SELECT * FROM numbers WHERE key = 'b'") == [("b", 2.0, "s", "new")]
    assert "it is of version 3, and this Graft knows up to 1" in message(first)
    new = replace(second, path=tmp_path / "new.sqlite3")
    assert new.write("INSERT INTO numbers VALUES ('b', 2, 's', 'new')") == 1


def test_a_table_of_other_columns_is_named(tmp_path: Path) -> None:
    database = foreign(tmp_path / "numbers.sqlite3", "CREATE TABLE numbers (name TEXT)")
    with pytest.raises(DatabaseError, match="no such column: value"):
        database.rows("SELECT value FROM numbers")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DatabaseError, match=r"the database of numbers '.*' cannot be used"):
        numbers(tmp_path / "file" / "numbers.sqlite3").write("INSERT INTO numbers VALUES ('a', 1)")


def test_a_database_that_others_may_change_is_not_used(tmp_path, caplog):
    path = tmp_path / "shared" / "times.sqlite3"
    assert usable(path, "measured times") == path
    path.parent.mkdir()
    path.parent.chmod(0o777)
    assert usable(path, "measured times") is None
    assert usable(path, "measured times") is None
    assert [record.message for record in caplog.records] == [
        f"the database of measured times '{path}' is not used: the folder '{path.parent}' may be written by everybody "
        "(mode 0777)"
    ]
    path.parent.chmod(0o755)
    path.touch()
    path.chmod(0o666)
    assert why_not_usable(path) == f"the file '{path}' may be written by everybody (mode 0666)"
    path.chmod(0o600)
    assert usable(path, "measured times") == path


def test_a_database_that_cannot_be_written_is_not_used(tmp_path, monkeypatch, caplog):
    path = tmp_path / "deeper" / "times.sqlite3"
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert why_not_usable(path) == f"'{tmp_path}' cannot be written"
    assert usable(path, "written times") is None
    assert not caplog.records, "there is nothing that is not used"
    path.parent.mkdir()
    path.touch()
    assert usable(path, "written times") is None
    assert [record.message for record in caplog.records] == [
        f"the database of written times '{path}' is not used: '{path}' cannot be written"
    ]


def test_without_a_cache_directory_there_is_no_database(caplog):
    assert usable(None, "measured times") is None
    assert why_not_usable(None) == (
        "there is no cache directory, for neither XDG_CACHE_HOME nor HOME is an absolute path"
    )
    assert not caplog.records
