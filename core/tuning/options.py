"""What the user asks of tuning, and what it tells on the way and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from graft.core.schedule.parameters import Parameters
from graft.errors import TuningError
from graft.runtime.arguments import FUNCTION, instance, optional, require

DEFAULT_SECONDS = 60.0
SECONDS = instance(int, float, wanted="a number of seconds")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where tuning stands: time spent of the budget, and the workload that comes next."""

    spent: float
    seconds: float
    workload: str
    tuned: int
    total: int


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """``seconds`` is the budget for a whole model; ``progress`` is called before each race of candidates."""

    seconds: float = DEFAULT_SECONDS
    progress: Callable[[Progress], None] | None = None
    clock: Callable[[], float] = perf_counter

    def __post_init__(self) -> None:
        require("TuneOptions", "seconds", self.seconds, SECONDS)
        require("TuneOptions", "progress", self.progress, optional(FUNCTION))
        require("TuneOptions", "clock", self.clock, FUNCTION)
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise TuningError(f"the time for tuning must be a positive number of seconds, got {self.seconds}")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The outcome for one workload, which occurs ``count`` times in the model; see `Tuning` for the times."""

    label: str
    count: int
    parameters: Parameters | None
    seconds: float
    untuned: float


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The outcome for a model: of ``total`` workloads, those with a result, and how many have all candidates tried.

    ``varying`` kernels have shapes that vary: there is no one shape to measure them at.
    """

    total: int
    finished: int
    tuned: tuple[Tuned, ...]
    spent: float
    varying: int = 0

    def summary(self) -> str:
        """Return one line: ``tuned 12 of 14 workloads in 20.1 s: 5 faster, together 1.08x``."""
        faster = sum(one.parameters is not None for one in self.tuned)
        before, after = (sum(one.count * seconds(one) for one in self.tuned) for seconds in (_untuned, _seconds))
        gain = f", together {before / after:.2f}x" if after else ""
        rest = "" if self.finished == self.total else f"; {self.total - self.finished} to go on with"
        if self.varying:
            rest += f"; {self.varying} more of shapes that vary are not measured (tune versions of them: --specialize)"
        return f"tuned {len(self.tuned)} of {self.total} workloads in {self.spent:.1f} s: {faster} faster{gain}{rest}"

    def __add__(self, other: TuneReport) -> TuneReport:
        """Return the report of both."""
        return TuneReport(
            self.total + other.total,
            self.finished + other.finished,
            self.tuned + other.tuned,
            self.spent + other.spent,
            self.varying + other.varying,
        )


def tune_options(wish: bool | float | TuneOptions) -> TuneOptions | None:
    """Return what a user's ``tune`` means: True, a number of seconds, or options; None for False."""
    if isinstance(wish, TuneOptions):
        return wish
    if isinstance(wish, bool):
        return TuneOptions() if wish else None
    return TuneOptions(seconds=float(wish))


def remaining(options: TuneOptions, spent: float) -> TuneOptions | None:
    """Return the options with what is left of the budget, None if nothing is."""
    return None if spent >= options.seconds else replace(options, seconds=options.seconds - spent)


def _seconds(tuned: Tuned) -> float:
    return tuned.seconds


def _untuned(tuned: Tuned) -> float:
    return tuned.untuned
