"""The plugin manager: finds plugins, loads each in its own fence, and hands out their backends.

An object, not module state: the front door owns one, tests own others.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pluggy

from graft.core.backend_spec import with_label, without_label
from graft.errors import GraftError, PlanError, PluginError
from graft.plugins import hooks
from graft.plugins.backend import Backend
from graft.plugins.discovery import PluginSource, clashes, discover
from graft.plugins.registry.declaration import declaration_of
from graft.plugins.registry.deprecations import deprecated_uses, warn
from graft.plugins.registry.fence import FencedBackend, fence, trace_of, with_options
from graft.plugins.registry.fenced_pass import FencedPass
from graft.plugins.registry.information import BackendInfo, information
from graft.plugins.registry.lost_state import lost_state
from graft.plugins.registry.machine_rows import checked_machines
from graft.plugins.registry.module_hooks import hooks_of
from graft.plugins.registry.module_loaders import by_kind, checked_loaders, loaders_of
from graft.plugins.time_limit import LIMITS, Limits, TimeLimitExceeded, time_limit
from graft.runtime.arguments import instance
from graft.runtime.foreign import kind_of
from graft.runtime.loaders import PluginFile, loads, made_for
from graft.runtime.system.plugin_files import name_of

if TYPE_CHECKING:
    from graft.core.machine.machine import Machine
    from graft.partition.region import Region
    from graft.plugins.backend import CompiledRegion
    from graft.runtime.isolation.options import Isolation
    from graft.runtime.procedure import Module

T = TypeVar("T")
log = logging.getLogger("graft.plugins")


@dataclass(slots=True)
class Plugin:
    """A plugin and what became of it: its source, the failure that keeps it out, its backends."""

    source: PluginSource
    failure: PluginError | None = None
    trace: str = ""
    """The traceback of the failure, as text, where the plugin's own code raised."""
    disabled: bool = False
    loaded: bool = False
    """Whether loading it has come to an end, good or bad."""
    named: bool = False
    """Whether the user named it, so that its faults stop what was asked for; others are left out with a warning."""
    hooks: object = None
    """What is registered with pluggy."""
    backends: list[FencedBackend] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    deprecated: list[str] = field(default_factory=list)
    """The warnings of it: members and hooks that a later level of the interface lacks."""

    @property
    def name(self) -> str:
        """The plugin's name: that of its entry point, or of its file."""
        return self.source.name

    def fail(self, error: PluginError) -> None:
        """Keep the plugin out, for this reason."""
        self.failure = error
        self.trace = trace_of(error.__cause__)
        self.backends, self.machines = [], []


class PluginManager:
    """The plugins of one front door.

    ``disabled`` holds plugin names, backend names or distribution names that are left out. ``sources`` replaces what is
    installed, for tests. Plugins that ``isolation`` names are imported in processes of their own, and asked there.
    ``limits`` bound the time that a plugin's code takes in this process.
    Nothing is imported before a backend or a hook is asked for.
    """

    def __init__(
        self,
        disabled: Collection[str] = (),
        sources: Iterable[PluginSource] | None = None,
        isolation: Mapping[str, Isolation] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        self._stopped: dict[tuple[str, str], str] = {}
        self._disabled = frozenset(disabled)
        self._isolation = {name: how for name, how in (isolation or {}).items() if how.compile}
        self._plugins = [Plugin(source) for source in (discover() if sources is None else sources)]
        self._hooks = pluggy.PluginManager(hooks.PROJECT)
        self._hooks.add_hookspecs(hooks)
        self._lock = threading.RLock()
        self._loading = False
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
            raise PluginError(f"no plugin file '{path}'; give the path of a Python file", plugin=path.stem)
        plugin = Plugin(PluginSource(name_of(path), str(path.absolute()), is_file=True), named=True)
        self._load()
        self._load_one(plugin)
        if plugin.failure is not None:
            raise plugin.failure
        self._plugins.append(plugin)
        self._refuse_shared_names()
        if plugin.failure is not None:
            raise plugin.failure
        return plugin

    def _load(self) -> None:
        """Load what is not loaded yet; a plugin that asks for the others while it is loaded gets those before it.

        Interrupted, it leaves every plugin loaded or untouched: the next call goes on.
        """
        if self._loaded:
            return
        with self._lock:
            if self._loading:
                return
            self._loading = True
            try:
                self._load_all()
            finally:
                self._loading = False

    def _load_all(self) -> None:
        for plugin in self._plugins:
            plugin.disabled = not self._disabled.isdisjoint({plugin.name, plugin.source.distribution})
        active = [plugin for plugin in self._plugins if not plugin.disabled]
        refused = clashes(plugin.source for plugin in active)
        for plugin in active:
            claims = refused.get(plugin.name, [])
            if plugin.loaded:
                continue
            if claims and not (plugin.source.is_own and sum(source.is_own for source in claims) == 1):
                plugin.fail(_clash("plugin", plugin.name, claims))
                plugin.loaded = True
            else:
                self._load_one(plugin)
        self._refuse_shared_names()
        self._loaded = True

    def _load_one(self, plugin: Plugin) -> None:
        """Import the plugin, register its hooks and create its backends; a failure is kept, not raised."""
        try:
            with fence(plugin.name, f"import of {plugin.source.provider}"), time_limit(self._limits.importing):
                found = None if plugin.name in self._isolation else plugin.source.load()
            with fence(plugin.name, "its registration"), time_limit(self._limits.load):
                self._bring_in(plugin, found)
        except GraftError as error:
            self._forget(plugin, _as_plugin_error(plugin.name, error))
        except BaseException:
            self._take_out(plugin)
            plugin.backends, plugin.machines = [], []
            raise
        plugin.loaded = True
        warn(plugin.deprecated)

    def _bring_in(self, plugin: Plugin, found: object) -> None:
        """Register what was imported, or what another process imports."""
        how = self._isolation.get(plugin.name)
        if how is not None:
            from graft.plugins.isolation.proxy import RemotePlugin  # needs onnx, which listing does not

            remote = RemotePlugin(plugin.source, how, self._limits)
            plugin.backends = [self._admit(plugin, backend) for backend in remote.backends()]
            plugin.machines = checked_machines(plugin.name, remote.machines())
            return
        implementations = hooks_of(plugin.name, found)
        self._hooks.register(implementations, name=f"{plugin.source.provider}:{plugin.name}")
        plugin.hooks = implementations
        create = getattr(implementations, "graft_backends", None)
        if create is not None:
            with fence(plugin.name, "graft_backends"):
                offered = [one() if isinstance(one, type) else one for one in create()]
            plugin.backends = [self._admit(plugin, backend) for backend in offered]
            _require_distinct(plugin)
        datatypes = getattr(implementations, "graft_datatypes", None)
        if datatypes is not None:
            with fence(plugin.name, "graft_datatypes"):
                brought = list(datatypes())
                _admit_datatypes(f"plugin '{plugin.name}'", brought)
        machines = getattr(implementations, "graft_machines", None)
        if machines is not None:
            with fence(plugin.name, "graft_machines"):
                given = list(machines())
            plugin.machines = checked_machines(plugin.name, given)
        operators = getattr(implementations, "graft_operators", None)
        if operators is not None:
            with fence(plugin.name, "graft_operators"):
                rows = list(operators())
                _admit_operators(f"plugin '{plugin.name}'", rows)
        theirs = [one.backend for one in plugin.backends]
        plugin.deprecated = list(deprecated_uses(f"plugin '{plugin.name}'", implementations, theirs))

    def _take_out(self, plugin: Plugin) -> None:
        """Undo the registration of a plugin's hooks."""
        if plugin.hooks is not None:
            self._hooks.unregister(plugin.hooks)
            plugin.hooks = None

    def _forget(self, plugin: Plugin, error: PluginError) -> None:
        """Keep a plugin out, its hooks too."""
        self._take_out(plugin)
        plugin.fail(error)

    def _admit(self, plugin: Plugin, backend: object) -> FencedBackend:
        """Check a backend and what it states of itself; raise PluginError saying what to change."""
        source = plugin.source
        who = f"plugin '{plugin.name}' ({source.provider})"
        if not isinstance(backend, Backend):
            raise PluginError(
                f"{who}: graft_backends gave {kind_of(backend)}; give classes or instances of graft.Backend",
                plugin=plugin.name,
            )
        with fence(plugin.name, f"the attributes of {kind_of(backend)}"):
            declaration = declaration_of(backend, who, plugin.name, source.distribution)
        install = f"pip install {source.distribution}" if source.distribution and not source.is_own else ""
        fenced = FencedBackend(backend, plugin.name, install, declaration, self._limits)
        fenced.named = plugin.named
        return fenced

    def admit(self, backend: Backend) -> FencedBackend:
        """Return a backend object that the user gave, fenced as those of plugins are; raise PluginError likewise."""
        if isinstance(backend, FencedBackend):
            return backend
        with fence(kind_of(backend), f"the attributes of {kind_of(backend)}"):
            declaration = declaration_of(backend, f"backend object {kind_of(backend)}")
            lost = lost_state(backend)
        found = FencedBackend(backend, declaration.name, "", declaration, self._limits, lost)
        return found.called(with_label(declaration.name, backend.label)) if backend.label else found

    def _refuse_shared_names(self) -> None:
        """Refuse all plugins that claim the name of one backend or machine, but Graft's own, which cannot be hidden."""
        owners: dict[tuple[str, str], list[Plugin]] = {}
        for plugin in self._plugins:
            for backend in plugin.backends:
                owners.setdefault(("backend", backend.name), []).append(plugin)
            for machine in plugin.machines:
                owners.setdefault(("machine", machine.name), []).append(plugin)
        for (what, name), claims in owners.items():
            if len(claims) > 1:
                error = _clash(what, name, [plugin.source for plugin in claims])
                for plugin in claims:
                    if not plugin.source.is_own:
                        self._forget(plugin, error)

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
            if without_label(name) not in found:
                self._missing(without_label(name), sorted(found))
        return [found[one] if one in found else found[without_label(one)].configured({}).called(one) for one in names]

    def fallbacks(self) -> tuple[str, ...]:
        """Return the names of the backends that are there to take what others leave, the last resort at the end."""
        return tuple(backend.name for backend in self.backends() if backend.fallback)

    def _missing(self, name: str, known: list[str]) -> NoReturn:
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
        rows = [information(plugin.source, backend) for plugin in self.plugins() for backend in plugin.backends]
        return sorted(rows, key=lambda row: (-row.priority, row.name))

    def machines(self) -> dict[str, Machine]:
        """Return the machines that plugins describe, by name."""
        return {machine.name: machine for plugin in self.plugins() for machine in plugin.machines}

    # Hooks

    @contextmanager
    def _answering(self, plugin: str, hook: str) -> Iterator[None]:
        """Fence a hook and bound its time; one that has exceeded it is not called again: it is the same error."""
        if (plugin, hook) in self._stopped:
            raise PluginError(self._stopped[plugin, hook], plugin=plugin)
        try:
            with fence(plugin, hook), time_limit(self._limits.answer):
                yield
        except PluginError as error:
            if isinstance(error.__cause__, TimeLimitExceeded):
                self._stopped[plugin, hook] = error.message
            raise

    def call(self, hook: str, only: Collection[str] | None = None, **arguments: Any) -> list[tuple[str, list[Any]]]:
        """Call a hook that gives things in every plugin (or ``only`` some); return (plugin, things), by plugin name.

        Raises PluginError, naming the plugin, if one of them raises or gives something else than a list.
        """
        results = []
        for plugin, function in self._implementations(hook, arguments):
            if only is None or plugin in only:
                with self._answering(plugin, hook):
                    results.append((plugin, list(function())))
        return results

    def report_sections(self, report: Any) -> list[tuple[str, str]]:
        """Return the sections, as (title, HTML), that plugins add to a report, in order of the plugins' names.

        A plugin that is at fault is left out with a warning; one that the user named raises.
        """
        found: list[tuple[str, str]] = []
        for plugin in sorted(self.plugins(), key=lambda plugin: plugin.name):
            try:
                for _, rows in self.call("graft_report_sections", only={plugin.name}, report=report):
                    with self._answering(plugin.name, "graft_report_sections"):
                        found += [(str(title), str(html)) for title, html in rows]
            except GraftError as error:
                if plugin.named:
                    raise
                log.warning("%s; the sections of plugin '%s' are left out", error.message, plugin.name)
        return found

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
                with self._answering(plugin, "graft_region_compiled"):
                    function()
            except GraftError as error:
                log.warning("%s", error.message)

    def passes(self, stage: str) -> list[Any]:
        """Return the passes that plugins add at a stage, each a `FencedPass`, in order of the plugins' names.

        A plugin that is at fault is left out with a warning; one that the user named raises.
        """
        found = []
        for plugin in sorted(self.plugins(), key=lambda plugin: plugin.name):
            try:
                found += self.passes_of(plugin.name, stage)
            except GraftError as error:
                if plugin.named:
                    raise
                log.warning("%s; the passes of plugin '%s' are left out", error.message, plugin.name)
        return found

    def passes_of(self, name: str, stage: str) -> list[FencedPass]:
        """Return the passes that one plugin adds at a stage; raise PluginError for what it raises, or gives wrongly."""
        named = any(plugin.named for plugin in self._plugins if plugin.name == name)
        given = self.call("graft_passes", only={name}, stage=stage)
        return [FencedPass.of(one, name, named, self._limits.load) for _, passes in given for one in passes]

    def module_loaders(self, plugins: Collection[str] | None = None) -> dict[str, Any]:
        """Return loaders by module kind: those of the hook, and those that backends bring.

        With ``plugins``, only these are asked: what a program needs is named by `Module.plugin` of its modules. Raises
        PluginError if two plugins bring a loader of one kind, if a plugin raises, or for what is no loader.
        """
        asked = [owner for owner in self.plugins() if plugins is None or owner.name in plugins]
        results = self.call("graft_module_loaders", only=frozenset(owner.name for owner in asked))
        offers = [(plugin, loader) for plugin, loaders in results for loader in checked_loaders(plugin, loaders)]
        for owner in asked:
            for backend in owner.backends:
                offers += [
                    (owner.name, loader) for loader in loaders_of(backend.backend, owner.name, self._limits.answer)
                ]
        return by_kind(offers)

    def loaders_for(self, modules: Sequence[Module], backends: Sequence[Backend] = ()) -> list[Any]:
        """Return the loaders of modules: those of the backends that made them, with their options, and of plugins.

        ``backends`` come before those of plugins. What neither has is left to the runtime, which looks for the plugin
        that a module names.
        """
        owners = {module.plugin for module in modules if module.plugin}
        found = self.module_loaders(owners)
        known = {one.name: one for plugin in self.plugins() if plugin.name in owners for one in plugin.backends}
        known |= {without_label(one.name): self.admit(one) for one in backends}
        made: list[Any] = []
        for module in modules:
            if module.backend in known and not any(loads(one, module) for one in made):
                own = with_options(known[module.backend], module.options)
                made += [made_for(one, module) for one in loaders_of(own.backend, own.plugin, self._limits.answer)]
        others = [one for kind, one in found.items() if kind not in {one.kind for one in made}]
        kinds = {module.kind for module in modules}
        files = self.files({module.plugin for module in modules})
        return [*files, *(one for one in (*made, *others) if one.kind in kinds)]

    def files(self, plugins: Collection[str]) -> list[PluginFile]:
        """Return those of some plugins that are files: other processes find them by these."""
        return [
            PluginFile(plugin.name, plugin.source.value)
            for plugin in self._plugins
            if plugin.source.is_file and plugin.name in plugins
        ]


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


def _require_distinct(plugin: Plugin) -> None:
    names = [backend.name for backend in plugin.backends]
    for name in names:
        if names.count(name) > 1:
            raise PluginError(
                f"plugin '{plugin.name}' gives {names.count(name)} backends called '{name}'; give each its own name",
                plugin=plugin.name,
                backend=name,
            )


def _as_plugin_error(plugin: str, error: GraftError) -> PluginError:
    if isinstance(error, PluginError):
        return error
    prefix = f"plugin '{plugin}': "
    wrapped = PluginError(f"{prefix}{error.message.removeprefix(prefix)}", plugin=plugin)
    wrapped.__cause__ = error
    return wrapped


def _clash(what: str, name: str, claims: list[PluginSource]) -> PluginError:
    own = any(source.is_own for source in claims)
    providers = [source.provider for source in claims if not (own and source.is_own)]
    if own and providers:
        fault = f"{what} '{name}' is Graft's own and is claimed by {' and by '.join(providers)}; choose another name"
    else:
        fault = (
            f"{what} '{name}' is claimed by {' and by '.join(providers)}; none of them is used: uninstall all but one"
        )
    return PluginError(fault, backend=name, plugin=name, providers=[source.provider for source in claims])


MANAGER = instance(PluginManager, wanted="a PluginManager")
"""What functions take as their manager."""
