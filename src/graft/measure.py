"""Times of regions on this machine: each is compiled, loaded and run alone, as the program would run it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from graft.core.database import usable
from graft.core.sample_inputs import sample_value
from graft.core.target import cache_directory
from graft.errors import GraftError
from graft.partition.estimators import Measured
from graft.partition.times import TimesDatabase
from graft.stitch import Stitcher

if TYPE_CHECKING:
    from graft.core.target import CompileOptions
    from graft.partition.region import Region
    from graft.plugins.backend import Backend
    from graft.runtime.procedure import ProgramDescription
    from graft.runtime.program import Program

log = logging.getLogger("graft.measure")

LEAST_RUNS, MOST_RUNS = 3, 50
ENOUGH_SECONDS = 0.03
"""After this time no further run of a region is started; the fastest one counts."""

Load = Callable[["ProgramDescription"], "Program"]


def default_database() -> Path | None:
    """Return the file of measured times: ``times.sqlite3`` in the user's cache directory, if there is one."""
    directory = cache_directory()
    return None if directory is None else directory / "times.sqlite3"


def measured_here(
    backends: Sequence[Backend], options: CompileOptions, load: Load, database: Path | None = None
) -> Measured:
    """Return an estimator that measures on this machine and remembers in ``database``.

    Without one it is `default_database`; where that cannot be used, nothing is remembered. ``load`` makes a description
    a program with ``options.threads`` threads. A time is used again for regions of the same structure, by the same
    backend in the same version, processor and number of threads.
    """
    by_name = {backend.name: backend for backend in backends}
    target = options.target
    machine = f"{target.arch} {target.cpu} {'+'.join(sorted(target.features))} threads={options.threads}"
    fingerprints = {name: f"{backend.fingerprint()} {machine}" for name, backend in by_name.items()}
    passed = frozenset(name for name, backend in by_name.items() if backend.constants == "passed")

    def measure(region: Region) -> float:
        try:
            compiled = by_name[region.backend].compile(region, options)
            program = load(Stitcher({region.name: region}, {region.name: compiled}, passed).stitch_region(region))
            seconds = fastest(program, region)
        except GraftError as error:
            log.warning("region '%s' cannot be measured on '%s': %s", region.name, region.backend, error)
            return math.inf
        log.info("%s on %s: %.1f us", region.name, region.backend, 1e6 * seconds)
        return seconds

    path = database or usable(default_database(), "measured times")
    return Measured(measure, {} if path is None else TimesDatabase(path), fingerprints)


def fastest(program: Program, region: Region) -> float:
    """Return the seconds of the fastest run of a region's program, on seeded inputs."""
    generator = np.random.default_rng(0)
    arrays = [sample_value(view, generator) for view in region.inputs]
    program(*arrays)
    best, runs, started = math.inf, 0, perf_counter()
    while runs < LEAST_RUNS or (runs < MOST_RUNS and perf_counter() - started < ENOUGH_SECONDS):
        before = perf_counter()
        program(*arrays)
        best = min(best, perf_counter() - before)
        runs += 1
    return best
