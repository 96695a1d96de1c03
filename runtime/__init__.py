"""Modules, loaders, executor and artifact: what a deployed program needs, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.runtime.load import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name != "load":
        raise AttributeError(f"module 'graft.runtime' has no attribute '{name}'")
    from graft.runtime.load import load

    globals()["load"] = load
    return load
