"""Where what is compiled, and what is configured, is kept for a user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """Return where compiled code is kept for this user, None where there is no place."""
    return user_directory("XDG_CACHE_HOME", ".cache")


def user_directory(variable: str, folder: str) -> Path | None:
    """Return Graft's folder under what an environment variable names, else under a folder of the user's home.

    A relative path counts as none (XDG Base Directory Specification). None where neither is known: a user without an
    entry in the system's list of users, and without ``HOME``.
    """
    base = os.environ.get(variable)
    if base and Path(base).is_absolute():
        return Path(base) / "graft"
    if os.environ.get("HOME") == "":  # which `Path.home` takes for the root
        return None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / folder / "graft" if home.is_absolute() else None
