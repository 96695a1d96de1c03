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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from graft.errors import GraftError
from graft.runtime.foreign import one_line
from graft.testkit.conformance.api import suite_of
from graft.testkit.conformance.ledger import Entry, entry_of, read
from graft.testkit.conformance.levels import HIGHEST
from graft.testkit.conformance.outcome import Result
from graft.testkit.conformance.suite import Suite, unmet

SECONDS = 120.0
"""The time that a case of one model gets."""
LONG_SECONDS = 900.0
"""The time that a case gets which starts processes itself, or runs a network: levels 4 and up."""
MOST_LOST = 3
"""After so many lost processes, what is left of a group is not run."""
PROCESS = "from graft.testkit.conformance.apart import main; main()"
FORKED = "forks, and lets the child return into the call"


@dataclass(slots=True)
class ApartSuite:
    """The suite that `suite_of` makes of ``arguments``, in a process that may be lost.

    ``seconds`` is the time that a case gets; None: as its level needs.
    """

    arguments: Mapping[str, Any]
    seconds: float | None = None
    results: list[Result] = field(default_factory=list)
    _ledger: tuple[Entry, ...] = ()
    _why: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _connection: Connection | None = None

    def run_all(self, only: Sequence[str] = ()) -> Iterator[tuple[int, str, list[Result]]]:
        """Run the groups in turn, as `Suite.run_all` does.

        Raises GraftError for a level, a ledger or a model that is none, and for a backend that there is not.
        """
        self._ledger = read(self.arguments.get("xfail"))
        try:
            for level, subject in self._groups(only):
                found = self._run(level, subject) if subject else [self._lost("0/registration/loaded", self._why)]
                found += unmet(self._ledger, level, subject, found)
                self.results += found
                yield level, subject, found
        finally:
            self._end()

    def _groups(self, only: Sequence[str]) -> list[tuple[int, str]]:
        """Return the groups; the one without a subject where asking for them costs the process."""
        self._ask("groups", tuple(only))
        try:
            told = self._told(self._limit(HIGHEST))
        except _Lost as lost:
            self._why = lost.text
            return [(0, "")]
        if isinstance(told, GraftError):
            raise told
        return list(told)

    def _run(self, level: int, subject: str) -> list[Result]:
        """Run a group, in other processes where one is lost."""
        found: list[Result] = []
        for _ in range(MOST_LOST):
            case, forked = "", set[str]()
            self._ask("run", level, subject, len(found))
            try:
                while (told := self._told(self._limit(level))) is not None:
                    if isinstance(told, str):
                        case = told
                    elif isinstance(told, Forked):
                        forked.add(told.case)
                    else:
                        found.append(told)
                    if found and found[-1].name in forked:
                        found[-1] = self._lost(found[-1].name, FORKED)
                return found
            except _Lost as lost:
                self._end()
                found.append(self._lost(case or f"{level}/{subject}/cases", lost.text))
                if not case:
                    break
        return found

    def _lost(self, case: str, text: str) -> Result:
        """Return the result of a case that was lost with its process."""
        entry = entry_of(self._ledger, case)
        return Result(
            case, "failed" if entry is None else "expected-failure", text, "" if entry is None else entry.reason
        )

    def _limit(self, level: int) -> float:
        return self.seconds if self.seconds is not None else SECONDS if level < 4 else LONG_SECONDS

    def _ask(self, *question: Any) -> None:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", PROCESS, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
                )  # fmt: skip
            self._connection = Connection(ours.detach())
            self._connection.send(dict(self.arguments))
        self._connection.send(question)

    def _told(self, seconds: float) -> Any:
        assert self._connection is not None
        assert self._process is not None
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
        except (OSError, EOFError):
            status = self._process.wait()
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            raise _Lost(f"{'crashes' if status < 0 else 'exits'}: the process ended {how}") from None
        raise _Lost(f"hangs: it took more than {seconds:g} s")

    def _end(self) -> None:
        """End the process and what it started."""
        if self._connection is not None and self._process is not None:
            self._connection.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._connection = self._process = None


@dataclass(frozen=True, slots=True)
class Forked:
    """What a child of the process says that came back from a case."""

    case: str


class _Lost(Exception):
    """The process is lost; the text says how."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def serve(connection: Connection) -> None:
    """Answer questions until nobody asks any more."""
    own = os.getpid()
    suite: Suite | None = None
    arguments = connection.recv()
    while True:
        try:
            question, *rest = connection.recv()
        except EOFError:
            return
        try:
            suite = suite or suite_of(**arguments)
            if question == "groups":
                suite.kit.manager.backends([suite.kit.name])
                connection.send(suite.wanted(rest[0]))
                continue
        except GraftError as error:
            connection.send(GraftError(one_line(error.message)))
            continue
        for step in suite.steps(*rest):
            if os.getpid() != own:
                connection.send(Forked(step.name if isinstance(step, Result) else step))
                os._exit(0)
            connection.send(step)
        connection.send(None)


def main() -> None:
    """Answer the process at the other end of a socket."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))
