"""The options of a compilation, made of what a user says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from graft.core.machine.host import available_threads
from graft.core.machine.machine import Machine
from graft.core.machine.target import (
    OPTIMISATIONS,
    CompileOptions,
    check_switches,
    precision_named,
    target_named,
    tuned_database,
)
from graft.core.passes.normalize import PASSES
from graft.core.tuning.database import usable
from graft.errors import GraftError
from graft.runtime.system.cache_directory import cache_directory


def compile_options(
    threads: int | None,
    strict: bool,
    target: str = "native",
    cache: bool = False,
    tuned: bool = False,
    without: Collection[str] = (),
    precision: str = "float32",
    machines: Callable[[], Mapping[str, Machine]] = dict,
    passes: Collection[str] = (),
    schedules: Mapping[str, str] = MappingProxyType({}),
) -> CompileOptions:
    """Return the options of a compilation; ``threads=None`` means all that may be used here.

    ``target`` is a machine by its name; ``machines`` gives those of plugins, should it be none of the rows.

    With ``cache``, compiled kernels are kept in the user's cache directory; with ``tuned``, what tuning has found
    is used and kept there. ``schedules`` are texts by the names of kernels. ``without`` names optimisations and
    passes, those of plugins in ``passes`` too, to do without.

    Raise GraftError where a number of threads is below 1 or an option is unknown.
    """
    if threads is not None and threads < 1:
        raise GraftError(f"threads must be at least 1, got {threads}", threads=threads)
    return CompileOptions(
        replace(
            target_named(target, machines),
            without=check_switches(without, check_switches(without, (*OPTIMISATIONS, *PASSES, *passes))),
            precision=precision_named(precision),
        ),
        threads or available_threads(),
        strict,
        cache_directory() if cache else None,
        usable(tuned_database(), "tuned parameters") if tuned else None,
        schedules,
    )
