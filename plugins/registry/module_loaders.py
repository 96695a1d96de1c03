"""The loaders that plugins and their backends bring, checked."""

from __future__ import annotations

from collections.abc import Iterable

from graft.errors import PluginError
from graft.plugins.backend import Backend
from graft.plugins.registry.fence import fence
from graft.plugins.time_limit import LIMITS, time_limit
from graft.runtime.loaders import Loader, fault_of_loader


def loaders_of(backend: Backend, plugin: str, seconds: float = LIMITS.answer) -> list[Loader]:
    """Return the loaders that a backend brings; raise PluginError, naming the plugin, for what it raises or gives."""
    with fence(plugin, "module_loaders"), time_limit(seconds):
        return checked_loaders(plugin, backend.module_loaders())


def checked_loaders(plugin: str, loaders: Iterable[object]) -> list[Loader]:
    """Return the loaders that a plugin gave; raise PluginError for what is none."""
    found = []
    for loader in loaders:
        fault = fault_of_loader(loader)
        if fault:
            raise PluginError(f"plugin '{plugin}': {fault}", plugin=plugin)
        found.append(loader)
    return found  # type: ignore[return-value]


def by_kind(offers: Iterable[tuple[str, Loader]]) -> dict[str, Loader]:
    """Return (plugin, loader) pairs as loaders by kind; raise PluginError if two plugins bring one kind."""
    owners: dict[str, str] = {}
    found: dict[str, Loader] = {}
    for plugin, loader in offers:
        owner = owners.setdefault(loader.kind, plugin)
        if owner != plugin:
            raise PluginError(
                f"module kind '{loader.kind}' is claimed by plugin '{owner}' and by plugin '{plugin}'; none of them "
                "is used: uninstall all but one",
                plugin=plugin,
                kind=loader.kind,
            )
        found[loader.kind] = loader
    return found
