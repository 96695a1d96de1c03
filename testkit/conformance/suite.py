"""A suite: a backend, a level and a ledger; it runs group by group and holds the results against the ledger."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from graft.errors import GraftError
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.foreign import one_line
from graft.testkit.conformance.cases.outcome import BAD, Case, Failure, NotClaimed, NotRun, Result, Trial
from graft.testkit.conformance.kit import Kit, fault, reproduction
from graft.testkit.conformance.ledger import Entry, Given, entry_of, read
from graft.testkit.conformance.levels import HIGHEST, LEVELS

Model = str | os.PathLike[str] | onnx.ModelProto


@dataclass(slots=True)
class Suite:
    """What a backend is held to: all levels up to ``level``.

    ``keep`` is a folder for the models of failures.
    """

    kit: Kit
    level: int = 3
    ledger: tuple[Entry, ...] = ()
    keep: Path | None = None
    results: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not 0 <= self.level <= HIGHEST:
            raise GraftError(f"there is no level {self.level}; give one of 0 to {HIGHEST}")

    def groups(self) -> list[tuple[int, str]]:
        """Return the groups as (level, subject); those of a backend that does not load are of level 0 alone."""
        found: list[tuple[int, str]] = []
        for number, level in enumerate(LEVELS[: self.level + 1]):
            try:
                found += [(number, subject) for subject in level.subjects(self.kit)]
            except GraftError:
                continue
        return found

    def run(self, level: int, subject: str) -> list[Result]:
        """Run a group and return its results, entries of the ledger that no case answers to at the end."""
        found = [one for one in self.steps(level, subject) if isinstance(one, Result)]
        found += unmet(self.ledger, level, subject, found)
        self.results += found
        return found

    def steps(self, level: int, subject: str, skipped: int = 0) -> Iterator[str | Result]:
        """Give the name of each case of a group, then how it ended; the first ``skipped`` are left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, case in enumerate(self._cases(level, subject)):
                if number >= skipped:
                    yield case.name
                    yield self._result(case)

    def wanted(self, only: Sequence[str] = ()) -> list[tuple[int, str]]:
        """Return the groups whose ``LEVEL/SUBJECT`` begins as one of ``only`` says, all if it says nothing.

        Raises GraftError for one that no group begins with.
        """
        groups = {f"{level}/{subject}": (level, subject) for level, subject in self.groups()}
        chosen = [[name for name in groups if f"{name}/".startswith(one.rstrip("/") + "/")] for one in only]
        for one, found in zip(only, chosen, strict=True):
            if not found:
                near = difflib.get_close_matches(one, groups, 3) or sorted({name.partition("/")[0] for name in groups})
                raise GraftError(f"there are no cases of '{one}'; the nearest are {', '.join(near)}", only=one)
        return [group for name, group in groups.items() if not only or any(name in found for found in chosen)]

    def run_all(self, only: Sequence[str] = ()) -> Iterator[tuple[int, str, list[Result]]]:
        """Run the groups that are `wanted`, in turn."""
        for level, subject in self.wanted(only):
            yield level, subject, self.run(level, subject)

    def _cases(self, level: int, subject: str) -> Iterator[Case]:
        """Give the cases of a group; a backend that stops them from being made has failed them."""
        try:
            yield from LEVELS[level].cases(self.kit, subject)
        except GraftError as error:
            failure = Failure(one_line(error.message))
            yield Case(f"{level}/{subject}/cases", lambda: _raise(failure))

    def _result(self, case: Case) -> Result:
        entry = entry_of(self.ledger, case.name)
        reason = "" if entry is None else entry.reason
        try:
            warning = case.run() or ""
        except NotClaimed:
            return Result(case.name, "not-claimed")
        except NotRun as error:
            return Result(case.name, "not-run", str(error))
        except Failure as failure:
            if entry is not None:
                return Result(case.name, "expected-failure", failure.text, reason)
            if self.keep is not None:
                reproduction(self.kit, failure, self.keep / case.name.replace("/", "_").replace(":", "_"))
            return Result(case.name, "failed", failure.text)
        except Exception as error:
            text = one_line(error.message) if isinstance(error, GraftError) else fault(error)
            if entry is not None:
                return Result(case.name, "expected-failure", text, reason)
            return Result(case.name, "failed", text)
        if entry is None or entry.may_pass:
            return Result(case.name, "passed", warning)
        return Result(case.name, "unexpected-pass", "it passes; take it out of the ledger", reason)


def _raise(failure: Failure) -> None:
    raise failure


def unmet(ledger: Sequence[Entry], level: int, subject: str, found: Sequence[Result]) -> list[Result]:
    """Return the entries of a ledger that are about a group, and that no case of it answers to."""
    met = {entry_of(ledger, one.name) for one in found}
    return [
        Result(entry.name, "unexpected-pass", "the ledger's entry names no case", entry.reason)
        for entry in ledger
        if entry.is_of(level, subject) and entry not in met and not entry.may_pass
    ]


def bad(results: Sequence[Result]) -> list[Result]:
    """Return the results that fail a suite."""
    return [result for result in results if result.verdict in BAD]


def suite_of(
    name: str,
    *,
    level: int = 3,
    xfail: Given = None,
    models: Sequence[Model] = (),
    plugin_files: Sequence[str | os.PathLike[str]] = (),
    seeds: int = 60,
    keep: Path | None = None,
    limits: Limits = LIMITS,
) -> Suite:
    """Return the suite that `conformance` makes tests of."""
    files = tuple(os.fspath(one) for one in plugin_files)
    kit = Kit(name, files, tuple(_trial(one) for one in models), seeds, limits)
    return Suite(kit, level, read(xfail), keep)


def _trial(model: Model) -> Trial:
    """Return a vendor's model with inputs drawn for it."""
    from graft.core.importer.load import load
    from graft.core.shapes.sample_inputs import sample_inputs

    if not isinstance(model, onnx.ModelProto):
        path = os.fspath(model)
        try:
            model = onnx.load(path)
        except (OSError, ValueError) as error:
            raise GraftError(f"model '{path}' cannot be read: {error}; give the path of an ONNX file") from error
    feeds: dict[str, np.ndarray] = sample_inputs(load(model))
    return Trial(model, feeds)
