"""The built-in compiler as the runtime knows it: it stands above, may not be installed, and is looked up by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.runtime.procedure import ProgramDescription

    Recompile = Callable[[ProgramDescription, Sequence[int], int | None], ProgramDescription]
    RecompileWhole = Callable[[ProgramDescription, int | None], ProgramDescription]

COMPILER = "graft.compiler.recompile"


def recompiler() -> Recompile | None:
    """Return what compiles modules of a program anew, by their numbers; None where no compiler is installed."""
    found: Recompile | None = _found("recompile")
    return found


def whole_recompiler() -> RecompileWhole | None:
    """Return what compiles the model of a program anew, with nothing of its modules; None without a compiler."""
    found: RecompileWhole | None = _found("recompile_whole")
    return found


def _found(name: str) -> Any:
    try:
        return getattr(import_module(COMPILER), name)
    except ImportError:
        return None
