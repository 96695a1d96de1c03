"""Loading an artifact to a program; and what happens where a vendor's loader is missing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace

from graft.errors import ArtifactError
from graft.runtime.arguments import FLAG, PATH, WHOLE, either, optional, takes
from graft.runtime.artifact import check
from graft.runtime.isolation.connection import WorkerError
from graft.runtime.isolation.options import ISOLATION, Isolations
from graft.runtime.isolation.program import loaded
from graft.runtime.loaders import C_SOURCE, LOADERS, NATIVE, NO_SECRETS, SECRETS, Given, Secrets
from graft.runtime.procedure import Procedure, ProgramDescription
from graft.runtime.program import Program
from graft.runtime.recompilation import recompiler
from graft.runtime.trust.policy import POLICIES, Native, Trust


@takes(
    path=PATH, threads=optional(WHOLE), strict=FLAG, loaders=LOADERS, isolation=optional(ISOLATION), secrets=SECRETS,
    native=optional(either(*POLICIES)), keys=optional(PATH),
)  # fmt: skip
def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    strict: bool = False,
    loaders: Iterable[Given] = (),
    isolation: Isolations | None = None,
    secrets: Secrets = NO_SECRETS,
    native: Native | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> Program:
    """Return the program in an artifact, ready to run; ``threads`` is None for as many as the process may use.

    ``loaders`` come before those of installed plugins: loaders, plugins' files, or classes of backends, which get the
    options that the program was compiled with. Options that are secrets are not in an artifact: they are in
    ``secrets``, as in ``{"npu": {"token": "..."}}``, or in the environment, as ``GRAFT_NPU_TOKEN``.

    Where a module's loader is missing or fails (a vendor's library that is not installed), its region is compiled anew
    by the built-in compiler, with a warning; with ``strict``, or where no compiler is installed, that is an error.
    ``isolation`` names plugins whose modules run in processes of their own, as in ``{"npu": "process"}``; by default
    those that the program was compiled with.

    ``native`` says what becomes of the machine code in the file: ``run`` runs it, as that of a shared library is run;
    ``signed`` does if a key of the file of trusted keys, ``keys``, has signed it; ``refuse`` takes no file with such
    code; ``recompile`` drops it and compiles the model inside anew. By default ``signed`` where a file of trusted keys
    is given or configured, else ``run`` (docs/security.md).
    Raises OptionError for a secret that is missing, and ArtifactError for a damaged file; weights are checked when the
    program first runs, by its threads.
    """
    trust, given = Trust.of(native, keys), tuple(loaders)
    description = trust.admit(path, trust.read(path), given, threads, secrets)
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
        try:
            other = recompile(description, failed, threads)
        except ArtifactError as second:
            raise ArtifactError(f"{error.message}; {second.message}") from error
        warnings.warn(
            f"{error.message}; {len(failed)} region{'s' * (len(failed) > 1)} compiled anew by the built-in compiler",
            RuntimeWarning,
            stacklevel=2,
        )
        return loaded(other, threads, given, isolation, secrets)


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
