"""The ledger of expected failures: a line for each, ``NAME REASON``; what stands there and passes is a failure.

    # the library's maximum drops NaN
    1/Relu/*-special       max(NaN, 0) is 0 in npu 2.1: issue 12
    ~1/Gelu/gelu_default   misses by one rounding on processors without fused multiply-adds

A name may end, or have parts, in ``*``. A tilde in front says that the machine decides: the case may pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from graft.errors import GraftError

Given = str | os.PathLike[str] | Mapping[str, str] | None
"""What `conformance` takes as its ledger: a file, or names with their reasons."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line."""

    name: str
    reason: str
    may_pass: bool = False

    def matches(self, case: str) -> bool:
        """Whether the entry is about a case."""
        return fnmatchcase(case, self.name)

    def is_of(self, level: int, subject: str) -> bool:
        """Whether every case of the entry is one of a group."""
        return self.name.split("/")[:2] == [str(level), subject]


def read(given: Given) -> tuple[Entry, ...]:
    """Return the entries of a ledger; raise GraftError for a file that cannot be read, or a line without a reason."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return _distinct("the ledger", (_entry("the ledger", f"{name} {why}") for name, why in given.items()))
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraftError(f"ledger '{path}' cannot be read: {error}; make it, or give none", path=str(path)) from error
    lines = (line.strip() for line in text.splitlines())
    where = f"ledger '{path.name}'"
    return _distinct(where, (_entry(where, line) for line in lines if line and not line.startswith("#")))


def entry_of(ledger: Iterable[Entry], name: str) -> Entry | None:
    """Return the line that is about a case."""
    return next((one for one in ledger if one.matches(name)), None)


def _entry(where: str, line: str) -> Entry:
    name, _, reason = line.partition(" ")
    plain = name.removeprefix("~")
    if plain.count("/") < 2 or not plain[:1].isdigit():
        raise GraftError(f"{where}: '{plain}' names no case; write LEVEL/SUBJECT/CASE, as in 1/Relu/*-special")
    if not reason.strip():
        raise GraftError(f"{where}: '{plain}' has no reason; write it behind the name")
    return Entry(plain, reason.strip(), name.startswith("~"))


def _distinct(where: str, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in found:
            raise GraftError(f"{where}: '{entry.name}' stands twice; leave one of them out")
        found[entry.name] = entry
    return tuple(found.values())
