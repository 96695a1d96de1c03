"""The levels of conformance, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from graft.testkit.conformance import (
    artifacts,
    composites,
    operators,
    real_models,
    regions,
    registration,
    robustness,
)
from graft.testkit.conformance.cases.outcome import Case
from graft.testkit.conformance.kit import Kit


@dataclass(frozen=True, slots=True)
class Level:
    """A level: what it holds a backend to, its subjects (each a test), and the cases of a subject."""

    title: str
    subjects: Callable[[Kit], Sequence[str]]
    cases: Callable[[Kit, str], Iterator[Case]]


LEVELS = (
    Level("registers, lists, answers", registration.subjects, registration.cases),
    Level("claimed operators", operators.subjects, operators.cases),
    Level("composites and near misses", composites.subjects, composites.cases),
    Level("regions of random models", regions.subjects, regions.cases),
    Level("artifacts", artifacts.subjects, artifacts.cases),
    Level("robustness", robustness.subjects, robustness.cases),
    Level("real models", real_models.subjects, real_models.cases),
)
HIGHEST = len(LEVELS) - 1
