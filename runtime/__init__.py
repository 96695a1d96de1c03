"""Modules, loaders, executor and artifact: what a deployed program needs, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.runtime.loading import load

__all__ = ["include_dir", "load"]


def include_dir() -> str:
    """Return the folder of the C headers: ``cc -I$(python -m graft.runtime --include-dir)`` finds graft/runtime.h."""
    return str(Path(__file__).resolve().parent / "native" / "include")


if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "load":
            raise AttributeError(
                f"module 'graft.runtime' has no attribute '{name}'; the public names are {', '.join(__all__)}"
            )
        from graft.runtime.loading import load

        globals()["load"] = load
        return load
