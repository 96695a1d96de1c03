"""Level 5: threads, re-entrancy, memory, errors from the library, damaged modules, fork."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from graft.errors import GraftError
from graft.runtime.foreign import one_line
from graft.testkit.conformance import child
from graft.testkit.conformance.artifacts import apart, compare_apart, saved
from graft.testkit.conformance.cases.outcome import Case, Failure, Trial
from graft.testkit.conformance.differences import unlike
from graft.testkit.conformance.kit import Kit, fault
from graft.testkit.conformance.samples import of_samples

THREADS, CALLS = 8, 25


def subjects(kit: Kit) -> list[str]:
    """Return the checks."""
    return list(CHECKS)


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the check for each of the sample models."""
    yield from of_samples(kit, 5, subject, CHECKS[subject])


def _threads(kit: Kit, trial: Trial) -> None:
    """Many threads run one program at a time, each with results of its own."""
    _, program = kit.compiled(trial)
    expected = kit.reference(trial)

    def call(_: int) -> str:
        return unlike(program.run(dict(trial.feeds)), expected, trial.rtol, trial.atol)

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = [text for text in pool.map(call, range(THREADS * CALLS)) if text]
    if wrong:
        raise Failure(f"{len(wrong)} of {THREADS * CALLS} calls from {THREADS} threads are wrong: {wrong[0]}", trial)


def _reentrant(kit: Kit, trial: Trial) -> None:
    """Two programs of one model take turns, and results of earlier calls stay as they are."""
    programs = [kit.compiled(trial)[1] for _ in range(2)]
    expected = kit.reference(trial)
    results: list[Mapping[str, np.ndarray]] = []
    for turn in range(6):
        results.append(programs[turn % 2].run(dict(trial.feeds)))
        for number, earlier in enumerate(results):
            if text := unlike(earlier, expected, trial.rtol, trial.atol):
                raise Failure(
                    f"after call {turn + 1} of two programs in turn, call {number + 1} is wrong: {text}", trial
                )


def _dropped(kit: Kit, trial: Trial) -> None:
    """A result outlives the program that made it."""
    _, program = kit.compiled(trial)
    results = program.run(dict(trial.feeds))
    del program
    kit.compiled(trial)[1].run(_with_ones(trial))
    if text := unlike(results, kit.reference(trial), trial.rtol, trial.atol):
        raise Failure(f"a result changes after its program is gone: {text}", trial)


def _with_ones(trial: Trial) -> dict[str, np.ndarray]:
    """Return the inputs with 1 for all numbers; integers, which may be sizes and places, stay."""
    return {name: array if array.dtype.kind in "iub" else np.ones_like(array) for name, array in trial.feeds.items()}


def _grows(kit: Kit, trial: Trial, action: str, what: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        artifact, inputs = saved(kit, trial, Path(place))
        grown, *more = map(int, apart(kit, action, artifact, inputs).split())
    if grown > child.GROWTH:
        raise Failure(f"the process grows by {grown / 2**20:.1f} MiB in {what}", trial)
    for count, kind in zip(more, ("open files", "threads"), strict=True):
        if count > child.MORE:
            raise Failure(f"the process grows by {count} {kind} in {what}", trial)


def _memory(kit: Kit, trial: Trial) -> None:
    """Thousands of calls leave the process as large as it was, with no more open files and threads."""
    _grows(kit, trial, "grown", f"{child.RUNS} calls")


def _reloaded(kit: Kit, trial: Trial) -> None:
    """Loading and dropping a program leaves the process as large as it was."""
    _grows(kit, trial, "reloaded", "80 loads")


def _wrong_inputs(kit: Kit, trial: Trial) -> None:
    """Wrong shapes, types and names of inputs are errors, and the next call is right."""
    _, program = kit.compiled(trial)
    wrongs: list[dict[str, np.ndarray]] = [{}]
    for name, array in trial.feeds.items():
        wrongs.append({**trial.feeds, name: np.zeros((*array.shape, 3), array.dtype)})
        wrongs.append({**trial.feeds, name: array.astype(np.complex64)})
    for feeds in wrongs if trial.feeds else ():
        try:
            program.run(feeds)
        except GraftError:
            continue
        except Exception as error:
            raise Failure(f"with a wrong input {fault(error)}", trial) from error
        raise Failure("takes inputs of a wrong shape or type, or none", trial)
    if text := unlike(program.run(dict(trial.feeds)), kit.reference(trial), trial.rtol, trial.atol):
        raise Failure(f"after calls with wrong inputs: {text}", trial)


def _damaged(kit: Kit, trial: Trial) -> None:
    """Modules with other bytes are errors or results: no crash, no exception of another kind."""
    with tempfile.TemporaryDirectory() as place:
        artifact, inputs = saved(kit, trial, Path(place))
        try:
            apart(kit, "damaged", artifact, inputs)
        except Failure as failure:
            raise Failure(f"with damaged modules: {failure.text}", trial) from failure


def _forked(kit: Kit, trial: Trial) -> None:
    """A process that forks runs its programs on, and so does its child."""
    compare_apart(kit, trial, "forked", "in a forked process", seconds=30)


def _ones(kit: Kit, trial: Trial) -> None:
    """Other numbers in the same program: nothing of an earlier call is left."""
    _, program = kit.compiled(trial)
    ones = _with_ones(trial)
    try:
        first, again = program.run(dict(trial.feeds)), program.run(ones)
        last = program.run(dict(trial.feeds))
    except GraftError as error:
        raise Failure(f"fed with ones: {one_line(error.message)}", trial) from error
    if text := unlike(last, first, 1e-6, 1e-6):
        raise Failure(f"a call depends on the one before: {text}", trial)
    expected = kit.reference(Trial(trial.proto, ones))
    if text := unlike(again, expected, trial.rtol, trial.atol):
        raise Failure(f"fed with ones: {text}", trial)


CHECKS: dict[str, Callable[[Kit, Trial], None]] = {
    "threads": _threads,
    "re-entrant": _reentrant,
    "results-outlive": _dropped,
    "independent-calls": _ones,
    "wrong-inputs": _wrong_inputs,
    "memory-of-calls": _memory,
    "memory-of-loads": _reloaded,
    "damaged-modules": _damaged,
    "fork": _forked,
}
