"""What `graft backends show` tells of a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from graft.errors import GraftError
from graft.plugins.discovery import PluginSource
from graft.plugins.options.declared import Option
from graft.plugins.registry.fence import FencedBackend

T = TypeVar("T")


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
    options: tuple[Option, ...] = ()
    faults: tuple[str, ...] = ()
    """What the backend raised while it was asked for these facts."""


def information(source: PluginSource, backend: FencedBackend) -> BackendInfo:
    """Return what is known of a backend; faults are noted, not raised."""
    faults: list[str] = []
    faulty: str | None = "faulty: see `graft backends doctor`"
    operators = (str(rule.what) for rule in backend.rules if rule.is_operator)
    return BackendInfo(
        name=backend.name,
        plugin=source.name,
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
        options=backend.option_rows(),
        faults=tuple(faults),
    )


def _asked(question: Callable[[], T], instead: T, faults: list[str]) -> T:
    """Return the answer, or ``instead`` where the plugin raises; the fault is noted."""
    try:
        return question()
    except GraftError as error:
        faults.append(error.message)
        return instead
