"""What the user asks of a plan or a compilation, as one object; and the choice of backends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graft.compiler.backend_passes import passes_of
from graft.compiler.compile_options import compile_options
from graft.compiler.configuration import configuration
from graft.compiler.faults import forgiven_of
from graft.compiler.given_schedules import of_version
from graft.compiler.specialize import Specialize, label_of, narrowed
from graft.compiler.stitching.most_memory import Memory
from graft.compiler.tuned_dims import without_numbers
from graft.core.backend_spec import split_backends, texts_of
from graft.core.machine.host import available_threads
from graft.core.machine.rows import NATIVE
from graft.core.machine.target import OPTIMISATIONS
from graft.core.operators.definition.table import OPERATORS
from graft.core.passes.normalize import PASSES
from graft.core.tuning.options import remaining, tune_options
from graft.errors import PlanError, UnsupportedError
from graft.partition.policy import PLACEMENTS, PlacementMode, Policy
from graft.plugins.backend import Backend
from graft.plugins.options.values import parsed
from graft.plugins.registry.manager import PluginManager
from graft.runtime.foreign import kind_of, said, shown
from graft.runtime.isolation.options import Isolation, Isolations, isolations

if TYPE_CHECKING:
    import os

    from graft.core.graph.dimensions import Dims
    from graft.core.machine.target import CompileOptions
    from graft.core.tuning.options import TuneOptions
    from graft.partition.plan import Plan

Backends = str | Backend | Iterable[str | Backend] | None
"""Texts or objects in order of preference, one or several; None for all that are installed.

A text is a name, with options as in ``npu:bits=8,mode=fast``, or several with commas between.
"""
EXAMPLE = '; write backends=["onednn", "llvm"]'


@cache
def plugins(isolated: frozenset[tuple[str, Isolation]] = frozenset()) -> PluginManager:
    """Return the plugin manager of this process; it finds the installed plugins on first use.

    Of those that are ``isolated`` nothing is imported here: that is another manager.
    """
    settings = configuration()
    return PluginManager(settings.disabled, isolation=dict(isolated), limits=settings.limits)


def ask_plugins() -> None:
    """Load the installed plugins, which registers the operators and datatypes that they bring."""
    plugins().plugins()


OPERATORS.discover = ask_plugins


def choose(backends: Backends, manager: PluginManager | None = None) -> list[Backend]:
    """Return backends in order of preference: named ones, given objects, or all that are installed, by priority.

    Raises PlanError for what is neither a name nor a backend, and for a backend that is listed twice.
    """
    manager = manager or plugins()
    if backends is None:
        chosen = manager.backends(None)
    else:
        chosen = []
        for one in listed(backends):
            chosen += [manager.admit(one)] if isinstance(one, Backend) else _named(one, manager)
    if not chosen:
        raise UnsupportedError("no backend was chosen; `graft backends doctor` says which are installed")
    names = [backend.name for backend in chosen]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"backend '{name}' is listed twice; list each backend once", backend=name)
    return chosen


def _named(text: str, manager: PluginManager) -> list[Backend]:
    """Return the backends that a text names, with the options that it gives them; raise OptionError for those."""
    found: list[Backend] = []
    for name, texts in split_backends(text):
        (backend,) = manager.backends([name])
        found.append(backend.configured(parsed(backend.option_rows(), name, texts)) if texts else backend)
    return found


def listed(backends: str | Backend | Iterable[str | Backend]) -> list[str | Backend]:
    """Return the user's choice as a list: one text, with commas between backends, one backend, or several of both.

    Raise PlanError for anything else.
    """
    given: list[object]
    if isinstance(backends, str):
        given = list(texts_of(backends))
    elif isinstance(backends, Iterable) and not isinstance(backends, bytes | Mapping | type | np.ndarray):
        try:
            given = list(backends)
        except Exception as error:
            raise PlanError(f"backends cannot be listed: {kind_of(error)}: {said(error)}{EXAMPLE}") from error
    else:
        given = [backends]
    for one in given:
        if not isinstance(one, str | Backend) or not one:
            hint = f"; give {one.__name__}()" if isinstance(one, type) and issubclass(one, Backend) else ""
            raise PlanError(
                f"backends has {shown(one)}, which is neither a name nor a graft.Backend object{hint or EXAMPLE}"
            )
    return given  # type: ignore[return-value]


@dataclass(frozen=True)
class Request:
    """The options of `graft.compile` and `graft.plan`, which say what each means."""

    backends: Backends = None
    shapes: Mapping[str, Sequence[int]] | None = None
    threads: int | None = None
    target: str = NATIVE
    precision: str = "float32"
    strict: bool = False
    cache: bool = True
    tune: bool | float | TuneOptions = False
    tuned: bool = True
    without: Collection[str] = ()
    plan: Plan | None = None
    policy: Policy | None = None
    place: PlacementMode | None = None
    keep_intermediates: str | os.PathLike[str] | None = None
    manager: PluginManager | None = None
    dims: Dims | None = None
    specialize: Specialize | None = None
    memory: Memory = "binding"
    isolation: Isolations | None = None
    keep_weights: bool = False
    schedules: Mapping[str, str] = field(default_factory=dict)

    def variant(self, dims: Dims, tuned_for: float) -> Request:
        """Return the options for a version of the model with these dimensions, after so many seconds of tuning.

        A plan is of the general version: others are placed anew, on its backends.
        """
        tune = tune_options(self.tune)
        left = None if tune is None else remaining(tune, tuned_for)
        left = None if left is None else replace(left, dims=without_numbers(left, dims))
        keep = None if self.keep_intermediates is None else Path(self.keep_intermediates) / label_of(dims)
        backends = self.plan.texts if self.backends is None and self.plan is not None else self.backends
        return replace(
            self, dims=narrowed(self.dims, dims), specialize=None, tune=left or False, keep_intermediates=keep,
            backends=backends, plan=None, schedules=of_version(self.schedules, label_of(dims)),
        )  # fmt: skip

    @property
    def plugins(self) -> PluginManager:
        """The plugin manager to ask."""
        if self.manager is not None:
            return self.manager
        wanted = isolations(self.isolation or {})
        return plugins(frozenset((name, how) for name, how in wanted.items() if how.compile))

    @property
    def thread_count(self) -> int:
        """With how many threads the program is to run."""
        return self.threads or available_threads()

    @property
    def names_backends(self) -> bool:
        """Whether the user said, by name or by a plan, which backends to take."""
        return self.backends is not None or self.plan is not None

    def chosen(self) -> list[Backend]:
        """Return the backends in order of preference, those of the plan if no others are given; raise PlanError."""
        return list(self._chosen)

    @cached_property
    def _chosen(self) -> list[Backend]:
        wanted = self.plan.texts if self.backends is None and self.plan is not None else self.backends
        return choose(wanted, self.plugins)

    def isolated(self, chosen: Sequence[Backend]) -> dict[str, Isolation]:
        """Return how plugins are to be isolated, by name; raise PlanError for a name that is none of the backends'."""
        plugin_of = {backend.name: getattr(backend, "plugin", backend.name) for backend in chosen}
        found = {}
        for name, how in isolations(self.isolation or {}).items():
            if name not in plugin_of and name not in plugin_of.values():
                raise PlanError(
                    f"isolation names '{name}', which is none of the backends {', '.join(plugin_of)}", backend=name
                )
            plugin = plugin_of.get(name, name)
            if plugin != name and how.compile:  # it was imported here before anybody knew whose the backend is
                raise PlanError(
                    f"isolation names backend '{name}' of plugin '{plugin}'; name the plugin, '{plugin}', which is "
                    "then imported in a process of its own",
                    backend=name,
                )
            found[plugin_of.get(name, name)] = how
        return found

    def forgiven(self, chosen: Sequence[Backend]) -> Collection[str]:
        """Return the names of backends whose faults do not stop the others, isolated ones among them."""
        found = forgiven_of(chosen, self.names_backends, self.strict)
        spared = {plugin for plugin, how in self.isolated(chosen).items() if how.compile and how.fallback}
        if self.strict or not spared:
            return found
        return {*found, *(one.name for one in chosen if getattr(one, "plugin", one.name) in spared)}

    def placement(self) -> Policy:
        """Return the policy with a mode of placement; raise PlanError for an unknown one."""
        return placed(self.policy, self.place, named=self.names_backends)

    def plugin_passes(self) -> dict[str, str]:
        """Return the names of the passes that plugins and the chosen backends bring, with the plugin of each."""
        stages = [one for stage in ("import", "before-partition") for one in self.plugins.passes(stage)]
        own = [one for backend in self.chosen() for one in passes_of(backend)]
        return {one.name: one.plugin for one in (*stages, *own)}

    def options(self) -> CompileOptions:
        """Return the compile options of backends; raise GraftError for an invalid one."""
        return compile_options(
            self.threads,
            self.strict,
            self.target,
            self.cache,
            self.tuned,
            self.without,
            self.precision,
            self.plugins.machines,
            () if set(self.without) <= {*OPTIMISATIONS, *PASSES} else self.plugin_passes(),
            self.schedules,
        )


def placed(policy: Policy | None, place: PlacementMode | None, named: bool = True) -> Policy:
    """Return a policy with a mode of placement: ``place``, the policy's own, or what follows from the backends.

    Without an option, placement is ``auto`` unless the user ``named`` backends. Raises PlanError for an unknown mode.
    """
    policy = policy or Policy()
    mode = place or policy.placement or (None if named else "auto")
    if mode is not None and mode not in PLACEMENTS:
        raise PlanError(f"unknown placement '{mode}'; choose one of {', '.join(PLACEMENTS)}", place=mode)
    return replace(policy, placement=mode)
