"""What `load` does with the machine code of an artifact: run it, want a signature, refuse it, or compile anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from graft.errors import ArtifactError, InputError
from graft.runtime.artifact import check, read
from graft.runtime.loaders import C_SOURCE, NATIVE, NO_SECRETS, Given, LoaderRegistry, Secrets
from graft.runtime.procedure import Module, ProgramDescription
from graft.runtime.recompilation import whole_recompiler
from graft.runtime.trust.keys import configured, read_keys
from graft.runtime.trust.signatures import accepting

Native = Literal["run", "signed", "refuse", "recompile"]
POLICIES: tuple[Native, ...] = get_args(Native)


@dataclass(frozen=True, slots=True)
class Trust:
    """A policy and, where it is ``signed``, the file of trusted keys."""

    native: Native
    keys: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, native: Native | None, keys: str | os.PathLike[str] | None) -> Trust:
        """Return what is wanted: by default ``signed`` where trusted keys are given or configured, else ``run``.

        Raise InputError where policy and keys contradict each other.
        """
        path = configured() if keys is None else keys
        policy: Native = native or ("run" if path is None else "signed")
        if policy == "signed" and path is None:
            raise InputError(
                "native='signed' needs trusted keys, and none are configured; give keys=PATH (docs/security.md)",
                spelled={"native='signed'": "--native signed", "keys=PATH": "--keys PATH"},
            )
        if policy != "signed" and keys is not None:
            raise InputError(
                f"keys are given, but native='{policy}' looks at no signature; leave one of them out",
                spelled={"keys are": "--keys is", f"native='{policy}'": f"--native {policy}"},
            )
        return cls(policy, path if policy == "signed" else None)

    def read(self, path: str | os.PathLike[str]) -> ProgramDescription:
        """Return the program in an artifact; under ``signed`` raise ArtifactError if no trusted key has signed it."""
        accept = None if self.keys is None else accepting(path, read_keys(self.keys))
        return read(path, later=True, accept=accept)

    def admit(
        self,
        path: str | os.PathLike[str],
        description: ProgramDescription,
        loaders: Iterable[Given],
        threads: int | None,
        secrets: Secrets = NO_SECRETS,
    ) -> ProgramDescription:
        """Return the program that may be run: itself or, under ``recompile``, one that is compiled here.

        Raises ArtifactError under ``refuse`` if it holds machine code, and where it cannot be compiled anew.
        """
        if self.native == "refuse":
            _refuse_code(path, code_modules(description, loaders, secrets))
        if self.native == "recompile":
            compiler = whole_recompiler()
            if compiler is None:
                raise ArtifactError(
                    f"'{path}' cannot be compiled anew: graft-compiler is not installed here", path=str(path)
                )
            check(description)
            return compiler(description, threads)
        return description


def code_modules(
    description: ProgramDescription, loaders: Iterable[Given] = (), secrets: Secrets = NO_SECRETS
) -> list[Module]:
    """Return the modules that hold machine code, or what else a loader runs as it is.

    What the runtime loads itself does; of other kinds the loader that is installed here says so, not the artifact. A
    kind that no loader here knows is not run, so it counts as data.
    """
    registry, found = LoaderRegistry(loaders, secrets), []
    for module in description.modules:
        if module.kind in (NATIVE, C_SOURCE):
            found.append(module)
            continue
        try:
            loader = registry.resolve(module)
        except ArtifactError:
            continue
        if loader is None or loader.holds_code:
            found.append(module)
    return found


def _refuse_code(path: str | os.PathLike[str], modules: list[Module]) -> None:
    if not modules:
        return
    first, rest = modules[0], len(modules) - 1
    more = f" and {rest} more" if rest else ""
    raise ArtifactError(
        f"'{path}' holds machine code, which native='refuse' does not run: module '{first.name}' (kind "
        f"'{first.kind}'){more}; native='recompile' compiles its model anew, native='signed' wants a signature",
        path=str(path), modules=[module.name for module in modules],
        spelled={f"native='{policy}'": f"--native {policy}" for policy in POLICIES},
    )  # fmt: skip
