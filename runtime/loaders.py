"""Loaders of module kinds: given explicitly, or found by the entry point of the plugin that provides them.

Nothing is imported before a program needs it: a module says which plugin loads it, and only that plugin is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from graft.errors import ArtifactError, PluginError
from graft.runtime.arguments import Kind
from graft.runtime.foreign import is_interrupt, kind_of, said, shown
from graft.runtime.plugin_files import import_file

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


LOADERS = Kind(
    "a list of NativeLoader, PythonLoader or PluginFile objects",
    lambda value: (
        isinstance(value, list | tuple)
        and all(isinstance(one, PluginFile) or fault_of_loader(one) == "" for one in value)
    ),
)


class LoaderRegistry:
    """Loaders by kind, each with its owner's name, and the files of plugins that bring more."""

    def __init__(self, loaders: Iterable[Loader | PluginFile] = ()) -> None:
        self._loaders: dict[str, tuple[Loader, str]] = {}
        self._files: dict[str, PluginFile] = {}
        for loader in loaders:
            if isinstance(loader, PluginFile):
                self._files[loader.plugin] = loader
            else:
                self.add(loader)

    def add(self, loader: Loader, owner: str = "the caller") -> None:
        """Register a loader; raise PluginError if it is none, or if its kind is taken, naming both owners."""
        if fault := fault_of_loader(loader):
            raise PluginError(f"{owner}: {fault}")
        if loader.kind in self._loaders:
            raise PluginError(
                f"two loaders for modules of kind '{loader.kind}': of {self._loaders[loader.kind][1]} and of {owner}; "
                "remove one",
                kind=loader.kind,
            )
        self._loaders[loader.kind] = (loader, owner)

    def resolve(self, kind: str, plugin: str = "", install: str = "") -> Loader | None:
        """Return the loader for ``kind``, or None for the kinds that the runtime loads itself.

        A registered loader comes first, then the file of ``plugin``, then its entry point of group ``graft``. Raises
        ArtifactError that names kind, plugin and the line that installs it.
        """
        if kind in self._loaders:
            return self._loaders[kind][0]
        if kind == NATIVE:
            return None
        load = self._import_of(kind, plugin)
        if kind == C_SOURCE:
            if load is not None:  # opens the vendor's libraries where only it finds them
                _loaders_of_plugin(load, kind, plugin, install)
            return None
        if load is None:
            raise _missing(kind, plugin, install, "")
        for loader in _loaders_of_plugin(load, kind, plugin, install):
            if loader.kind not in self._loaders:
                self.add(loader, f"plugin '{plugin}'")
        if kind not in self._loaders:
            raise _missing(kind, plugin, install, "; it is installed, but its version has no such loader")
        return self._loaders[kind][0]

    def _import_of(self, kind: str, plugin: str) -> Callable[[], Any] | None:
        """Return what imports a plugin, None where it is neither a file nor installed."""
        if plugin in self._files:
            return partial(import_file, Path(self._files[plugin].path))
        entry = entry_point(kind, plugin)
        return None if entry is None else entry.load


def _missing(kind: str, plugin: str, install: str, reason: str) -> ArtifactError:
    by = f"; plugin '{plugin}' provides it" if plugin else ""
    how = f"; install it with: {install}" if install else ""
    return ArtifactError(
        f"no loader for modules of kind '{kind}'{by}{reason}{how}", kind=kind, plugin=plugin, install=install
    )


def entry_point(kind: str, plugin: str) -> EntryPoint | None:
    """Return the plugin's entry point; the plugins in Graft's own tree need not be installed."""
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


def _loaders_of_plugin(load: Callable[[], Any], kind: str, plugin: str, install: str) -> list[Loader]:
    """Return what the plugin that is imported offers; what it raises becomes an ArtifactError that names it."""
    try:
        found = [loader for function in _providers(load()) for loader in function()]
        for fault in filter(None, map(fault_of_loader, found)):
            raise TypeError(fault)
        return found
    except BaseException as error:
        if is_interrupt(error):
            raise
        how = f"; mend or reinstall it: {install}" if install else "; mend or reinstall it"
        raise ArtifactError(
            f"the loader for modules of kind '{kind}' cannot be used: plugin '{plugin}' raised "
            f"{kind_of(error)}: {said(error)}{how}",
            kind=kind,
            plugin=plugin,
            install=install,
        ) from error


def _providers(found: Any) -> list[Callable[[], Iterable[Loader]]]:
    """Return what gives loaders: the hook of a module, or ``module_loaders`` of the classes it defines."""
    if not isinstance(found, ModuleType):
        return [found.module_loaders] if hasattr(found, "module_loaders") else []
    if hasattr(found, "graft_module_loaders"):
        return [found.graft_module_loaders]
    own = [value for value in vars(found).values() if isinstance(value, type) and value.__module__ == found.__name__]
    return [value.module_loaders for value in own if hasattr(value, "module_loaders")]
