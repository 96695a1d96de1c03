"""What an entry point may name, turned into hook implementations: a module, a Backend class, an instance."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from graft.errors import PluginError
from graft.plugins import hooks
from graft.plugins.backend import Backend
from graft.runtime.foreign import kind_of, shown

PREFIX = "graft_"


def _specifications() -> dict[str, tuple[str, ...]]:
    functions = inspect.getmembers(hooks, inspect.isfunction)
    return {name: tuple(inspect.signature(one).parameters) for name, one in functions if name.startswith(PREFIX)}


SPECIFICATIONS = _specifications()
"""The hooks and their arguments."""


class BackendHooks:
    """The hooks of a plugin that is nothing but backends."""

    def __init__(self, backends: Iterable[Backend | type[Backend]]) -> None:
        self._backends = list(backends)

    @hooks.hookimpl
    def graft_backends(self) -> list[Backend | type[Backend]]:
        """Return the backends."""
        return self._backends


def hooks_of(plugin: str, found: object) -> object:
    """Return the object with the hook implementations of what an entry point named.

    A module without hooks stands for the Backend classes that it defines. Raises PluginError for unknown hooks,
    unknown arguments, functions that only look like hooks, and objects that are nothing of the kind.
    """
    match found:
        case Backend():
            return BackendHooks([found])
        case type() if issubclass(found, Backend):
            return BackendHooks([found])
        case ModuleType():
            if _check_module(plugin, found):
                return found
            backends = _backends_of(found)
            if backends:
                return BackendHooks(backends)
    what = f"module '{found.__name__}'" if isinstance(found, ModuleType) else f"{kind_of(found)} {shown(found)}"
    raise PluginError(
        f"plugin '{plugin}' names {what}, which is neither a graft.Backend nor a module with hook implementations or "
        f"a Backend class; mark functions ({', '.join(SPECIFICATIONS)}) with @hookimpl, or define a class",
        plugin=plugin,
    )


def _backends_of(module: ModuleType) -> list[type[Backend]]:
    classes = (one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, Backend))
    return [one for one in classes if one.__module__ == module.__name__ and one.name]


def _check_module(plugin: str, module: ModuleType) -> bool:
    """Check the functions that look like hooks; return whether there is any."""
    for name in SPECIFICATIONS.keys() & vars(module).keys():
        if not inspect.isfunction(one := vars(module)[name]):
            raise PluginError(
                f"plugin '{plugin}': '{name}' is {kind_of(one)} {shown(one)}, not a function; write a function that "
                "returns it, with @hookimpl above",
                plugin=plugin,
            )
    functions = {name: one for name, one in vars(module).items() if name.startswith(PREFIX) and inspect.isfunction(one)}
    for name, function in functions.items():
        _check_hook(plugin, name, function)
    return bool(functions)


def _check_hook(plugin: str, name: str, function: Callable[..., Any]) -> None:
    if name not in SPECIFICATIONS:
        raise PluginError(
            f"plugin '{plugin}' implements the unknown hook '{name}'{_nearest(name, SPECIFICATIONS)}", plugin=plugin
        )
    marks = getattr(function, f"{hooks.PROJECT}_impl", None)
    if marks is None:
        raise PluginError(
            f"plugin '{plugin}': '{name}' is not marked as a hook; write @hookimpl above it "
            "(from graft.plugins.hooks import hookimpl)",
            plugin=plugin,
        )
    if marks["wrapper"] or marks["hookwrapper"]:
        raise PluginError(
            f"plugin '{plugin}': '{name}' is a hook wrapper, which Graft does not call; use plain @hookimpl",
            plugin=plugin,
        )
    for argument in inspect.signature(function).parameters:
        known = SPECIFICATIONS[name]
        if argument not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise PluginError(
                f"plugin '{plugin}': hook '{name}' has no argument '{argument}'{_nearest(argument, known)} ({takes})",
                plugin=plugin,
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""
