"""The version of Graft that is installed."""

from __future__ import annotations

DISTRIBUTION = "graft-compiler"
"""The name under which installers know Graft."""


def version() -> str:
    """Return the version of Graft, ``0`` where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # 40 ms, which programs do without

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
