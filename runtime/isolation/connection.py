"""The host's side of isolated modules: their processes, started when they are needed and buried when they end."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graft.runtime._native as _native
from graft.errors import ArtifactError, RunError
from graft.runtime.foreign import kind_of, said
from graft.runtime.isolation.endings import ending, signal_name
from graft.runtime.isolation.environments import interpreter
from graft.runtime.isolation.messages import pair, receive, send
from graft.runtime.isolation.options import Isolation
from graft.runtime.isolation.package import Package, write
from graft.runtime.isolation.sandbox import of_file, of_module
from graft.runtime.isolation.supervisor import stop
from graft.runtime.loaders import Given, NativeLoader, PluginFile, PythonLoader, entry_point
from graft.runtime.procedure import Module

GRACE = 5.0
"""Seconds in which a process that was killed has ended."""


class WorkerError(RunError):
    """The process of an isolated module crashed, ended, hung or could not be started.

    ``plugin`` and ``module`` name it, ``signal`` or ``status`` say how it ended; after a call that took too long,
    ``seconds`` says how long it was given.
    """


class Supervision:
    """One supervisor, and the ends of its workers; started with the first worker, and anew after a fork."""

    def __init__(self, is_clean: bool = False) -> None:
        """Let workers have the environment of this process or, where it ``is_clean``, nothing secret of it."""
        self._is_clean = is_clean
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._owner = 0
        self._ended: dict[int, int] = {}

    def start(self, package: int) -> tuple[int, socket.socket]:
        """Return a new worker's process number, and the socket on which it answers."""
        with self._lock:
            for attempt in range(2):
                host, own = pair()
                try:
                    return self._started(package, host, own)
                except OSError:  # the supervisor itself was killed
                    host.close()
                    self._forget()
                    if attempt:
                        raise
                finally:
                    own.close()
        raise AssertionError("unreachable")

    def _started(self, package: int, host: socket.socket, own: socket.socket) -> tuple[int, socket.socket]:
        control = self._running()
        send(control, {}, [package, own.fileno()])
        while True:
            answer = receive(control)
            if answer is None:
                raise ConnectionError
            if "worker" in answer[0]:
                return answer[0]["worker"], host
            self._ended[answer[0]["ended"]] = answer[0]["status"]

    def status_of(self, worker: int) -> int | None:
        """Return how a worker ended that ends now: its status, or minus its signal; None if nobody knows."""
        end = time.monotonic() + GRACE
        with self._lock:
            while worker not in self._ended and self._socket is not None and self._owner == os.getpid():
                left = max(0.0, end - time.monotonic())
                ready = select.select([self._socket], [], [], left)[0]
                answer = receive(self._socket) if ready else None
                if answer is None:
                    break
                self._ended[answer[0]["ended"]] = answer[0]["status"]
            return self._ended.pop(worker, None)

    def _running(self) -> socket.socket:
        if self._owner != os.getpid():
            self._forget()
        if self._socket is None:
            self._socket, theirs = pair()
            command = [sys.executable, "-W", "ignore", "-m", "graft.runtime.isolation.supervisor", str(theirs.fileno())]
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    start_new_session=True,
                    env=clean_environment() if self._is_clean else None,
                )
            self._owner = os.getpid()
        return self._socket

    def _forget(self) -> None:
        """Drop the supervisor, which ends with its workers when nobody speaks to it any more."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None and self._owner == os.getpid():
            self._process.wait(GRACE)
        self._socket = self._process = None
        self._ended.clear()

    def close(self) -> None:
        """End the supervisor and its workers."""
        with self._lock:
            self._forget()

    def __del__(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None and self._owner == os.getpid():
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(GRACE)


@dataclass(frozen=True)
class Origin:
    """Where a module's loader is found in another process."""

    module: Module
    """One of those that it loads."""
    options: Mapping[str, Any]
    """Of the backend that made it, secrets too."""
    given: Given | None


class Connection:
    """An isolated module: its package, and the worker that has it now."""

    def __init__(
        self,
        module: Module,
        constants: Mapping[str, np.ndarray],
        origin: Origin,
        how: Isolation,
        threads: int,
        supervision: Supervision,
    ) -> None:
        facts = {
            "name": module.name,
            "kind": origin.module.kind,
            "functions": list(module.functions),
            "plugin": origin.module.plugin,
            "install": origin.module.install,
            "backend": origin.module.backend,
            "options": dict(origin.options),
            "loader": _pickled(origin),
            "memory": how.memory,
            "interpreter": interpreter(how),
            "threads": threads,
            "path": sys.path,
            "sandbox": _readable(origin) if how.sandbox else None,
        }
        self.module, self.plugin, self.how = module.name, origin.module.plugin, how
        self._package = write(Package(facts, module.data, constants))
        self._supervision = supervision
        self._lock = threading.Lock()
        self._worker = 0
        self._socket: socket.socket | None = None
        self._owner = os.getpid()

    def functions(self, names: tuple[str, ...]) -> dict[str, _native.FencedFunction]:
        """Start the worker, which loads the module, and return its functions; raise what its loader raised."""
        with self._lock:
            self._start()
        return {
            name: _native.FencedFunction(self, number, self.how.seconds, self.how.sandbox)
            for number, name in enumerate(names)
        }

    def connect(self, channel: int) -> None:
        """Give the worker its end of a new channel; a worker that was lost is started anew."""
        with self._lock:
            if self._owner != os.getpid():  # a forked child has workers of its own
                if self._socket is not None:
                    self._socket.close()
                self._socket, self._owner = None, os.getpid()
            if self._socket is not None:
                try:
                    send(self._socket, {}, [channel])
                    return
                except OSError:  # it ended while nobody called it
                    self._bury()
            self._start()
            assert self._socket is not None
            send(self._socket, {}, [channel])

    def failed(self, late: bool) -> WorkerError:
        """Return what became of the worker that a call lost; one that does not answer is stopped."""
        with self._lock:
            worker = self._worker
            if self._socket is None:  # another call has told of it
                return self._error("was lost to another call, too")
            if late:
                stop(worker)
                self._bury()
                text = f"did not answer within {self.how.seconds:g} s and was stopped"
                return self._error(text, seconds=self.how.seconds)
            return self._ended(self._bury())

    def _ended(self, status: int | None, when: str = "") -> WorkerError:
        text = ending(status, when)
        if status is None:
            return self._error(text)
        if status < 0:
            hint = "; the system may have run out of memory" if -status == signal.SIGKILL else ""
            return self._error(f"{text}{hint}", signal=signal_name(-status))
        return self._error(text, status=status)

    def _error(self, text: str, **facts: Any) -> WorkerError:
        return WorkerError(
            f"the process of plugin '{self.plugin}' for module '{self.module}' {text}",
            plugin=self.plugin, module=self.module, **facts,
        )  # fmt: skip

    def _start(self) -> None:
        """Start a worker and wait until it has loaded the module."""
        try:
            self._worker, self._socket = self._supervision.start(self._package)
        except OSError as error:
            raise self._error(f"cannot be started: {error}") from error
        limit = self.how.load_seconds or None
        if not select.select([self._socket], [], [], limit)[0]:
            stop(self._worker)
            self._bury()
            raise self._error(f"did not load it within {limit:g} s and was stopped", seconds=limit)
        answer = receive(self._socket)
        if answer is None:
            raise self._ended(self._bury(), " while it loaded it")
        if not isinstance(answer[0], dict):
            self._bury()
            raise self._error("sent something else than an answer while it loaded it")
        if "error" in answer[0]:
            self._bury()
            raise ArtifactError(f"{answer[0]['error']} (in a process of its own)", plugin=self.plugin)

    def _bury(self) -> int | None:
        """Forget the worker; return how it ended."""
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        return self._supervision.status_of(self._worker)

    def __del__(self) -> None:
        end: socket.socket | None = getattr(self, "_socket", None)
        if end is not None:
            end.close()
            if self._owner == os.getpid():
                stop(self._worker)
        if hasattr(self, "_package"):
            os.close(self._package)


KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ")
"""What of the environment a sandbox gets, beside PYTHON..., OMP_... and OPENBLAS_...: no tokens, keys or passwords."""


def clean_environment() -> dict[str, str]:
    """Return what a process may know of this one's environment that is not to know its secrets."""
    prefixes = ("PYTHON", "LC_", "OMP_", "OPENBLAS_")
    return {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(prefixes)}


def _readable(origin: Origin) -> list[str]:
    """Return what a sandbox has to read to load a module, beside what is installed."""
    given = origin.given
    if isinstance(given, PluginFile):
        return of_file(given.path)
    if isinstance(given, NativeLoader):
        return [os.path.realpath(given.library)]
    if given is not None:
        module = sys.modules.get(getattr(given.load if isinstance(given, PythonLoader) else given, "__module__", ""))
        return of_file(module.__file__) if module is not None and module.__file__ else []
    entry = entry_point(origin.module.kind, origin.module.plugin)
    return [] if entry is None else of_module(entry.value)


def _pickled(origin: Origin) -> str | None:
    """Return a loader that the caller gave as text; None if its plugin is to be asked."""
    given = origin.given
    if given is None:
        return None
    try:
        return b64encode(pickle.dumps(given)).decode()
    except Exception as error:
        raise ArtifactError(
            f"the loader for kind '{origin.module.kind}' cannot be sent to another process: {kind_of(error)}: "
            f"{said(error)}; give one whose load is a function of a module, or let the plugin's entry point bring it",
            kind=origin.module.kind,
        ) from error


def isolated(
    kind: str, rows: Sequence[Module], origin: Origin, how: Isolation, threads: int, supervision: Supervision
) -> PythonLoader:
    """Return a loader for modules of one kind that loads each in a process of its own."""

    def load(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> Mapping[str, _native.FencedFunction]:
        module = next(row for row in rows if row.name == name and row.data == data)  # variants share names
        connection = Connection(module, constants, origin, how, threads, supervision)
        return connection.functions(module.functions)

    return PythonLoader(kind, load)  # type: ignore[arg-type]  # the native runtime calls these functions itself
