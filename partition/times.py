"""Measured times of regions on this machine, kept in a database file between runs."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from graft.core.tuning.database import Database


class TimesDatabase(MutableMapping[str, float]):
    """Seconds by key, in a file that several processes may use at a time (`Database`).

    Every access raises DatabaseError if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, "times", "key TEXT PRIMARY KEY, seconds REAL NOT NULL", "measured times")

    def __getitem__(self, key: str) -> float:
        rows = self._database.rows("SELECT seconds FROM times WHERE key = ?", key)
        if not rows:
            raise KeyError(key)
        return float(rows[0][0])

    def __setitem__(self, key: str, seconds: float) -> None:
        self._database.write("INSERT OR REPLACE INTO times VALUES (?, ?)", key, seconds)

    def __delitem__(self, key: str) -> None:
        if not self.path.exists() or not self._database.write("DELETE FROM times WHERE key = ?", key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter([str(row[0]) for row in self._database.rows("SELECT key FROM times ORDER BY key")])

    def __len__(self) -> int:
        rows = self._database.rows("SELECT count(*) FROM times")
        return int(rows[0][0]) if rows else 0

    def forget(self) -> int:
        """Forget all times; return how many there were."""
        return self._database.clear()
