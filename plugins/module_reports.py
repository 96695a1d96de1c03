"""What plugins tell of compiled modules: reports after a compilation, and instructions as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graft.plugins.backend import ModuleReport
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.plugins.fence import FencedBackend
    from graft.plugins.manager import PluginManager


def module_reports(modules: Sequence[Module], manager: PluginManager) -> dict[str, ModuleReport]:
    """Return the reports of modules by name; most have none."""
    found = {}
    for module, backend in _asked(modules, manager):
        report = backend.report(module)
        if report is not None:
            found[module.name] = report
    return found


def disassembly(modules: Sequence[Module], manager: PluginManager) -> dict[str, str]:
    """Return the instructions of modules as text, by name; most have none."""
    found = {}
    for module, backend in _asked(modules, manager):
        text = backend.disassemble(module)
        if text is not None:
            found[module.name] = text
    return found


def _asked(modules: Sequence[Module], manager: PluginManager) -> Iterator[tuple[Module, FencedBackend]]:
    """Yield modules with the backends of the plugins that made them."""
    owners = {owner.name: owner.backends for owner in manager.plugins()} if any(one.plugin for one in modules) else {}
    for module in modules:
        for backend in owners.get(module.plugin, ()):
            yield module, backend
