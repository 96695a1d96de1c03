"""Loading an artifact to a program; and what happens where a vendor's loader is missing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace

from graft.errors import ArtifactError
from graft.runtime.arguments import FLAG, PATH, WHOLE, optional, takes
from graft.runtime.artifact import check, read
from graft.runtime.isolation.connection import WorkerError
from graft.runtime.isolation.options import ISOLATION, Isolations
from graft.runtime.isolation.program import loaded
from graft.runtime.loaders import C_SOURCE, LOADERS, NATIVE, NO_SECRETS, SECRETS, Given, Secrets
from graft.runtime.procedure import Procedure, ProgramDescription
from graft.runtime.program import Program
from graft.runtime.recompilation import recompiler


@takes(
    path=PATH, threads=optional(WHOLE), strict=FLAG, loaders=LOADERS, isolation=optional(ISOLATION), secrets=SECRETS
)  # fmt: skip
def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    strict: bool = False,
    loaders: Iterable[Given] = (),
    isolation: Isolations | None = None,
    secrets: Secrets = NO_SECRETS,
) -> Program:
    """Return the program in an artifact, ready to run; ``threads`` is None for as many as the process may use.

    ``loaders`` come before those of installed plugins: loaders, plugins' files, or classes of backends, which get the
    options that the program was compiled with. Options that are secrets are not in an artifact: they are in
    ``secrets``, as in ``{"npu": {"token": "..."}}``, or in the environment, as ``GRAFT_NPU_TOKEN``.

    Where a module's loader is missing or fails (a vendor's library that is not installed), its region is compiled anew
    by the built-in compiler, with a warning; with ``strict``, or where no compiler is installed, that is an error.
    ``isolation`` names plugins whose modules run in processes of their own, as in ``{"npu": "process"}``; by default
    those that the program was compiled with.
    Raises OptionError for a secret that is missing, and ArtifactError for a damaged file; weights are checked when the
    program first runs, by its threads.
    """
    description, given = read(path, later=True), tuple(loaders)
    try:
        return loaded(description, threads, given, isolation, secrets)
    except MemoryError as error:
        raise ArtifactError(f"artifact '{path}' needs more memory than there is: {error}", path=str(path)) from error
    except (ArtifactError, WorkerError) as error:
        failed = [] if strict else _failing(description, given, isolation, secrets)
        recompile = recompiler() if failed else None
        if recompile is None:
            raise
        check(description)
        warnings.warn(
            f"{error.message}; {len(failed)} region{'s' * (len(failed) > 1)} compiled anew by the built-in compiler",
            RuntimeWarning,
            stacklevel=2,
        )
        return loaded(recompile(description, failed, threads), threads, given, isolation, secrets)


def _failing(
    description: ProgramDescription, loaders: tuple[Given, ...], isolation: Isolations | None, secrets: Secrets
) -> list[int]:
    """Return the numbers of the modules that cannot be loaded, each tried by itself, but for those of many calls."""
    nothing = Procedure("main", (), (), (), ())
    failed = []
    for number, module in enumerate(description.modules):
        if module.kind in (NATIVE, C_SOURCE):
            continue
        alone = replace(description, procedures=(nothing,), variants=(), modules=(module,), constants={})
        try:
            loaded(alone, 1, loaders, isolation, secrets)
        except (ArtifactError, WorkerError):
            failed.append(number)
    return failed
