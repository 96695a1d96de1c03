"""A suite whose cases run in a process of their own: a crash, an exit or a hang of the vendor's is a result as others.

The process runs case after case and tells of each before it begins. When it is lost, another one goes on behind the
case that it was at.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import finalize

from graft.errors import GraftError, PluginError
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.foreign import one_line
from graft.testkit.conformance.cases.outcome import Result
from graft.testkit.conformance.ledger import entry_of, read
from graft.testkit.conformance.levels import HIGHEST
from graft.testkit.conformance.suite import Suite, suite_of, unmet
from graft.testkit.conformance.traces import asked, watch, where

SECONDS = 120.0
"""The time that a case of one model gets."""
LONG_SECONDS = 900.0
"""The time that a case gets which starts processes itself, or runs a network: levels 4 and up."""
START_SECONDS = 300.0
"""The time that the process gets to import Graft, and beside that of a case to make the cases of a group."""
STEP = 1.0
"""The seconds in which a wait is cut."""
MOST_LOST = 3
"""After so many lost processes, what is left of a group is not run."""
MOST_HUNG = 3
"""After so many cases that hung, what is left of a suite is not run: it would take hours to hang."""
PROCESS = "from graft.testkit.conformance.apart import main; main()"
FORK_SECONDS = 5.0
"""How long a forked child may take to come back."""
FORKED = "forks, and lets the child return into the call"


class ApartSuite:
    """The suite that `suite_of` makes of ``arguments``, in a process that may be lost.

    ``seconds`` is the time that a case gets; None: as its level needs.
    """

    def __init__(self, arguments: Mapping[str, Any], seconds: float | None = None) -> None:
        self.results: list[Result] = []
        limits = LIMITS if seconds is None else Limits(min(LIMITS.load, seconds / 2), min(LIMITS.answer, seconds / 4))
        self._arguments = {**arguments, "limits": limits}
        self._seconds = seconds
        self._ledger = read(arguments.get("xfail"))
        self._why = ""
        self._hung: list[str] = []
        self._process: _Process | None = None

    def run_all(self, only: Sequence[str] = ()) -> Iterator[tuple[int, str, list[Result]]]:
        """Run the groups in turn, as `Suite.run_all` does.

        Raises GraftError for a level, a ledger or a model that is none, and for an unknown backend.
        """
        try:
            for level, subject in self.groups(only, must_be_there=True):
                yield level, subject, self.run(level, subject)
        finally:
            self.end()

    def groups(self, only: Sequence[str] = (), *, must_be_there: bool = False) -> list[tuple[int, str]]:
        """Return the groups that `Suite.wanted` does; level 0 alone where asking for them costs the process.

        Raises GraftError as `run_all` does; for an unknown backend, only if it ``must_be_there``.
        """
        try:
            told = self._asked("groups", tuple(only), must_be_there).told(self._limit(HIGHEST))
        except _Lost as lost:
            self.end()
            self._why = lost.text
            return [(0, "registration")]
        if isinstance(told, GraftError):
            raise told
        return list(told)

    def run(self, level: int, subject: str) -> list[Result]:
        """Run a group and return its results, as `Suite.run` does."""
        if self._why:
            found = [self._lost("0/registration/loaded", self._why)]
        elif len(self._hung) >= MOST_HUNG:
            found = [
                self._lost(f"{level}/{subject}/cases", f"is not run: {MOST_HUNG} cases hung, {self._hung[-1]} last")
            ]
        else:
            found = self._steps(level, subject)
        found += unmet(self._ledger, level, subject, found)
        self.results += found
        return found

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _steps(self, level: int, subject: str) -> list[Result]:
        """Run a group, in other processes where one is lost."""
        found: list[Result] = []
        for _ in range(MOST_LOST):
            case, forked = "", set[str]()
            try:
                process = self._asked("run", level, subject, len(found))
                while (told := process.told(self._limit(level) + (0 if case else START_SECONDS))) is not None:
                    if isinstance(told, str):
                        case = told
                    elif isinstance(told, Forked):
                        forked.add(told.case)
                    else:
                        found.append(told)
                    found = [self._lost(one.name, FORKED) if one.name in forked else one for one in found]
                return found
            except _Lost as lost:
                self.end()
                found.append(self._lost(case or f"{level}/{subject}/cases", lost.text))
                self._hung += [found[-1].name] if lost.late else []
                if not case or len(self._hung) >= MOST_HUNG:
                    break
        return found

    def _lost(self, case: str, text: str) -> Result:
        """Return the result of a case that was lost with its process."""
        entry = entry_of(self._ledger, case)
        return Result(
            case, "failed" if entry is None else "expected-failure", text, "" if entry is None else entry.reason
        )

    def _limit(self, level: int) -> float:
        return self._seconds if self._seconds is not None else SECONDS if level < 4 else LONG_SECONDS

    def _asked(self, *question: Any) -> _Process:
        if self._process is None:
            self._process = _Process(self._arguments)
        self._process.connection.send(question)
        return self._process


class _Process:
    """A process that runs cases, and what it writes of where it is when it is lost."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._traces = os.memfd_create("graft-traces")
        ours, theirs = socket.socketpair()
        passed = [theirs.fileno(), self._traces]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROCESS, *map(str, passed)],
                pass_fds=passed, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )  # fmt: skip
        self.connection = Connection(ours.detach())
        self.end = finalize(self, _end, self._process, self.connection, self._traces)
        self.connection.send(dict(arguments))
        self.told(START_SECONDS)

    def told(self, seconds: float) -> Any:
        """Return what the process says next; raise _Lost if it has ended, or says nothing for so long."""
        try:
            if self._poll(seconds):
                return self.connection.recv()
        except (OSError, EOFError):
            status = self._process.wait()
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            what = "crashes" if status < 0 else "exits"
            raise _Lost(f"{what}: the process ended {how}{where(self._traces)}") from None
        asked(self._process.pid, self._traces)
        raise _Lost(f"hangs: it took more than {seconds:g} s{where(self._traces)}", late=True)

    def _poll(self, seconds: float) -> bool:
        """Whether something is said within a time, of which at most `STEP` goes by while this process is stopped."""
        while seconds > STEP:
            if self.connection.poll(STEP):
                return True
            seconds -= STEP
        return self.connection.poll(seconds)


def _end(process: subprocess.Popen[bytes], connection: Connection, traces: int) -> None:
    """End a process and what it started."""
    connection.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(traces)


@dataclass(frozen=True, slots=True)
class Forked:
    """What a child of the process says that came back from a case."""

    case: str


class _Lost(Exception):
    """The process is lost; the text says how."""

    def __init__(self, text: str, *, late: bool = False) -> None:
        super().__init__(text)
        self.text, self.late = text, late


def serve(connection: Connection) -> None:
    """Answer questions until nobody asks any more."""
    own = os.getpid()
    suite: Suite | None = None
    arguments = connection.recv()
    connection.send("ready")
    while True:
        try:
            question, *rest = connection.recv()
        except EOFError:
            return
        try:
            suite = suite or suite_of(**arguments)
            if question == "groups":
                only, must_be_there = rest
                with contextlib.suppress(PluginError):  # which level 0 has to say
                    suite.kit.manager.backends([suite.kit.name] if must_be_there else None)
                connection.send(suite.wanted(only))
                continue
        except GraftError as error:
            connection.send(GraftError(one_line(error.message)))
            continue
        for step in suite.steps(*rest):
            if os.getpid() != own:
                connection.send(Forked(step.name if isinstance(step, Result) else step))
                os._exit(0)
            connection.send(step)
        _wait_for_forks()
        connection.send(None)


def _wait_for_forks() -> None:
    """Give children that a plugin has forked the time to come back from its call, and to say so."""
    end = time.monotonic() + FORK_SECONDS
    while time.monotonic() < end and any(map(_is_fork, Path("/proc/self/task").glob("*/children"))):
        time.sleep(0.05)


def _is_fork(children: Path) -> bool:
    """Whether a child, of those that a thread has, runs the same program: one that has ended shows none."""
    with contextlib.suppress(OSError):
        own = Path("/proc/self/cmdline").read_bytes()
        return any(Path(f"/proc/{one}/cmdline").read_bytes() == own for one in children.read_text().split())
    return False


def main() -> None:
    """Answer the process at the other end of a socket."""
    watch(int(sys.argv[2]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))
