"""Loading an artifact to a program; and what happens where a vendor's loader is missing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from graft.errors import ArtifactError
from graft.runtime.arguments import FLAG, PATH, WHOLE, optional, takes
from graft.runtime.artifact import check, read
from graft.runtime.loaders import C_SOURCE, LOADERS, NATIVE, Loader
from graft.runtime.procedure import Procedure, ProgramDescription
from graft.runtime.program import Program

if TYPE_CHECKING:
    Recompile = Callable[[ProgramDescription, Sequence[int], int | None], ProgramDescription]

COMPILER = "graft.compiler.recompile"
"""The compiler stands above the runtime and may not be installed: it is looked up by name, and only when needed."""


@takes(path=PATH, threads=optional(WHOLE), strict=FLAG, loaders=LOADERS)
def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    strict: bool = False,
    loaders: Iterable[Loader] = (),
) -> Program:
    """Return the program in an artifact, ready to run; ``threads`` is None for as many as the process may use.

    Where a module's loader is missing or fails (a vendor's library that is not installed), its region is compiled anew
    by the built-in compiler, with a warning; with ``strict``, or where no compiler is installed, that is an error.
    Raises ArtifactError for a damaged file; weights are checked when the program first runs, by its threads.
    """
    description, given = read(path, later=True), tuple(loaders)
    try:
        return Program.from_description(description, threads=threads, loaders=given)
    except MemoryError as error:
        raise ArtifactError(f"artifact '{path}' needs more memory than there is: {error}", path=str(path)) from error
    except ArtifactError as error:
        failed = [] if strict else _failing(description, given)
        recompile = _compiler() if failed else None
        if recompile is None:
            raise
        check(description)
        warnings.warn(
            f"{error.message}; {len(failed)} region{'s' * (len(failed) > 1)} compiled anew by the built-in compiler",
            RuntimeWarning,
            stacklevel=2,
        )
        return Program.from_description(recompile(description, failed, threads), threads=threads, loaders=given)


def _failing(description: ProgramDescription, loaders: tuple[Loader, ...]) -> list[int]:
    """Return the numbers of the modules that cannot be loaded, each tried by itself, but for those of many calls."""
    nothing = Procedure("main", (), (), (), ())
    failed = []
    for number, module in enumerate(description.modules):
        if module.kind in (NATIVE, C_SOURCE):
            continue
        alone = replace(description, procedures=(nothing,), variants=(), modules=(module,), constants={})
        try:
            Program.from_description(alone, threads=1, loaders=loaders)
        except ArtifactError:
            failed.append(number)
    return failed


def _compiler() -> Recompile | None:
    """Return the compiler's function, or None where it is not installed."""
    try:
        found: Recompile = import_module(COMPILER).recompile
    except ImportError:
        return None
    return found
