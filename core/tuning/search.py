"""The search for a model: which workload's candidates are measured next, until the budget is spent.

The candidates of a workload come in stages (`graft.core.tuning.candidates`), each around the best of the one before. A
stage is one race and is remembered when it ends, so that an interrupted search, or one with a small budget, goes on
where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import StrategyTable
from graft.core.tensor_ir.ir import Variable
from graft.core.tuning.candidates import STAGES, candidates
from graft.core.tuning.learnt_cost import LearntCost
from graft.core.tuning.options import Progress, Tuned, TuneOptions, TuneReport
from graft.core.tuning.race import Run, race
from graft.core.tuning.transfer import form_of, neighbours
from graft.core.tuning.tunings import Tuning, Tunings
from graft.errors import GraftError, TuningError
from graft.runtime.system.version import version

GAINS = (0.1, 0.05, 0.03)
"""The share of a workload's time that its stages are expected to save: with its time, what is measured first."""

log = logging.getLogger("graft.tuning")


@dataclass(frozen=True, slots=True)
class Workload:
    """A kernel with its key, its name for people, how often it occurs, and an estimate of its seconds.

    ``bindings`` are the numbers that its extents have when it is measured: several where they vary.
    """

    key: str
    label: str
    kernel: Kernel
    count: int
    estimate: float
    bindings: tuple[Mapping[Variable, int], ...] = ({},)


class Bench(Protocol):
    """Where the candidates of one workload are compiled and timed."""

    def add(self, parameters: Parameters | None) -> Run | None:
        """Return what runs the kernel with parameters, None if one with the same code was added before."""
        ...


class Builder(Protocol):
    """Makes benches."""

    def bench(self, workload: Workload) -> Bench:
        """Return an empty bench for a workload."""
        ...


@dataclass(slots=True)
class Search:
    """One search; ``run`` is called once."""

    workloads: Sequence[Workload]
    target: Target
    builder: Builder
    tunings: Tunings
    options: TuneOptions
    strategies: StrategyTable = TABLE
    cost: LearntCost | None = None
    """What ranks candidates, and learns from their times."""
    _known: dict[str, Tuning] = field(default_factory=dict)
    """Of all workloads, those of other models too."""
    _trials: int = 0

    def run(self) -> TuneReport:
        """Measure until all stages of all workloads are done or time is up; return what is known then."""
        started = self.options.clock()
        self._known = self.tunings.known()
        found = {key: tuning for key, tuning in self._known.items() if key in self._keys()}
        skipped: set[str] = set()
        if self.cost is not None:
            self.cost.learn()
        while not self._is_over(started) and not self._is_enough(found):
            left = [one for one in self.workloads if one.key not in skipped and _stage(found, one) < STAGES]
            if not left:
                break
            chosen = max(left, key=lambda one: _promise(found.get(one.key), one))
            self._tell(started, chosen, found)
            tuning = self._advanced(chosen, found.get(chosen.key), started)
            if tuning is None:
                skipped.add(chosen.key)
                continue
            tuning = replace(tuning, form=form_of(chosen.kernel), made=_made())
            found[chosen.key] = self._known[chosen.key] = tuning
            self.tunings.keep(chosen.key, tuning)
        return self._report(found, self.options.clock() - started)

    def _keys(self) -> set[str]:
        return {one.key for one in self.workloads}

    def _is_over(self, started: float) -> bool:
        return self.options.clock() - started >= self.options.seconds

    def _is_enough(self, found: dict[str, Tuning]) -> bool:
        """Whether all trials are spent, or the goal is reached."""
        options = self.options
        spent = options.trials is not None and self._trials >= options.trials
        return spent or (options.goal is not None and self._report(found, 0.0).gain >= options.goal)

    def _advanced(self, workload: Workload, known: Tuning | None, started: float) -> Tuning | None:
        """Return the tuning of a workload after its next stage with a race; None if time did not suffice for it."""
        tuning = known or Tuning(workload.label, None, 0.0, 0.0, 0)
        while tuning.stage < STAGES:
            runs = self._runs(workload, tuning, started)
            if runs is None:
                return None
            if len(runs) > 1:
                return self._raced(workload, tuning, runs, started)
            tuning = replace(tuning, stage=tuning.stage + 1)
        return tuning

    def _raced(
        self, workload: Workload, tuning: Tuning, runs: Sequence[tuple[Parameters | None, Run]], started: float
    ) -> Tuning | None:
        outcome = race([run for _, run in runs], lambda: self._is_over(started))
        if outcome is None:
            return None
        chosen, _ = runs[outcome.winner]
        if self.cost is not None:
            times = zip(runs, outcome.times, strict=True)
            self.cost.keep(f"{workload.key} {tuning.stage}", {own: time for (own, _), time in times if own is not None})
        log.info("%s: %s, %.1f us of %.1f us", tuning.label, chosen, 1e6 * outcome.seconds, 1e6 * outcome.first)
        # Stages are joined by ratios: the machine may be slower today than it was for the stage before.
        scale = tuning.untuned / tuning.seconds if tuning.seconds else 1.0
        # What is near the best is the last stage, which ends where nothing there is faster.
        goes_on = outcome.winner > 0 and tuning.stage == STAGES - 1
        stage = tuning.stage + (not goes_on)
        return Tuning(tuning.label, chosen, outcome.seconds, outcome.first * scale, stage)

    def _runs(self, workload: Workload, tuning: Tuning, started: float) -> list[tuple[Parameters | None, Run]] | None:
        """Return the stage's candidates that differ in code, the best so far first; None if time is up meanwhile."""
        best = tuning.parameters
        wanted = candidates(workload.kernel, self.target, tuning.stage, best, self.strategies, self.cost)
        near: list[Parameters] = []
        if wanted and tuning.stage == 0:
            others = (one for key, one in self._known.items() if key != workload.key)
            near = list(neighbours(form_of(workload.kernel), others))
            wanted = list(dict.fromkeys((*near, *wanted)))
        kernel = f"{workload.key} {self.tunings.compiler}"
        if self.cost is not None and wanted:
            failed = self.cost.times.failed(kernel)
            wanted = [one for one in wanted if one not in failed]
        bench = self.builder.bench(workload)
        runs: list[tuple[Parameters | None, Run]] = []
        if self.options.trials is not None:
            wanted = wanted[: self.options.trials - self._trials]
        self._trials += len(wanted)
        for parameters in [best, *wanted] if wanted else []:
            if self._is_over(started):
                return None
            try:
                run = bench.add(parameters)
            except GraftError as error:
                # A neighbour's may not fit: its tiles may be longer than an axis is here.
                level = logging.INFO if parameters in near else logging.WARNING
                log.log(level, "%s with %s cannot be measured: %s", workload.label, parameters, error)
                if isinstance(error, TuningError) and self.cost is not None and parameters is not None:
                    self.cost.times.fail(kernel, parameters)
                if parameters is best:
                    return []
                continue
            if run is not None:
                runs.append((parameters, run))
        return runs

    def _tell(self, started: float, chosen: Workload, found: dict[str, Tuning]) -> None:
        if self.options.progress is not None:
            spent = self.options.clock() - started
            done = sum(_stage(found, one) >= STAGES for one in self.workloads)
            self.options.progress(Progress(spent, self.options.seconds, chosen.label, done, len(self.workloads)))

    def _report(self, found: dict[str, Tuning], spent: float) -> TuneReport:
        rows = [(one, found[one.key]) for one in self.workloads if one.key in found and found[one.key].seconds]
        tuned = tuple(
            Tuned(one.key, one.label, one.count, row.parameters, row.seconds, row.untuned) for one, row in rows
        )
        finished = sum(_stage(found, one) >= STAGES for one in self.workloads)
        return TuneReport(len(self.workloads), finished, tuned, spent, trials=self._trials)


def _made() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, Graft {version()}"


def _stage(found: dict[str, Tuning], workload: Workload) -> int:
    return found[workload.key].stage if workload.key in found else 0


def _promise(known: Tuning | None, workload: Workload) -> float:
    """The seconds per run of the model that the next stage may save."""
    stage, seconds = (0, workload.estimate) if known is None else (known.stage, known.seconds or workload.estimate)
    return workload.count * seconds * GAINS[stage]
