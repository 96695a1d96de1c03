"""The built-in compiler as the runtime knows it: it stands above, may not be installed, and is looked up by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.runtime.procedure import ProgramDescription

    Recompile = Callable[[ProgramDescription, Sequence[int], int | None], ProgramDescription]

COMPILER = "graft.compiler.recompile"


def recompiler() -> Recompile | None:
    """Return what compiles modules of a program anew, by their numbers; None where no compiler is installed."""
    try:
        found: Recompile = import_module(COMPILER).recompile
    except ImportError:
        return None
    return found
