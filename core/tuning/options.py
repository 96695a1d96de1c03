"""What the user asks of tuning, and what it tells on the way and at the end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

import numpy as np

from graft.core.schedule.parameters import Parameters
from graft.core.tuning.race import Run
from graft.errors import TuningError
from graft.runtime.arguments import FUNCTION, SPECIALIZE, WHOLE, instance, optional, require
from graft.runtime.procedure import ProgramDescription
from graft.runtime.system.displayed import notebook_bar


class Device(Protocol):
    """Another machine than this one, on which programs of one kernel are measured."""

    def bench(self, description: ProgramDescription, arrays: Sequence[np.ndarray]) -> Run:
        """Return what says the cost of a run on some inputs, in seconds or in what stands for them."""
        ...


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
    """``seconds`` is the budget for a whole model; ``progress`` is called before each race of candidates.

    ``dims`` are values of symbols, as in ``{"seq": (16, 128)}``: kernels of shapes that vary are measured at each
    combination of them. Symbols that it does not name have the number that placement counts with. ``device`` is where
    kernels are measured, if not on this machine: then the target is its. ``trials`` is how many candidates are compiled
    at most, and ``goal`` a gain, as in 1.2, that suffices; whichever is reached first ends the search.
    """

    seconds: float = DEFAULT_SECONDS
    progress: Callable[[Progress], None] | None = None
    clock: Callable[[], float] = perf_counter
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    device: Device | None = None
    trials: int | None = None
    goal: float | None = None

    def __post_init__(self) -> None:
        require("TuneOptions", "seconds", self.seconds, SECONDS)
        require("TuneOptions", "progress", self.progress, optional(FUNCTION))
        require("TuneOptions", "clock", self.clock, FUNCTION)
        require("TuneOptions", "dims", self.dims, SPECIALIZE)
        require("TuneOptions", "trials", self.trials, optional(WHOLE))
        require("TuneOptions", "goal", self.goal, optional(instance(int, float, wanted="a number such as 1.2")))
        for name, values in self.dims.items():
            if not values or not all(isinstance(value, int) and value > 0 for value in values):
                raise TuningError(f"the values of '{name}' to tune at must be positive numbers, got {list(values)}")
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise TuningError(f"the time for tuning must be a positive number of seconds, got {self.seconds}")
        if self.trials is not None and self.trials < 1:
            raise TuningError(f"the trials of tuning must be a positive number, got {self.trials}")
        if self.goal is not None and not (self.goal > 1 and math.isfinite(self.goal)):
            raise TuningError(f"the goal of tuning must be a gain above 1, as in 1.2, got {self.goal}")

    def bindings(self) -> list[dict[str, int]]:
        """Return the combinations of ``dims``."""
        return [dict(zip(self.dims, values, strict=True)) for values in itertools.product(*self.dims.values())]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The outcome for one workload, which occurs ``count`` times in the model; see `Tuning` for the times."""

    key: str
    label: str
    count: int
    parameters: Parameters | None
    seconds: float
    untuned: float


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The outcome for a model: of ``total`` workloads, those with a result, and how many have all candidates tried.

    ``varying`` kernels have extents that no dimension of an input tells: there is no shape to measure them at.
    ``trials`` is how many candidates were compiled for it, ``whole`` the time of the whole model in that of the untuned
    one, where it was measured.
    """

    total: int
    finished: int
    tuned: tuple[Tuned, ...]
    spent: float
    varying: int = 0
    trials: int = 0
    whole: float | None = None

    @property
    def gain(self) -> float:
        """By how much the kernels that were measured are faster together."""
        before, after = (sum(one.count * seconds(one) for one in self.tuned) for seconds in (_untuned, _seconds))
        return before / after if after else 1.0

    def summary(self) -> str:
        """Return one line: ``tuned 12 of 14 workloads in 20.1 s: 5 faster, together 1.08x``."""
        faster = sum(one.parameters is not None for one in self.tuned)
        gain = f", together {self.gain:.2f}x" if any(map(_seconds, self.tuned)) else ""
        if self.whole is not None:
            gain += f", the whole model takes {self.whole:.2f} of its time"
        rest = "" if self.finished == self.total else f"; {self.total - self.finished} to go on with"
        if self.varying:
            rest += f"; {self.varying} more have extents that are known only when they run"
        return f"tuned {len(self.tuned)} of {self.total} workloads in {self.spent:.1f} s: {faster} faster{gain}{rest}"

    def __add__(self, other: TuneReport) -> TuneReport:
        """Return the report of both."""
        return TuneReport(
            self.total + other.total,
            self.finished + other.finished,
            self.tuned + other.tuned,
            self.spent + other.spent,
            self.varying + other.varying,
            self.trials + other.trials,
        )


def tune_options(requested: bool | float | TuneOptions) -> TuneOptions | None:
    """Return what a user's ``tune`` means: True, a number of seconds, or options; None for False."""
    if isinstance(requested, TuneOptions):
        return requested
    if requested is False:
        return None
    return TuneOptions(DEFAULT_SECONDS if requested is True else float(requested), _shown_in_notebook())


def _shown_in_notebook() -> Callable[[Progress], None] | None:
    move = notebook_bar()
    return None if move is None else lambda state: move(state.spent, state.seconds)


def remaining(options: TuneOptions, spent: float, trials: int = 0) -> TuneOptions | None:
    """Return the options with what is left of the budget, None if nothing is."""
    left = None if options.trials is None else options.trials - trials
    if spent >= options.seconds or (left is not None and left < 1):
        return None
    return replace(options, seconds=options.seconds - spent, trials=left)


def _seconds(tuned: Tuned) -> float:
    return tuned.seconds


def _untuned(tuned: Tuned) -> float:
    return tuned.untuned
