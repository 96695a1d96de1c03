"""Where XNNPACK is, as Debian and others install it."""

from __future__ import annotations

from graft.plugins.c_libraries import missing_library

NAME = "libXNNPACK.so.0"
INSTALL = "apt-get install libxnnpack-dev libpthreadpool-dev"


def missing() -> str:
    """Return what to install, "" where XNNPACK is there: the note of `graft backends list`."""
    return "" if missing_library((NAME,)) is None else f"XNNPACK is not installed; {INSTALL}"
