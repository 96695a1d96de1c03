"""Where what is compiled is kept for a user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """Return where compiled code is kept for this user: under ``XDG_CACHE_HOME``, else ``~/.cache``.

    A relative path counts as none (XDG Base Directory Specification). None where neither is known: a user without an
    entry in the system's list of users, and without ``HOME``.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "graft"
    if os.environ.get("HOME") == "":  # which `Path.home` takes for the root
        return None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "graft" if home.is_absolute() else None
