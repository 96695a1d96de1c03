"""What plugins tell of compiled modules: reports, instructions as text; and what they make of edited sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graft.errors import CompileError
from graft.plugins.backend import ModuleReport
from graft.plugins.registry.fence import with_options
from graft.runtime.procedure import SECRET, Module

if TYPE_CHECKING:
    from graft.plugins.registry.fence import FencedBackend
    from graft.plugins.registry.manager import PluginManager


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


def recompiled(module: Module, text: str, manager: PluginManager) -> Module:
    """Return a module with the code of its edited source; raise CompileError where no plugin compiles it."""
    for _, backend in _asked((module,), manager):
        found = backend.recompile(module, text)
        if found is not None:
            return found
    raise CompileError(
        f"module '{module.name}' of kind '{module.kind}' has no source that can be given back; only backends that "
        "keep their source and compile it themselves take one, such as 'cuda_source'",
        module=module.name,
    )


def _asked(modules: Sequence[Module], manager: PluginManager) -> Iterator[tuple[Module, FencedBackend]]:
    """Yield modules with the backends of the plugins that made them."""
    owners = {owner.name: owner.backends for owner in manager.plugins()} if any(one.plugin for one in modules) else {}
    for module in modules:
        options = {name: value for name, value in module.options.items() if value != SECRET}
        for backend in owners.get(module.plugin, ()):
            is_own = backend.name == module.backend and options
            yield module, with_options(backend, options) if is_own else backend
