"""A backend under test: it compiles models, runs them as no caller would, and is compared with the reference."""

from __future__ import annotations

import io
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from graft.compiler.api import compile_model, program_of
from graft.compiler.api import plan as graft_plan
from graft.compiler.request import Request, choose
from graft.core.backend_spec import split_backends
from graft.errors import GraftError, OptionError, PluginError
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.plugins.backend import Backend
from graft.plugins.registry.fence import FencedBackend
from graft.plugins.registry.manager import PluginManager
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.foreign import one_line, said
from graft.runtime.program import Program
from graft.runtime.system.files import make_folder, write, writing
from graft.runtime.system.printed import Settings
from graft.testkit.conformance.cases.outcome import Failure, NotClaimed, Trial
from graft.testkit.conformance.cases.variants import with_other_extents
from graft.testkit.conformance.differences import BOUNDS, unlike, unlike_bits
from graft.testkit.conformance.edges import at_edge

REFERENCE = "reference"
THREADS = 2
SLOW = 0.05
"""The seconds that a call of a model of the kit may take without a warning, however slow the reference."""
SCRIBBLE = 0x3B
"""The byte that the inputs of a finished call are overwritten with: whoever kept a pointer reads it."""

Outputs = dict[str, np.ndarray]


@dataclass(slots=True)
class Kit:
    """A backend of the installed plugins, or of files of ``plugin_files``, with options as in ``npu:bits=8``.

    ``models`` are the vendor's own, beside those that the kit makes.
    """

    text: str
    plugin_files: tuple[str, ...] = ()
    models: tuple[Trial, ...] = ()
    seeds: int = 60
    """The number of random models of level 3."""
    limits: Limits = LIMITS
    """The time that the plugin's answers may take."""
    _manager: PluginManager | None = field(default=None, repr=False)
    _failure: PluginError | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The backend's name; raises OptionError for a text that names none, or several."""
        names = [name for name, _ in split_backends(self.text)]
        if len(names) != 1:
            raise OptionError(f"'{self.text}' names {len(names)} backends; name one")
        return names[0]

    @property
    def manager(self) -> PluginManager:
        """The plugin manager; raises PluginError, each time the same, if one of the files cannot be loaded."""
        if self._failure is not None:
            raise self._failure
        if self._manager is None:
            self._manager = PluginManager(limits=self.limits)
            try:
                for path in self.plugin_files:
                    self._manager.load_file(path)
            except PluginError as error:
                self._failure = error
                raise
        return self._manager

    @property
    def backend(self) -> Backend:
        """The backend, fenced; raises GraftError if there is none of this name."""
        return choose(self.text, self.manager)[0]

    def may_take(self, operator: str) -> bool:
        """Whether the backend may take an operator by itself.

        False where neither its rules nor its patterns name it, and no pass of its own makes another of it.
        """
        from graft.patterns.walk import root_operators

        own = self.backend.backend if isinstance(self.backend, FencedBackend) else self.backend
        if type(own).supports is not Backend.supports or type(own).passes is not Backend.passes:
            return True
        named = {str(rule.what).removeprefix("ai.onnx::") for rule in own.rules if rule.is_operator}
        for row in self.backend.patterns:
            roots = root_operators(row.pattern)
            if roots is None:
                return True
            named |= {name for _, name in roots}
        return operator.rpartition("::")[2] in named or operator in named

    def claims(self, trial: Trial) -> frozenset[str]:
        """Return the names of the nodes that the backend would take of a model; none where it cannot be planned."""
        names = [self.text, *(one for one in (REFERENCE,) if one != self.name)]
        try:
            placements = graft_plan(trial.proto, names, manager=self.manager).placements
        except GraftError:
            return frozenset()
        return frozenset(row.node for row in placements if row.backend == self.name)

    def compiled(
        self, trial: Trial, others: Sequence[str] = (REFERENCE,), policy: Policy | None = None
    ) -> tuple[Plan, Program]:
        """Compile a model onto the backend, and onto ``others`` what it leaves, strictly.

        Raises NotClaimed if it takes nothing of the model, or if nobody could compile that; Failure if it fails.
        """
        names = [self.text, *(one for one in others if one != self.name)]
        request = Request(names, threads=THREADS, strict=True, cache=False, policy=policy, manager=self.manager)
        load = partial(program_of, threads=THREADS, backends=names, manager=self.manager)
        try:
            compiled = compile_model(trial.proto, request)
            if all(row.backend != self.name for row in compiled.plan.placements):
                raise NotClaimed
            return compiled.plan, load(compiled.description)
        except GraftError as error:
            self._computed(trial)
            raise Failure(f"cannot be compiled: {one_line(error.message)}", trial) from error

    def reference(self, trial: Trial) -> Mapping[str, np.ndarray]:
        """Return what is right: as the trial says, or as the reference backend computes it; NotClaimed if it cannot."""
        return self._computed(trial) if trial.expected is None else trial.expected

    def _computed(self, trial: Trial) -> Outputs:
        for _, expected in self._computable([trial]):
            return expected
        raise NotClaimed

    def _computable(self, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Outputs]]:
        """Give those trials of one model that the reference computes, with its results."""
        program: Program | None = None
        for trial in trials:
            try:
                if program is None:
                    request = Request([REFERENCE], threads=1, strict=True, cache=False, manager=self.manager)
                    description = compile_model(trial.proto, request).description
                    program = program_of(description, 1, [REFERENCE], self.manager)
                with np.errstate(all="ignore"):
                    yield trial, program.run(dict(trial.feeds))
            except GraftError:
                continue

    def attempt(self, trial: Trial, others: Sequence[str] = (REFERENCE,), policy: Policy | None = None) -> str:
        """Compile and run a model on the backend; raise Failure for a wrong result, or for bad manners.

        Bad manners are: to change inputs, to keep pointers to the memory of a call, to depend on earlier calls, to give
        other bits each time, to print, to change settings of the process in a call. Returns a warning where a call
        takes far longer than the reference, else "".
        """
        with silent() as printed:
            _, program = self.compiled(trial, others, policy)
            expected, clock = self.reference(trial), Clock()
            try:
                with np.errstate(all="ignore"):
                    settings = Settings()
                    self._run_twice(program, trial, expected, clock)
                    if trial.expected is None or trial.rtol is None:  # a random model's bounds hold for its own inputs
                        self._run_others(program, trial, clock)
                    changed = settings.changed_in(Settings())
                    settings.put_back()
            except GraftError as error:
                raise Failure(f"fails when it runs: {one_line(error.message)}", trial) from error
            del program
        if changed:
            raise Failure(f"changes settings of the process: {', '.join(changed)}", trial)
        if printed:
            raise Failure(f"prints to the standard output: {one_line(printed[0])}", trial)
        return clock.warning()

    def _run_others(self, program: Program, trial: Trial, clock: Clock) -> None:
        """Run on other numbers of the same shapes, and in other sizes, then on the first ones again."""
        with clock.of_reference():
            others = list(islice(self._computable(with_other_numbers(trial)), 1))
            own = trial.expected is None or not unlike(self._computed(trial), trial.expected, trial.rtol, trial.atol)
        if not own:  # the reference is no measure of what it does otherwise than the test says
            return
        for what, found in (
            ("with other numbers of the same shapes", others),
            ("in another size", self._computable(with_other_extents(trial))),
        ):
            for other, expected in found:
                if _is_of_nothing(other, expected):
                    continue
                before = program.run(dict(trial.feeds))
                if text := unlike(program.run(dict(other.feeds)), expected, trial.rtol, trial.atol):
                    raise Failure(f"a call {what} is wrong: {text}", other)
                with clock.of_backend():
                    after = program.run(dict(trial.feeds))
                if text := unlike_bits(after, before):
                    raise Failure(f"two calls with the same inputs differ: {text}", trial)

    def _run_twice(self, program: Program, trial: Trial, expected: Mapping[str, np.ndarray], clock: Clock) -> None:
        first, second = (
            {name: at_edge(array, end=end) for name, array in trial.feeds.items()} for end in (False, True)
        )
        once = program.run(first)
        for name, array in first.items():
            if array.tobytes() != np.asarray(trial.feeds[name]).tobytes():
                raise Failure(f"changes its input '{name}'", trial)
        if text := unlike(once, expected, trial.rtol, trial.atol):
            raise Failure(text, trial)
        kept = {name: np.array(array) for name, array in once.items()}
        for array in first.values():
            scribble(array)
        with clock.of_backend():
            again = program.run(second)
        if text := unlike(again, expected, trial.rtol, trial.atol):
            raise Failure(f"a second call is wrong though the first was right: {text}", trial)
        if any(array.tobytes() != kept[name].tobytes() for name, array in once.items()):
            raise Failure("a second call changes the results of the first", trial)


def _is_of_nothing(trial: Trial, results: Mapping[str, np.ndarray]) -> bool:
    """Whether results have elements that are reduced from none: a mean of nothing is what each library says."""
    return any(not one.size for one in trial.feeds.values()) and any(one.size for one in results.values())


def with_other_numbers(trial: Trial) -> Iterator[Trial]:
    """Give the trial with the elements of its first float input, of several ones, in the opposite order, if it has one.

    What is legal stays so: no number is new. Integers, which may be shapes and indices, are left alone.
    """
    for name, array in trial.feeds.items():
        if array.dtype.name in BOUNDS and array.size > 1:
            backwards = np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
            if backwards.tobytes() != np.ascontiguousarray(array).tobytes():
                yield Trial(trial.proto, {**trial.feeds, name: backwards}, None, trial.rtol, trial.atol)


@dataclass(slots=True)
class Clock:
    """The seconds that calls of the backend's program and of the reference's take, the least of each."""

    backend: float = math.inf
    reference: float = math.inf

    @contextmanager
    def of_backend(self) -> Iterator[None]:
        """Time a call of the backend's program."""
        start = perf_counter()
        yield
        self.backend = min(self.backend, perf_counter() - start)

    @contextmanager
    def of_reference(self) -> Iterator[None]:
        """Time what the reference takes, compilation included."""
        start = perf_counter()
        yield
        self.reference = min(self.reference, perf_counter() - start)

    def warning(self) -> str:
        """Return what to say of a call that takes more than `SLOW` seconds, and longer than the reference; else ""."""
        if math.inf > self.backend > max(SLOW, self.reference):
            return (
                f"slow: a call takes {self.backend * 1e3:.0f} ms, where the reference takes "
                f"{self.reference * 1e3:.0f} ms to be compiled and run"
            )
        return ""


def scribble(array: np.ndarray) -> None:
    """Overwrite an array's bytes."""
    if array.dtype.kind != "O" and array.size:
        array.reshape(-1).view(np.uint8)[...] = SCRIBBLE if array.dtype.kind != "b" else 0


@contextmanager
def silent() -> Iterator[list[str]]:
    """Keep the standard output shut, Python's and the process's; what was printed is in the list afterwards."""
    printed: list[str] = []
    words = io.StringIO()
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with redirect_stdout(words):
                yield printed
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        text = words.getvalue() + file.read().decode(errors="replace")
        if text:
            printed.append(text)


def reproduction(kit: Kit, failure: Failure, folder: Path) -> None:
    """Write what shows a failure: ``model.onnx``, ``inputs.npz``, and a script of a few lines."""
    if failure.trial is None:
        return
    make_folder(folder, "what shows a failure")
    write(folder / "model.onnx", failure.trial.proto.SerializeToString(), "model")
    arrays: dict[str, Any] = dict(failure.trial.feeds)
    with writing(folder / "inputs.npz", "inputs") as file:
        np.savez(file, **arrays)
    text = (
        f"# {one_line(failure.text)}\n"
        "import graft, numpy\n"
        f'report = graft.verify("model.onnx", ["{kit.text}", "{REFERENCE}"], inputs=dict(numpy.load("inputs.npz")), '
        "per_region=True)\n"
        "print(report)\n"
    )
    write(folder / "reproduce.py", text, "reproduction")


def fault(error: BaseException) -> str:
    """Return what an exception that is no error of Graft's says, with its type."""
    return f"raises {type(error).__name__}, which is no GraftError: {one_line(said(error))}"
