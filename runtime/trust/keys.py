"""The file of trusted keys: which public keys count, from when to when, and which were revoked.

    revoked = ["5d0e..."]          # names of keys that count no more

    [[key]]
    name = "release 2026"
    public = "9f3c..."             # 64 hexadecimal digits
    from = 2026-01-01              # both days may be left out
    until = 2027-06-30

Nobody attests when a signature was made, so a key counts, with all that it has signed, from ``from`` to ``until`` (UTC)
by the clock of the machine that loads. An artifact outlives its key by a second signature, of the next one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from graft.errors import ArtifactError
from graft.runtime.system.cache_directory import user_directory

VARIABLE = "GRAFT_TRUSTED_KEYS"
"""The environment's name for the path of the file; empty: there is none, whatever the user's configuration has."""
KEY_BYTES = 32
NAME_DIGITS = 32


def key_name(public: bytes) -> str:
    """Return what names a public key in files and messages: 128 bits of the SHA-256 of its bytes."""
    return sha256(public).hexdigest()[:NAME_DIGITS]


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A row of the file."""

    label: str
    public: bytes
    since: date | None = None
    until: date | None = None

    @property
    def name(self) -> str:
        """Return the key's own name; the label is the user's."""
        return key_name(self.public)

    def fault(self, today: date) -> str:
        """Return why the key does not count on a day, "" if it does."""
        if self.since is not None and today < self.since:
            return f"is valid from {self.since} on"
        if self.until is not None and today > self.until:
            return f"was valid until {self.until}"
        return ""


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """What a file of trusted keys says."""

    path: Path
    keys: Mapping[str, TrustedKey] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()

    def fault(self, name: str, today: date | None = None) -> str:
        """Return why the key of a name does not count today, "" if it does."""
        if name in self.revoked:
            return "was revoked"
        if name not in self.keys:
            return "is not among the trusted keys"
        return self.keys[name].fault(today or datetime.now(UTC).date())


def configured() -> Path | None:
    """Return the file of trusted keys that the environment or the user's configuration names; None if there is none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    folder = user_directory("XDG_CONFIG_HOME", ".config")
    path = None if folder is None else folder / "trusted-keys.toml"
    return path if path is not None and path.exists() else None


def read_keys(path: str | os.PathLike[str]) -> TrustedKeys:
    """Return what a file says; raise ArtifactError if it cannot be read or says anything else."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        rows, revoked = table.pop("key", []), table.pop("revoked", [])
        _refuse_unknown(table)
        keys = [_key(row) for row in rows]
        if not all(isinstance(name, str) and len(name) == NAME_DIGITS for name in revoked):
            raise ValueError(f"'revoked' is no list of names of keys, which have {NAME_DIGITS} digits")
    except OSError as error:
        raise ArtifactError(
            f"cannot read the trusted keys '{path}': {error.strerror or error}", path=str(path)
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ArtifactError(f"the trusted keys '{path}' cannot be read: {error}", path=str(path)) from error
    return TrustedKeys(Path(path), {key.name: key for key in keys}, frozenset(revoked))


def _key(row: dict[str, Any]) -> TrustedKey:
    label, digits = row.pop("name", ""), row.pop("public", "")
    since, until = row.pop("from", None), row.pop("until", None)
    _refuse_unknown(row)
    for day in (since, until):
        if day is not None and type(day) is not date:
            raise ValueError(f"key '{label}' has the day {day!r}; write it as in 2026-01-31, without quotes")
    public = bytes.fromhex(digits)
    if len(public) != KEY_BYTES:
        raise ValueError(f"key '{label}' has {len(public)} bytes, an Ed25519 public key has {KEY_BYTES}")
    return TrustedKey(str(label), public, since, until)


def _refuse_unknown(table: dict[str, Any]) -> None:
    """Refuse a misspelt ``until`` or ``revoked``, which would otherwise be trust without end."""
    if table:
        raise ValueError(f"'{next(iter(table))}' is no field of it; there are revoked, key, name, public, from, until")
