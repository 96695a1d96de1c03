"""What was measured on this machine, in SQLite files that several processes may use at a time.

A file holds one table and says whose it is (``application_id``) and of which version. It is kept in write-ahead mode,
so that readers never wait for a writer; each write is one transaction.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graft.errors import DatabaseError
from graft.runtime.system.private import FOLDER_MODE, why_not_private

log = logging.getLogger("graft.database")

APPLICATION = 0x47524654
WAIT_SECONDS = 30.0
"""How long a process waits for another one that writes."""
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Database:
    """A table ``name`` with ``columns`` (as SQL), in the file at ``path``, of what ``contents`` names for people.

    Each of the columns ``added`` since is a version; files of earlier ones get what they lack when they are opened. The
    file and its folder are made by the first write. Every access raises DatabaseError if the file is damaged, another
    program's, or of a newer version.
    """

    path: Path
    name: str
    columns: str
    contents: str
    added: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version of the files that are written."""
        return 1 + len(self.added)

    def rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of an answer; none where there is no file yet."""
        if not self.path.exists():
            return []
        with self._open() as connection:
            return connection.execute(question, values).fetchall()

    def write(self, statement: str, *values: object) -> int:
        """Carry out one statement as a transaction; return how many rows it changed."""
        try:
            self.path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise self.refusal(str(error)) from error
        with self._open() as connection:
            return connection.execute(statement, values).rowcount

    def clear(self) -> int:
        """Remove all rows; return how many there were."""
        return self.write(f"DELETE FROM {self.name}") if self.path.exists() else 0

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS)) as connection, connection:
                self._prepare(connection)
                yield connection
        except sqlite3.Error as error:
            raise self.refusal(str(error)) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check whose file it is, and make the table in a new one."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if application not in (0, APPLICATION) or (tables and self.name not in tables):
            raise self.refusal(f"it holds no table '{self.name}' of Graft")
        if version > self.version:
            raise self.refusal(f"it is of version {version}, and this Graft knows up to {self.version}")
        if self.name not in tables or application == 0 or version < self.version:
            _patiently(connection, "PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self.name} ({self.columns})")
            (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been here
            for column in self.added[max(version, 1) - 1 :]:
                connection.execute(f"ALTER TABLE {self.name} ADD COLUMN {column}")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {self.version}")
            connection.commit()

    def refusal(self, reason: str) -> DatabaseError:
        """Return the error that says why the file cannot be used, and what to do."""
        return DatabaseError(
            f"the database of {self.contents} '{self.path}' cannot be used ({reason}); delete it, or name another",
            path=str(self.path),
        )


def usable(path: Path | None, contents: str) -> Path | None:
    """Return the path of a database in the user's cache directory if it may be used, else None.

    What is in it decides what is compiled, so it is used only where nobody else can change it
    (`graft.runtime.system.private`), and only where it can be written, as SQLite needs it even for reading. Where there
    is none yet, and none can be made, nothing is lost; else a warning says what is not used.
    """
    reason = why_not_usable(path)
    if reason is not None and path is not None and (why_not_private(path) or os.path.lexists(path)):
        _warn(str(path), contents, reason)
    return path if reason is None else None


def why_not_usable(path: Path | None) -> str | None:
    """Return why a database in the user's cache directory is not used, None if it is."""
    if path is None:
        return "there is no cache directory, for neither XDG_CACHE_HOME nor HOME is an absolute path"
    reason = why_not_private(path)
    if reason is not None:
        return reason
    existing = next(folder for folder in path.parents if os.path.isdir(folder))
    writable = os.access(existing, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.W_OK))
    return None if writable else f"'{existing if not path.exists() else path}' cannot be written"


@cache
def _warn(path: str, contents: str, reason: str) -> None:
    """Say once in a process that a database is not used."""
    log.warning("the database of %s '%s' is not used: %s", contents, path, reason)


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Carry out what SQLite refuses at once, without waiting, while another process has the file."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
