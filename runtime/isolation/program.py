"""A program of which some modules run in processes of their own, and what it does when one is lost."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from graft.errors import ArtifactError, RunError
from graft.runtime.artifact import check
from graft.runtime.isolation.connection import Origin, Supervision, WorkerError, isolated
from graft.runtime.isolation.options import Isolation, Isolations, isolations, isolations_of
from graft.runtime.isolation.sandbox import require
from graft.runtime.loaders import NO_SECRETS, Given, LoaderRegistry, PluginFile, Secrets, apart, found_by_name
from graft.runtime.objects import require_runtime
from graft.runtime.program import Program, check_threads, native_program
from graft.runtime.recompilation import recompiler

if TYPE_CHECKING:
    import graft.runtime._native as _native
    from graft.runtime.procedure import Module, Procedure, ProgramDescription

T = TypeVar("T")


def loaded(
    description: ProgramDescription,
    threads: int | None,
    loaders: Iterable[Given] = (),
    isolation: Isolations | None = None,
    secrets: Secrets = NO_SECRETS,
) -> Program:
    """Return a program in this process, but for the modules of plugins that are to be isolated.

    ``isolation`` None stands for what the program's own metadata say. Raises as `Program.from_description` does,
    and UnsupportedError where a sandbox is wanted and there is none.
    """
    how = isolations_of(description.metadata) if isolation is None else isolations(isolation)
    how = {plugin: one for plugin, one in how.items() if one.run}
    if not any(module.plugin in how for module in description.modules):
        return Program.from_description(description, threads=threads, loaders=loaders, secrets=secrets)
    if any(one.sandbox for one in how.values()):
        require()
    return IsolatedProgram(description, threads, tuple(loaders), how, secrets)


def _is_for(one: Given, module: Module) -> bool:
    if isinstance(one, PluginFile):
        return False
    return str(one.name) == module.backend if isinstance(one, type) else one.kind == module.kind


class IsolatedProgram(Program):
    """A program whose isolated modules may be lost: a call is tried again, or goes on with regions compiled anew.

    Counts of both are in ``lost`` and ``replaced``, by the names of modules. Programs may have ``processes`` together.
    """

    def __init__(
        self,
        description: ProgramDescription,
        threads: int | None,
        loaders: tuple[Given, ...],
        how: Mapping[str, Isolation],
        secrets: Secrets = NO_SECRETS,
        processes: Supervision | None = None,
    ) -> None:
        self._wanted, self._loaders, self._how, self._secrets = threads, loaders, how, secrets
        self._supervision = processes or Supervision(any(one.sandbox for one in how.values()))
        self._lock = threading.Lock()
        self.lost: dict[str, int] = {}
        self.replaced: tuple[str, ...] = ()
        super().__init__(self._load(description), description)
        self._is_plain = False

    def _load(self, description: ProgramDescription) -> _native.Program:
        threads = check_threads(self._wanted)
        require_runtime(description)
        registry = LoaderRegistry(self._loaders, self._secrets)
        mine = [module for module in description.modules if module.plugin in self._how]
        kinds = apart([(f"{one.kind}, isolated for {one.plugin}", one.options) for one in mine])
        here, found = registry.resolve_all([one for one in description.modules if one.plugin not in self._how])
        for kind in dict.fromkeys(kinds):
            rows = [one for one, its in zip(mine, kinds, strict=True) if its == kind]
            origin = Origin(rows[0], registry.options_of(rows[0]), self._given(rows[0]))
            found[kind] = isolated(kind, rows, origin, self._how[rows[0].plugin], threads, self._supervision)
        renamed, others = iter(kinds), iter(here)
        modules = tuple(
            replace(one, kind=next(renamed)) if one.plugin in self._how else next(others) for one in description.modules
        )
        return native_program(replace(description, modules=modules), found, threads, shared=True)

    def _given(self, module: Module) -> Given | None:
        """Return what another process finds a module's loader by; None where the plugin's name is enough."""
        for one in self._loaders:
            if isinstance(one, PluginFile) and one.plugin == module.plugin:
                return one
        if found_by_name(module.plugin):
            return None
        return next((one for one in self._loaders if _is_for(one, module)), None)

    def _run_on(self, arrays: tuple[Any, ...], outputs_on: object, end: int, cancel: _native.CancelToken | None) -> Any:
        """Run the program as `Program` does; a call that loses a process is tried again, and ends no later."""
        return self._tried(lambda: super(IsolatedProgram, self)._run_on(arrays, outputs_on, end, cancel))

    def timed(self, *arrays: Any) -> tuple[Procedure, list[int]]:
        """Run the program as `Program` does; a call that loses a process is tried again."""
        return self._tried(lambda: super(IsolatedProgram, self).timed(*arrays))

    def _tried(self, call: Callable[[], T]) -> T:
        losses: dict[str, int] = {}
        while True:
            native = self._native
            try:
                return call()
            except RunError as error:
                lost = error.__cause__
                if not isinstance(lost, WorkerError):
                    raise
                module, how = str(lost.facts["module"]), self._how[str(lost.facts["plugin"])]
                losses[module] = losses.get(module, 0) + 1
                if not self._may_go_on(module, how, losses[module], native, lost):
                    raise

    def _may_go_on(self, module: str, how: Isolation, losses: int, native: _native.Program, lost: WorkerError) -> bool:
        """Return whether the call is to be tried again; replace the module first if it was tried often enough."""
        with self._lock:
            self.lost[module] = self.lost.get(module, 0) + 1
            if losses <= how.retries:
                warnings.warn(f"{lost.message}; the call is tried again", RuntimeWarning, stacklevel=5)
                return True
            if native is not self._native:  # another call has replaced it
                return True
            return how.fallback and self._replace(module, lost)

    def _replace(self, name: str, lost: WorkerError) -> bool:
        numbers = [number for number, module in enumerate(self.description.modules) if module.name == name]
        recompile = recompiler()
        if recompile is None or not numbers:
            return False
        try:
            check(self.description)
            description = recompile(self.description, numbers, self._wanted)
            native = self._load(description)
        except ArtifactError as error:
            lost.add_note(f"and it cannot be compiled anew: {error.message}")
            return False
        warnings.warn(
            f"{lost.message}; '{name}' is compiled anew by the built-in compiler", RuntimeWarning, stacklevel=6
        )
        self.replaced += (name,)
        self._native, self.description = native, description
        return True
