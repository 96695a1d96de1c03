"""Loaders of module kinds: given explicitly, or found by the entry point of the plugin that provides them.

Nothing is imported before a program needs it: a module says which plugin loads it, and only that plugin is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from graft.errors import ArtifactError, OptionError, PluginError
from graft.runtime.arguments import Kind
from graft.runtime.foreign import is_interrupt, kind_of, said, shown
from graft.runtime.procedure import SECRET, Module
from graft.runtime.system.plugin_files import import_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "graft"
NATIVE = "native"
"""The kind that the runtime itself loads."""
C_SOURCE = "c_source"
"""The kind that it loads itself, too: native code that calls functions of vendors' shared libraries."""

ModuleFunction = Callable[[list[np.ndarray | None]], Sequence[np.ndarray]]
"""Inputs, read-only and None where absent, to outputs. The inputs are valid during the call.

An output has its shape, or is flat: an array of one axis with as many elements. A callable with an attribute
``takes_shapes`` gets a second argument, the shapes of the outputs: a tuple each, None where only the callable can tell.
"""

LoadFunction = Callable[[str, bytes, Mapping[str, np.ndarray]], Mapping[str, ModuleFunction]]
"""A module's name, bytes and constants (read-only) to its functions by name."""


@dataclass(frozen=True, slots=True)
class NativeLoader:
    """A loader in a shared library that exports ``graft_loader`` (graft/runtime.h)."""

    kind: str
    library: str | os.PathLike[str]
    device: str = ""
    """The device that the library has as well: its function ``graft_device`` (graft/device.h); "" for none."""
    holds_code: bool = True
    """Whether modules of the kind are run as the code that they are; False for data, such as a graph that is read."""


@dataclass(frozen=True, slots=True)
class PythonLoader:
    """A loader written in Python: ``load(name, data, constants)`` returns the module's functions."""

    kind: str
    load: LoadFunction
    options: Mapping[str, Any] | None = None
    """Those of the backend that loads, as `Module.options`: modules with others are refused. None: it takes any."""
    holds_code: bool = True
    """As in `NativeLoader`."""


Loader = NativeLoader | PythonLoader


@dataclass(frozen=True, slots=True)
class PluginFile:
    """A plugin that is a file and has no entry point: its loaders are found by importing it, in other processes too."""

    plugin: str
    path: str


def fault_of_loader(loader: object) -> str:
    """Return what is wrong with something that ought to be a loader, "" if nothing is."""
    if not isinstance(loader, NativeLoader | PythonLoader):
        return (
            f"a loader is {kind_of(loader)} {shown(loader)}; give NativeLoader or PythonLoader of graft.runtime.loaders"
        )
    if not isinstance(loader.kind, str) or not loader.kind:
        return f"a loader has the kind {shown(loader.kind)}; give the kind of its modules, as in 'json:npu'"
    if isinstance(loader, PythonLoader) and not callable(loader.load):
        return f"the loader for kind '{loader.kind}' has load = {shown(loader.load)}; give a function"
    if isinstance(loader, NativeLoader) and not isinstance(loader.library, str | os.PathLike):
        return f"the loader for kind '{loader.kind}' has library = {shown(loader.library)}; give the path of a library"
    if isinstance(loader, NativeLoader) and not isinstance(loader.device, str):
        return f"the loader for kind '{loader.kind}' has device = {shown(loader.device)}; give the name of a device"
    return ""


Given = Loader | PluginFile | type[Any]
"""What a caller may give for modules to be loaded by: a loader, a plugin's file, the class of a backend."""
Secrets = Mapping[str, Mapping[str, Any]]
"""The values of options that artifacts do not hold, by backend and option."""
NO_SECRETS: Secrets = {}


def _is_backend_class(value: object) -> bool:
    return isinstance(value, type) and hasattr(value, "module_loaders") and isinstance(getattr(value, "name", 0), str)


LOADERS = Kind(
    "a list of NativeLoader, PythonLoader or PluginFile objects, or of classes of backends",
    lambda value: (
        isinstance(value, list | tuple)
        and all(isinstance(one, PluginFile) or _is_backend_class(one) or fault_of_loader(one) == "" for one in value)
    ),
)
SECRETS = Kind(
    'a dict such as {"npu": {"token": "..."}}',
    lambda value: isinstance(value, Mapping) and all(isinstance(one, Mapping) for one in value.values()),
)


class LoaderRegistry:
    """Loaders by kind, each with its owner's name, and the files and backends that bring more.

    ``secrets`` are the values, by backend and option, that an artifact does not hold.
    """

    def __init__(self, loaders: Iterable[Given] = (), secrets: Secrets = NO_SECRETS) -> None:
        self._loaders: dict[str, list[tuple[Loader, str]]] = {}
        self._files: dict[str, PluginFile] = {}
        self._backends: dict[str, type[Any]] = {}
        self._secrets = secrets
        for loader in loaders:
            if isinstance(loader, PluginFile):
                self._files[loader.plugin] = loader
            elif isinstance(loader, type):
                self._backends[loader.name] = loader
            else:
                self.add(loader)

    def add(self, loader: Loader, owner: str = "the caller") -> None:
        """Register a loader; raise PluginError if it is none, or if its kind is taken, naming both owners.

        Loaders in Python of backends with different options have modules of their own, and stand side by side.
        """
        if fault := fault_of_loader(loader):
            raise PluginError(f"{owner}: {fault}")
        rows = self._loaders.setdefault(loader.kind, [])
        for other, first in rows:
            if _options_of(other) is None or _options_of(loader) in (None, _options_of(other)):
                raise PluginError(
                    f"two loaders for modules of kind '{loader.kind}': of {first} and of {owner}; remove one",
                    kind=loader.kind,
                )
        rows.append((loader, owner))

    def resolve(self, module: Module) -> Loader | None:
        """Return the loader for a module, or None for the kinds that the runtime loads itself.

        A registered loader comes first, then the backend that made the module, then the file of its plugin, then its
        entry point of group ``graft``; a backend is built with the module's options. Raises ArtifactError that names
        kind, plugin and the line that installs it, and OptionError for a secret that is missing.
        """
        others = [one for one, _ in self._loaders.get(module.kind, ())]
        if fitting := next((one for one in others if loads(one, module)), None):
            return fitting
        if module.kind == NATIVE and not others:
            return None
        load = self._import_of(module)
        if module.kind == C_SOURCE and not others:
            if load is not None:  # opens the vendor's libraries where only it finds them
                self._offered(load, module)
            return None
        if load is None:
            raise _other_options(others[0], module) if others else _missing(module, "")
        found = next((one for one in self._offered(load, module) if one.kind == module.kind), None)
        if found is None:
            raise _missing(module, "; it is installed, but its version has no such loader")
        found = made_for(found, module)
        if not loads(found, module):
            raise _other_options(found, module)
        self.add(found, f"plugin '{module.plugin}'")
        return found

    def resolve_all(self, modules: Sequence[Module]) -> tuple[tuple[Module, ...], dict[str, Loader | None]]:
        """Return modules, and their loaders by kind; what has a loader of its own for its options has a kind, too."""
        found = [(module, self.resolve(module)) for module in modules]
        kinds = apart([(module.kind, loader) for module, loader in found])
        named = tuple(replace(module, kind=kind) for (module, _), kind in zip(found, kinds, strict=True))
        return named, dict(zip(kinds, (loader for _, loader in found), strict=True))

    def options_of(self, module: Module) -> dict[str, Any]:
        """Return the options of the backend that made a module, with the secrets that were given."""
        return with_secrets(module, self._secrets)

    def _import_of(self, module: Module) -> Callable[[], Any] | None:
        """Return what imports a plugin, None where it is no backend or file that was given, and is not installed."""
        if module.backend in self._backends:
            return partial(self._backends.__getitem__, module.backend)
        if module.plugin in self._files:
            return partial(import_file, Path(self._files[module.plugin].path))
        entry = entry_point(module.kind, module.plugin)
        return None if entry is None else entry.load

    def _offered(self, load: Callable[[], Any], module: Module) -> list[Loader]:
        """Return what the plugin that is imported offers; what it raises becomes an ArtifactError that names it."""
        options = self.options_of(module)
        try:
            found = [loader for function in _providers(load(), module.backend, options) for loader in function()]
            for fault in filter(None, map(fault_of_loader, found)):
                raise TypeError(fault)
            return found
        except BaseException as error:
            if is_interrupt(error):
                raise
            how = f"; mend or reinstall it: {module.install}" if module.install else "; mend or reinstall it"
            raise ArtifactError(
                f"the loader for modules of kind '{module.kind}' cannot be used: plugin '{module.plugin}' raised "
                f"{kind_of(error)}: {said(error)}{how}",
                kind=module.kind,
                plugin=module.plugin,
                install=module.install,
            ) from error


def secret_variable(backend: str, option: str) -> str:
    """Return the environment variable that a secret is looked for in."""
    return f"GRAFT_{backend}_{option}".upper().replace("-", "_")


def missing_secret(backend: str, option: str) -> OptionError:
    """Return the error of a secret that is neither given nor in the environment."""
    variable = secret_variable(backend, option)
    return OptionError(
        f"option '{option}' of backend '{backend}' is a secret, which is not saved; give it in {variable}, or as "
        f"graft.runtime.load(..., secrets={{'{backend}': {{'{option}': ...}}}})",
        backend=backend,
        option=option,
    )


def with_secrets(module: Module, secrets: Secrets) -> dict[str, Any]:
    """Return a module's options with secrets in their places; those in the environment are left to the backend.

    Raises OptionError for a secret that is missing, and for what is none of the module's secrets.
    """
    given = secrets.get(module.backend, {})
    for name in given:
        if module.options.get(name) != SECRET:
            names = ", ".join(f"'{known}'" for known, value in module.options.items() if value == SECRET)
            raise OptionError(
                f"secrets have '{name}' of backend '{module.backend}', and module '{module.name}' was compiled with "
                f"{f'the secrets {names}' if names else 'no secret of it'}; other options are the artifact's own",
                backend=module.backend,
                option=name,
            )
    for name, value in module.options.items():
        if value == SECRET and name not in given and secret_variable(module.backend, name) not in os.environ:
            raise missing_secret(module.backend, name)
    return {**module.options, **given}


def apart(rows: Sequence[tuple[str, object]]) -> list[str]:
    """Return names, a number behind those that stand with another thing than the first of that name."""
    things: dict[str, list[object]] = {}
    found = []
    for name, thing in rows:
        known = things.setdefault(name, [])
        if thing not in known:
            known.append(thing)
        number = known.index(thing)
        found.append(f"{name}, {number + 1}" if number else name)
    return found


def made_for(loader: Loader, module: Module) -> Loader:
    """Return a loader of a backend with the options of a module; one in Python is for these alone, said or not."""
    if isinstance(loader, PythonLoader) and loader.options is None and module.options:
        return replace(loader, options=module.options)
    return loader


def loads(loader: Loader, module: Module) -> bool:
    """Return whether a loader is for modules of this kind, compiled with these options."""
    return loader.kind == module.kind and not _differing(loader, module)


def _options_of(loader: Loader) -> Mapping[str, Any] | None:
    return loader.options if isinstance(loader, PythonLoader) else None


def _differing(loader: Loader, module: Module) -> list[tuple[str, Any, Any]]:
    """Return the options, with both values, that a loader's backend has otherwise than a module was compiled with."""
    own = _options_of(loader)
    if own is None or not module.backend:
        return []
    pairs = ((name, own.get(name), value) for name, value in module.options.items())
    return [(name, here, there) for name, here, there in pairs if here != there and SECRET not in (here, there)]


def _other_options(loader: Loader, module: Module) -> OptionError:
    differing = _differing(loader, module)
    here, there = {name: value for name, value, _ in differing}, {name: value for name, _, value in differing}
    return OptionError(
        f"module '{module.name}' was compiled by backend '{module.backend}' with {there}, and its loader has {here}; "
        "give the backend's class as a loader, which gets the options of the artifact",
        backend=module.backend,
        option=differing[0][0],
    )


def _missing(module: Module, reason: str) -> ArtifactError:
    by = f"; plugin '{module.plugin}' provides it" if module.plugin else ""
    how = f"; install it with: {module.install}" if module.install else ""
    return ArtifactError(
        f"no loader for modules of kind '{module.kind}'{by}{reason}{how}",
        kind=module.kind, plugin=module.plugin, install=module.install,
    )  # fmt: skip


def entry_point(kind: str, plugin: str) -> EntryPoint | None:
    """Return the plugin's entry point; the plugins in Graft's own tree need not be installed.

    Raise ArtifactError where two distributions claim the name.
    """
    from importlib.metadata import EntryPoint, entry_points  # 40 ms, which programs without vendors' modules do without

    found = {entry.value: entry for entry in entry_points(group=GROUP, name=plugin)} if plugin else {}
    if len(found) > 1:
        values = " and ".join(f"'{value}'" for value in sorted(found))
        raise ArtifactError(
            f"modules of kind '{kind}' need plugin '{plugin}', which {values} both claim to be; uninstall one",
            kind=kind,
            plugin=plugin,
        )
    if found:
        return next(iter(found.values()))
    package = find_spec(f"graft.plugins.{plugin}") if plugin.isidentifier() else None
    is_package = package is not None and package.submodule_search_locations is not None
    if is_package and find_spec(built_in := f"graft.plugins.{plugin}.plugin") is not None:
        return EntryPoint(plugin, built_in, GROUP)
    return None


def found_by_name(plugin: str) -> bool:
    """Return whether the entry point of a plugin is installed, so that any process finds its loaders."""
    return entry_point("", plugin) is not None


def _providers(found: Any, backend: str, options: Mapping[str, Any]) -> list[Callable[[], Iterable[Loader]]]:
    """Return what gives loaders: the hook of a module, or ``module_loaders`` of its backends.

    Those are what its hook `graft_backends` gives, else the classes that it defines. The one that made the module comes
    first, with the options that it had; a class that is no backend is asked as it is.
    """
    if not isinstance(found, ModuleType):
        offered = [found]
    elif hasattr(found, "graft_module_loaders"):
        return [found.graft_module_loaders]
    elif hasattr(found, "graft_backends"):
        offered = list(found.graft_backends())
    else:
        own = (one for one in vars(found).values() if isinstance(one, type) and one.__module__ == found.__name__)
        offered = [one for one in own if getattr(one, "name", "")]
    offered = [one for one in offered if hasattr(one, "module_loaders")]
    offered.sort(key=lambda one: one.name != backend)
    return [_built(one, options if one.name == backend else {}).module_loaders for one in offered]


def _built(backend: Any, options: Mapping[str, Any]) -> Any:
    if isinstance(backend, type):
        return backend(**options)
    return backend.configured(options) if options else backend
