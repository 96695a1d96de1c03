"""Measured times of regions on this machine, kept in a database file between runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from graft.errors import PlanError

SCHEMA = "CREATE TABLE IF NOT EXISTS times (key TEXT PRIMARY KEY, seconds REAL NOT NULL)"
WAIT_SECONDS = 30.0
"""How long a process waits for another one that writes."""


class TimesDatabase(MutableMapping[str, float]):
    """Seconds by key, in an SQLite file that several processes may use at a time; each write is one transaction.

    The file and its folder are made when the first time is kept. Every access raises PlanError if the file cannot be
    used as a database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, key: str) -> float:
        rows = self._rows("SELECT seconds FROM times WHERE key = ?", key)
        if not rows:
            raise KeyError(key)
        return float(rows[0][0])

    def __setitem__(self, key: str, seconds: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO times VALUES (?, ?)", (key, seconds))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        with self._open() as connection:
            connection.execute("DELETE FROM times WHERE key = ?", (key,))

    def __iter__(self) -> Iterator[str]:
        return iter([str(row[0]) for row in self._rows("SELECT key FROM times ORDER BY key")])

    def __len__(self) -> int:
        rows = self._rows("SELECT count(*) FROM times")
        return int(rows[0][0]) if rows else 0

    def _rows(self, question: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer; none where there is no file yet."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS)) as connection, connection:
                connection.execute(SCHEMA)
                yield connection
        except sqlite3.Error as error:
            raise PlanError(
                f"the database of measured times '{self.path}' cannot be used ({error}); delete it, or name another",
                path=str(self.path),
            ) from error
