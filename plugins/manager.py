"""The plugin manager: finds plugins, loads each in its own fence, and hands out their backends.

An object, not module state: the front door owns one, tests own others.
"""

from __future__ import annotations

import difflib
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from graft.errors import GraftError, PlanError, PluginError
from graft.plugins import hooks
from graft.plugins.backend import API_LEVEL, Backend
from graft.plugins.discovery import DISTRIBUTION, PluginSource, clashes, discover
from graft.plugins.fence import FencedBackend, FencedPass, fence
from graft.plugins.json_backend import JsonBackend
from graft.plugins.module_hooks import hooks_of

if TYPE_CHECKING:
    from graft.partition.region import Region
    from graft.plugins.backend import CompiledRegion
    from graft.runtime.procedure import Module

T = TypeVar("T")
log = logging.getLogger("graft.plugins")
SUPPORTED_API_LEVELS = range(1, API_LEVEL + 1)


@dataclass(slots=True)
class Plugin:
    """A plugin and what became of it: its source, the failure that keeps it out, its backends."""

    source: PluginSource
    failure: PluginError | None = None
    trace: str = ""
    """The traceback of the failure, as text, where the plugin's own code raised."""
    disabled: bool = False
    backends: list[FencedBackend] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The plugin's name: that of its entry point, or of its file."""
        return self.source.name

    def fail(self, error: PluginError) -> None:
        """Keep the plugin out, for this reason."""
        self.failure = error
        cause = error.__cause__
        self.trace = "".join(traceback.format_exception(cause)) if cause is not None else ""
        self.backends = []


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What `graft backends` shows of a backend. ``unavailable`` says why it cannot run here, None if it can."""

    name: str
    plugin: str
    distribution: str
    version: str
    priority: int
    by_default: bool
    api_level: int
    unavailable: str | None
    composites: tuple[str, ...]
    operators: tuple[str, ...]
    library: str
    install: str
    faults: tuple[str, ...] = ()
    """What the backend raised while it was asked for these facts."""


class PluginManager:
    """The plugins of one front door.

    ``disabled`` holds plugin names, backend names or distribution names that are left out. ``sources`` replaces what is
    installed, for tests. Nothing is imported before a backend or a hook is asked for.
    """

    def __init__(self, disabled: Collection[str] = (), sources: Iterable[PluginSource] | None = None) -> None:
        self._disabled = frozenset(disabled)
        self._plugins = [Plugin(source) for source in (discover() if sources is None else sources)]
        self._hooks = pluggy.PluginManager(hooks.PROJECT)
        self._hooks.add_hookspecs(hooks)
        self._loaded = False

    # Loading

    def sources(self) -> list[PluginSource]:
        """Return what is installed, loaded or not; imports nothing."""
        return [plugin.source for plugin in self._plugins]

    def plugins(self) -> list[Plugin]:
        """Load everything and return all plugins, the failed and the disabled ones too."""
        self._load()
        return list(self._plugins)

    def load_file(self, path: str | Path) -> Plugin:
        """Load a Python file as a plugin named after it; raise PluginError if it cannot be one."""
        path = Path(path)
        if not path.is_file():
            raise PluginError(f"no plugin file '{path}'; --plugin takes the path of a Python file", plugin=path.stem)
        plugin = Plugin(PluginSource(path.stem, str(path), is_file=True))
        self._load()
        self._load_one(plugin)
        if plugin.failure is not None:
            raise plugin.failure
        self._plugins.append(plugin)
        self._refuse_shared_names()
        return plugin

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for plugin in self._plugins:
            plugin.disabled = not self._disabled.isdisjoint({plugin.name, plugin.source.distribution})
        active = [plugin for plugin in self._plugins if not plugin.disabled]
        refused = clashes(plugin.source for plugin in active)
        for plugin in active:
            if plugin.name in refused:
                providers = [source.provider for source in refused[plugin.name]]
                plugin.fail(_clash("plugin", plugin.name, providers))
            else:
                self._load_one(plugin)
        self._refuse_shared_names()

    def _load_one(self, plugin: Plugin) -> None:
        """Import the plugin, register its hooks and create its backends; a failure is kept, not raised."""
        registered: object = None
        try:
            with fence(plugin.name, f"import of {plugin.source.provider}"):
                found = plugin.source.load()
            implementations = hooks_of(plugin.name, found)
            with fence(plugin.name, "registration"):
                self._hooks.register(implementations, name=f"{plugin.source.provider}:{plugin.name}")
            registered = implementations
            create = getattr(implementations, "graft_backends", None)
            if create is not None:
                with fence(plugin.name, "graft_backends"):
                    offered = [one() if isinstance(one, type) else one for one in create()]
                plugin.backends = [self._admit(plugin, backend) for backend in offered]
            datatypes = getattr(implementations, "graft_datatypes", None)
            if datatypes is not None:
                with fence(plugin.name, "graft_datatypes"):
                    brought = list(datatypes())
                _admit_datatypes(f"plugin '{plugin.name}'", brought)
            operators = getattr(implementations, "graft_operators", None)
            if operators is not None:
                with fence(plugin.name, "graft_operators"):
                    rows = list(operators())
                _admit_operators(f"plugin '{plugin.name}'", rows)
        except GraftError as error:
            plugin.fail(_as_plugin_error(plugin.name, error))
            if registered is not None:
                self._hooks.unregister(registered)

    def _admit(self, plugin: Plugin, backend: object) -> FencedBackend:
        """Check a backend's type, name and level; raise PluginError saying what to change."""
        who = f"plugin '{plugin.name}' ({plugin.source.provider})"
        if not isinstance(backend, Backend):
            raise PluginError(
                f"{who}: graft_backends gave {type(backend).__name__}; give classes or instances of graft.Backend",
                plugin=plugin.name,
            )
        _require_sound(who, plugin.name, backend, plugin.source.distribution)
        install = f"pip install {plugin.source.distribution}" if plugin.source.distribution else ""
        return FencedBackend(backend, plugin.name, "" if plugin.source.distribution == DISTRIBUTION else install)

    def admit(self, backend: Backend) -> FencedBackend:
        """Return a backend object that the user gave, fenced as those of plugins are; raise PluginError likewise."""
        if isinstance(backend, FencedBackend):
            return backend
        _require_sound(f"backend object {type(backend).__name__}", str(backend.name), backend, "")
        return FencedBackend(backend, backend.name)

    def _refuse_shared_names(self) -> None:
        owners: dict[str, list[Plugin]] = {}
        for plugin in self._plugins:
            for backend in plugin.backends:
                owners.setdefault(backend.name, []).append(plugin)
        for name, claims in owners.items():
            if len(claims) > 1:
                error = _clash("backend", name, [plugin.source.provider for plugin in claims])
                for plugin in claims:
                    plugin.fail(error)

    # Backends

    def backends(self, names: Sequence[str] | None = None) -> list[Backend]:
        """Return the backends called ``names``, in that order; without names those that take part by default.

        The latter stand by falling priority, then name.

        Raises PlanError for a name that nobody provides or that stands twice, and the failure of the plugin that was
        to provide it. Without names, plugins that failed are left out: `plugins` has their failures.
        """
        self._load()
        found = {one.name: one for plugin in self._plugins for one in plugin.backends if one.name not in self._disabled}
        if names is None:
            chosen = [one for one in found.values() if one.by_default]
            return sorted(chosen, key=lambda backend: (-backend.priority, backend.name))
        for name in names:
            if list(names).count(name) > 1:
                raise PlanError(f"backend '{name}' is named twice; name it once, in order of preference", backend=name)
        return [found[name] if name in found else self._missing(name, sorted(found)) for name in names]

    def _missing(self, name: str, known: list[str]) -> FencedBackend:
        for plugin in self._plugins:
            if plugin.failure is not None and name in (plugin.name, plugin.failure.facts.get("backend")):
                raise plugin.failure
        nearest = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{nearest[0]}'? " if nearest else ""
        if name in self._disabled or any(plugin.disabled and plugin.name == name for plugin in self._plugins):
            raise PlanError(f"backend '{name}' is disabled; leave it out, or enable its plugin", backend=name)
        raise PlanError(
            f"unknown backend '{name}'; {hint}known backends are {', '.join(known) or 'none'}", backend=name
        )

    def backend_infos(self) -> list[BackendInfo]:
        """Return what is known of every backend, by falling priority; faults are noted, not raised."""
        rows = [_info(plugin, backend) for plugin in self.plugins() for backend in plugin.backends]
        return sorted(rows, key=lambda row: (-row.priority, row.name))

    # Hooks

    def call(self, hook: str, only: Collection[str] | None = None, **arguments: Any) -> list[tuple[str, list[Any]]]:
        """Call a hook that gives things in every plugin (or ``only`` some); return (plugin, things), by plugin name.

        Raises PluginError, naming the plugin, if one of them raises or gives something else than a list.
        """
        results = []
        for plugin, function in self._implementations(hook, arguments):
            if only is None or plugin in only:
                with fence(plugin, hook):
                    results.append((plugin, list(function())))
        return results

    def _implementations(self, hook: str, arguments: Mapping[str, Any]) -> list[tuple[str, Callable[[], Any]]]:
        """Return the implementations of a hook by plugin, in order of names, bound to the arguments they ask for."""
        self._load()
        found = []
        for one in getattr(self._hooks.hook, hook).get_hookimpls():
            given = {name: arguments[name] for name in one.argnames}
            found.append((one.plugin_name.rpartition(":")[2], partial(one.function, **given)))
        return sorted(found, key=lambda pair: pair[0])

    def region_compiled(self, region: Region, compiled: Module | CompiledRegion, seconds: float) -> None:
        """Tell every plugin that a region was compiled; one that raises is logged, for it only listens."""
        arguments = {"region": region, "module": compiled, "seconds": seconds}
        for plugin, function in self._implementations("graft_region_compiled", arguments):
            try:
                with fence(plugin, "graft_region_compiled"):
                    function()
            except GraftError as error:
                log.warning("%s", error.message)

    def passes(self, stage: str) -> list[Any]:
        """Return the passes that plugins add at a stage, each a `FencedPass`, in order of the plugins' names.

        Raises PluginError for what is no pass.
        """
        return [
            FencedPass.of(one, plugin) for plugin, passes in self.call("graft_passes", stage=stage) for one in passes
        ]

    def module_loaders(self, plugins: Collection[str] | None = None) -> dict[str, Any]:
        """Return loaders by module kind: those of the hook, and those that backends bring.

        With ``plugins``, only these are asked: what a program needs is named by `Module.plugin` of its modules. Raises
        PluginError if two plugins bring a loader of one kind, or if a plugin raises.
        """
        asked = [owner for owner in self.plugins() if plugins is None or owner.name in plugins]
        results = self.call("graft_module_loaders", only=frozenset(owner.name for owner in asked))
        offers = [(plugin, loader) for plugin, loaders in results for loader in loaders]
        for owner in asked:
            for backend in owner.backends:
                with fence(owner.name, "module_loaders"):
                    offers += [(owner.name, loader) for loader in _loaders_of(backend.backend)]
        owners: dict[str, str] = {}
        found: dict[str, Any] = {}
        for plugin, loader in offers:
            if owners.setdefault(loader.kind, plugin) != plugin:
                raise _clash("module kind", loader.kind, [f"plugin '{owners[loader.kind]}'", f"plugin '{plugin}'"])
            found[loader.kind] = loader
        return found

    def loaders_for(self, modules: Sequence[Module], backends: Sequence[Backend] = ()) -> list[Any]:
        """Return the loaders of modules: those of backend objects that the user gave, then those of plugins.

        What neither has is left to the runtime, which looks for the plugin that a module names.
        """
        found = self.module_loaders({module.plugin for module in modules if module.plugin})
        for backend in backends:
            own = backend.backend if isinstance(backend, FencedBackend) else backend
            with fence(backend.name, "module_loaders"):
                found |= {loader.kind: loader for loader in _loaders_of(own)}
        kinds = {module.kind for module in modules}
        return [loader for kind, loader in found.items() if kind in kinds]


def _admit_datatypes(owner: str, datatypes: list[Any]) -> None:
    """Register a plugin's datatypes; what another manager of this process registered for it already stays."""
    from graft.datatypes.shipped import DATATYPES

    for datatype in datatypes:
        DATATYPES.admit(datatype, owner)


def _admit_operators(owner: str, operators: list[Any]) -> None:
    """Add a plugin's operators to the table, likewise."""
    from graft.core.operators.all import OPERATORS

    for operator in operators:
        OPERATORS.admit(operator, owner)


def _loaders_of(backend: Backend) -> Iterable[Any]:
    create = getattr(backend, "module_loaders", None)
    if create is None:
        return ()
    if isinstance(backend, JsonBackend) and create.__func__ is JsonBackend.module_loaders.__func__:  # type: ignore[attr-defined]
        return (backend.loader(),)  # the object itself, which its user may have configured
    loaders: Iterable[Any] = create()
    return loaders


def _info(plugin: Plugin, backend: FencedBackend) -> BackendInfo:
    source = plugin.source
    faults: list[str] = []
    faulty: str | None = "faulty: see `graft backends doctor`"
    operators = (str(rule.what) for rule in backend.backend.rules if rule.is_operator)
    return BackendInfo(
        name=backend.name,
        plugin=plugin.name,
        distribution=source.provider if source.is_file else source.distribution,
        version=source.version,
        priority=backend.priority,
        by_default=backend.by_default,
        api_level=backend.api_level,
        unavailable=_asked(backend.available, faulty, faults),
        composites=_asked(lambda: tuple(composite.name for composite in backend.patterns), (), faults),
        operators=tuple(dict.fromkeys(operators)),
        library=_asked(backend.version, "", faults),
        install=backend.install,
        faults=tuple(faults),
    )


def _asked(question: Callable[[], T], instead: T, faults: list[str]) -> T:
    """Return the answer, or ``instead`` where the plugin raises; the fault is noted."""
    try:
        return question()
    except GraftError as error:
        faults.append(error.message)
        return instead


def _as_plugin_error(plugin: str, error: GraftError) -> PluginError:
    if isinstance(error, PluginError):
        return error
    wrapped = PluginError(f"plugin '{plugin}': {error.message}", plugin=plugin)
    wrapped.__cause__ = error
    return wrapped


def _clash(what: str, name: str, providers: list[str]) -> PluginError:
    return PluginError(
        f"{what} '{name}' is claimed by {' and by '.join(providers)}; none of them is used: uninstall all but one",
        backend=name,
        plugin=name,
        providers=providers,
    )


def _require_sound(who: str, plugin: str, backend: Backend, distribution: str) -> None:
    """Raise PluginError if a backend's name or interface level cannot be used."""
    if not isinstance(backend.name, str) or not backend.name.replace("-", "_").isidentifier():
        raise PluginError(
            f"{who}: backend {type(backend).__name__} has the name {backend.name!r}; "
            "set name to letters, digits, '_' and '-', as in name = \"npu\"",
            plugin=plugin,
        )
    if backend.api_level not in SUPPORTED_API_LEVELS:
        raise PluginError(_wrong_level(who, backend, distribution), plugin=plugin)


def _wrong_level(who: str, backend: Backend, distribution: str) -> str:
    first, last = SUPPORTED_API_LEVELS[0], SUPPORTED_API_LEVELS[-1]
    supported = f"{first}" if first == last else f"{first} to {last}"
    remedy = DISTRIBUTION if backend.api_level > last else distribution or "a newer version of the plugin"
    return (
        f"{who}: backend '{backend.name}' was written for plugin interface {backend.api_level}, "
        f"this Graft supports {supported}; pip install --upgrade {remedy}"
    )
