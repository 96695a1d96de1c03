"""Modules, loaders, executor and artifact: what a deployed program needs, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.runtime.loading import load

__all__ = ["load"]


if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "load":
            raise AttributeError(f"module 'graft.runtime' has no attribute '{name}'")
        from graft.runtime.loading import load

        globals()["load"] = load
        return load
