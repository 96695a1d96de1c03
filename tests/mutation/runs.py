"""Runs of a module's tests with its mutants: each in a fork of a process that has collected the tests.

In a fork, the functions of the loaded module get the mutant's code. A mutant that changes what has run before, when
modules were imported and tests collected, is tried in a process of its own (`plugin.py`) if it lives.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest
from _pytest.main import pytest_runtestloop as run_all

from .mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
SPARE, TIMES = 5.0, 5
"""Seconds that a run with a mutant may take: these, and so many times what it takes without."""


@dataclass
class Outcome:
    """How the tests of a module did: not in time is not passed; `killer` is the test that failed."""

    passed: bool
    is_certain: bool = True
    """Whether what is changed had not run before."""
    killer: str = ""
    durations: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """How many mutants of a module its tests killed, and which they let live; `error` where the tests fail without."""

    module: str
    drawn: int = 0
    survivors: tuple[str, ...] = ()
    error: str = ""

    @property
    def killed(self) -> int:
        """The mutants that were killed."""
        return self.drawn - len(self.survivors)

    def __str__(self) -> str:
        share = f"{self.killed / max(1, self.drawn):.0%}"
        return f"{self.module}: {self.error or f'{self.killed} of {self.drawn} killed ({share})'}"


def measure(module: str, tests: list[str], count: int, seed: int) -> Measured:
    """Try `count` mutants of a module, drawn by a seed, with its tests."""
    text = (ROOT / module).read_text(encoding="utf-8")
    found = mutants_of(text)
    chosen = random.Random(f"{seed}:{module}").sample(found, min(count, len(found)))
    with tempfile.TemporaryDirectory() as folder:
        forks = _Forks(text, ROOT / module, chosen, Path(folder))
        sys.setprofile(forks.see)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/pytest", *tests], plugins=[forks])
        if not forks.seconds:
            return Measured(module, error="its tests fail, or are not there, without a mutant")
        survivors = [
            mutant
            for mutant, is_certain in forks.survivors
            if is_certain or _passes(tests, forks, module, mutant, Path(folder))
        ]
    return Measured(module, len(chosen), tuple(f"{module}:{one.line}: {one.change}" for one in survivors))


@dataclass
class _Forks:
    """A plugin of pytest that runs the tests once as they are and once with each mutant, until one fails."""

    text: str
    path: Path
    mutants: list[Mutant]
    folder: Path
    seconds: float = 0.0
    survivors: list[tuple[Mutant, bool]] = field(default_factory=list)
    before: set[CodeType] = field(default_factory=set)
    """The module's code that ran while modules were imported and tests collected."""

    def see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.endswith(self.path.name) and self.path.samefile(code.co_filename):
            self.before.add(code)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        if session.testsfailed or not session.items:
            return True
        begun = time.monotonic()
        whole = self._fork(session, lambda: (True, True), 600)
        if not whole.passed:
            return True
        self.seconds = time.monotonic() - begun
        session.items.sort(key=lambda item: whole.durations.get(item.nodeid, 0))
        for mutant in self.mutants:
            done = self._fork(session, lambda mutant=mutant: self._change(mutant), SPARE + TIMES * self.seconds)
            if done.passed:
                self.survivors.append((mutant, done.is_certain))
            session.items.sort(key=lambda item: item.nodeid != done.killer)
        return True

    def _fork(self, session: pytest.Session, change: Callable[[], tuple[bool, bool]], seconds: float) -> Outcome:
        """Run the tests in a child; not at all where the change is none of functions."""
        result = self.folder / "outcome"
        result.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os.setsid()
                if engine := sys.modules.get("hypothesis.internal.conjecture.engine"):
                    engine.MAX_SHRINKS = 0  # type: ignore[attr-defined]  # that it fails is enough
                recorder = _Recorder()
                session.config.pluginmanager.register(recorder)
                is_changed, is_certain = change()
                if is_changed:
                    with contextlib.suppress(session.Failed):
                        run_all(session)
                result.write_text(
                    json.dumps([not session.testsfailed, is_certain, recorder.killer, recorder.durations])
                )
            os._exit(0)
        end = time.monotonic() + seconds
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome(False)
            time.sleep(0.01)
        return Outcome(*json.loads(result.read_text())) if result.exists() else Outcome(False)

    def _change(self, mutant: Mutant) -> tuple[bool, bool]:
        """Give the functions of the loaded module the mutant's code; return whether any, and none that ran before."""
        old = compile(self.text, str(self.path), "exec", dont_inherit=True)
        new = compile(mutant.module, str(self.path), "exec", dont_inherit=True)
        changed = {before: after for before, after in _pairs(old, new) if before != after}
        functions = [one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__ in changed]
        for function in functions:
            function.__code__ = changed[function.__code__]
        has_run = any(code in self.before for code in changed if code.co_flags & CO_OPTIMIZED)
        return bool(functions), bool(functions) and not has_run


@dataclass
class _Recorder:
    """What failed first, and how long each test took."""

    killer: str = ""
    durations: dict[str, float] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0) + report.duration
        if report.failed and not self.killer:
            self.killer = report.nodeid


def _pairs(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]]:
    """All code of a module beside that of its mutant."""
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    if len(inner[0]) != len(inner[1]):
        return []
    return [(old, new), *(pair for both in zip(*inner, strict=True) for pair in _pairs(*both))]


def _passes(tests: list[str], forks: _Forks, module: str, mutant: Mutant, folder: Path) -> bool:
    """Whether the tests pass, in time, in a process that imports the mutant."""
    source = folder / "mutant.py"
    source.write_text(mutant.source, encoding="utf-8")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin", f"--basetemp={folder}/pytest"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAFT_MUTANT": f"{ROOT / module}{os.pathsep}{source}"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        seconds = 30 + TIMES * forks.seconds
        return not subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return False
