"""Times of whole plans on this machine: each is compiled, loaded and run as the program would be, in turns.

A region alone tells little: with another backend beside it its neighbours fuse otherwise, and weights that a loop over
one region keeps in the cache come from memory in the model.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from graft.compiler.stitching.stitch import Stitcher
from graft.core.shapes.sample_inputs import sample_inputs, typical_numbers
from graft.core.tuning.database import usable
from graft.errors import DatabaseError, GraftError
from graft.partition.placement.region_structure import structure
from graft.partition.region import region_calls, regions
from graft.partition.times import TimesDatabase
from graft.runtime.system.cache_directory import cache_directory

if TYPE_CHECKING:
    import onnx_ir as ir

    from graft.core.machine.target import CompileOptions
    from graft.partition.placement.problem import Partitioned
    from graft.plugins.backend import Backend, CompiledRegion
    from graft.runtime.procedure import Module, ProgramDescription
    from graft.runtime.program import Program

log = logging.getLogger("graft.compiler.plan_times")

LEAST_TURNS, MOST_TURNS = 4, 15
ENOUGH_SECONDS = 1.0
"""After this time no further turn of two plans is started."""

Load = Callable[["ProgramDescription"], "Program"]


def default_database() -> Path | None:
    """Return the file of measured times: ``times.sqlite3`` in the user's cache directory, if there is one."""
    directory = cache_directory()
    return None if directory is None else directory / "times.sqlite3"


def times_here(
    backends: Sequence[Backend],
    options: CompileOptions,
    load: Load,
    seconds: float = 10.0,
    database: Path | None = None,
) -> MeasuredPlans:
    """Return what knows and measures the times of plans on this machine, and remembers them in ``database``.

    Without one it is `default_database`; where that cannot be used, nothing is remembered. ``load`` makes a description
    a program with ``options.threads`` threads. A time is used again for plans of the same structure, by the same
    backends in the same versions, processor, devices, number of threads and precision. ``seconds`` is the time from now
    on for everything but the compilation of the first plan.
    """
    target = options.target
    features = "+".join(sorted(target.features))
    without = "".join(f" without {name}" for name in sorted(target.without))
    beside = "".join(f" beside {one.name}" for one in target.devices)
    machine = f"{target.arch} {target.cpu} {features} threads={options.threads} {target.precision}{without}{beside}"
    by_name = {backend.name: backend for backend in backends}
    path = database or usable(default_database(), "measured times")
    return MeasuredPlans(by_name, options, load, machine, seconds, {} if path is None else TimesDatabase(path))


@dataclass(slots=True)
class MeasuredPlans:
    """Seconds of whole plans, known from before or measured now (`graft.partition.placement.cost_search.PlanTimes`)."""

    backends: Mapping[str, Backend]
    options: CompileOptions
    load: Load
    machine: str
    seconds: float
    times: MutableMapping[str, float]
    _started: float = field(default_factory=perf_counter)
    _failed: set[str] = field(default_factory=set)
    _compiled: dict[tuple[str, str, tuple[str, ...]], Module | CompiledRegion] = field(default_factory=dict)

    def recorded(self, result: Partitioned) -> float | None:
        """Return a plan's time, infinity if it failed, None if it is not known; a damaged database knows nothing."""
        try:
            if not self._failed and not self.times:  # a key takes all regions' structures
                return None
            key = self._key(result.model)
            return math.inf if key in self._failed else self.times.get(key)
        except DatabaseError as error:
            log.warning("%s", error.message)
            return None

    def scale(self, model: ir.Model, share: float) -> None:
        """Multiply the recorded time of a plan's model by the share of it that tuning has left."""
        try:
            if self.times:
                key = self._key(model)
                known = self.times.get(key)
                if known is not None:
                    self.times[key] = known * share
        except DatabaseError as error:
            log.warning("%s", error.message)

    def measure(self, results: Sequence[Partitioned]) -> None:
        """Measure plans that are not known in turns with the first one, until the time is spent."""
        if all(self.recorded(one) is not None for one in results):
            return
        first, *others = results
        before = perf_counter()
        baseline = self._program(first)
        if baseline is None:
            return
        deadline = self._started + self.seconds + (perf_counter() - before)
        found: list[float] = []
        for other in others:
            if perf_counter() >= deadline:
                log.info("the time for measuring is spent")
                break
            if self.recorded(other) == math.inf or (run := self._program(other, deadline)) is None:
                continue
            own, theirs = in_turns(baseline, run, deadline)
            found.append(own)
            self.times[self._key(other.model)] = theirs * min(found) / own  # as if all had had the same turns
            log.info("%s: %.3f ms, %s: %.3f ms", first.plan.summary(), 1e3 * own, other.plan.summary(), 1e3 * theirs)
        if found:
            self.times[self._key(first.model)] = min(found)

    def _program(self, result: Partitioned, deadline: float = math.inf) -> Callable[[], object] | None:
        """Return a call of a plan's program on seeded inputs, None if it cannot be made (remembered) or not in time.

        A plan of many regions may take longer to compile than all others: no region is begun after the deadline.
        """
        try:
            found = {region.name: region for region in regions(result.model)}
            for region in found.values():
                key = (region.name, region.backend, region.origin)
                if key not in self._compiled:
                    if perf_counter() >= deadline:
                        return None
                    self._compiled[key] = self.backends[region.backend].compile(region, self.options)
            compiled = {name: self._compiled[name, one.backend, one.origin] for name, one in found.items()}
            passed = frozenset(name for name, backend in self.backends.items() if backend.constants == "passed")
            program = self.load(Stitcher(found, compiled, passed).stitch(result.model.graph))
            run = partial(program.run, sample_inputs(result.model))
            run()
        except GraftError as error:
            log.warning("a plan cannot be measured: %s", error)
            self._failed.add(self._key(result.model))
            return None
        return run

    def _key(self, model: ir.Model) -> str:
        digest = hashlib.sha256()
        for call in region_calls(model, typical_numbers(model)):
            with call.as_it_stands() as region:
                fingerprint = self.backends[region.backend].fingerprint()
                digest.update(f"{region.backend} {fingerprint} {structure(region)}\n".encode())
        return f"plan {self.machine} {digest.hexdigest()[:32]}"


def in_turns(first: Callable[[], object], second: Callable[[], object], deadline: float) -> tuple[float, float]:
    """Return the seconds of two calls that run in turns, some turns at least and none after the deadline.

    They are the median of the first, and this by what the second takes of it in three turns of four: what else the
    machine does in some of them makes no plan faster.
    """
    times: tuple[list[float], list[float]] = ([], [])
    started = perf_counter()
    while len(times[0]) < LEAST_TURNS or (
        len(times[0]) < MOST_TURNS and perf_counter() < min(deadline, started + ENOUGH_SECONDS)
    ):
        for run, own in zip((first, second), times, strict=True):
            before = perf_counter()
            run()
            own.append(perf_counter() - before)
    first_takes, shares = median(times[0]), sorted(theirs / ours for ours, theirs in zip(*times, strict=True))
    return first_takes, first_takes * shares[3 * (len(shares) - 1) // 4]
