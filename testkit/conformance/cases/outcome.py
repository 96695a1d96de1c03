"""How a case of the kit ends, as data, and the exceptions by which a check says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import onnx

Verdict = Literal["passed", "failed", "expected-failure", "unexpected-pass", "not-claimed", "not-run"]
BAD: tuple[Verdict, ...] = ("failed", "unexpected-pass")


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A model with the inputs of one run; without ``expected`` the reference backend says what is right.

    ``rtol`` and ``atol`` are those of the outputs' types unless they are given.
    """

    proto: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray] | None = None
    rtol: float | None = None
    atol: float | None = None


class Failure(Exception):
    """What a backend does is wrong; ``trial`` shows it, where one run of a model does."""

    def __init__(self, text: str, trial: Trial | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.trial = trial


class NotClaimed(Exception):
    """The backend takes nothing of the case, so nothing is charged to it."""


class NotRun(Exception):
    """The check could not be made, so the level that it belongs to is not reached; the text says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One check: its name, ``LEVEL/SUBJECT/WHAT``, and what runs it, raising `Failure`, `NotClaimed` or `NotRun`.

    What ``run`` returns is a warning about what passes, None or "" for none.
    """

    name: str
    run: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Result:
    """How a case ended: what is wrong, a pass's warning, why it was not run; for an expected failure the reason."""

    name: str
    verdict: Verdict
    text: str = ""
    reason: str = ""

    @property
    def level(self) -> int:
        """The level of the case."""
        return int(self.name.partition("/")[0])

    @property
    def subject(self) -> str:
        """What the case is about: an operator, a composite, a check."""
        return self.name.split("/")[1]
