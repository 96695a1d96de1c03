"""Modules, loaders, executor and artifact: what a deployed program needs, and nothing else."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.runtime._native import CancelToken
    from graft.runtime.export.runtime_object import library_dir
    from graft.runtime.loading import load

__all__ = ["CancelToken", "include_dir", "library_dir", "load"]
_HOMES = {
    "CancelToken": "graft.runtime._native",
    "library_dir": "graft.runtime.export.runtime_object",
    "load": "graft.runtime.loading",
}


def include_dir() -> str:
    """Return the folder of the C headers: ``cc -I$(python -m graft.runtime --include-dir)`` finds graft/runtime.h."""
    return str(Path(__file__).resolve().parent / "native" / "include")


if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(
                f"module 'graft.runtime' has no attribute '{name}'; the public names are {', '.join(__all__)}"
            )
        globals()[name] = getattr(import_module(_HOMES[name]), name)
        return globals()[name]
