"""A vendor's toolkit in an interpreter of its own, as this process sees it: functions that are called there."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from graft.errors import PluginError
from graft.runtime.isolation import toolkit_worker
from graft.runtime.isolation.endings import ending

VARIABLE = "GRAFT_TOOLKIT_PYTHON"
"""Which interpreter an isolated plugin's toolkit has, in the environment of the plugin's process."""
GRACE = 5.0
STEP = 0.2
"""Seconds between two looks at what a toolkit has printed."""
PRINTED = 1 << 16
"""How many of the last bytes that it printed are kept."""
HEADLESS = {"MPLBACKEND": "Agg", "QT_QPA_PLATFORM": "offscreen"}
"""There is no display for a toolkit to open a window on."""


class ToolkitError(PluginError):
    """A function of a toolkit raised, or its process crashed, ended or hung; ``printed`` is what it printed."""


def interpreter_of(backend: str) -> str | None:
    """Return the interpreter that a backend's toolkit is to have; None: that of this process."""
    return os.environ.get(VARIABLE) or os.environ.get(f"GRAFT_{backend}_PYTHON".upper().replace("-", "_")) or None


class Toolkit:
    """A module of a vendor's in a process of its own; started with the first call, and anew where it was lost.

    The process has a folder of its own as working directory and for temporary files, and no input; what it prints is
    kept apart. One call runs at a time.
    """

    def __init__(self, plugin: str, module: str | os.PathLike[str], python: str) -> None:
        self._plugin, self._module, self._python = plugin, os.path.abspath(module), python
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._output: BinaryIO | None = None
        self._folder = ""
        self._owner = 0
        self._dropped: list[int] = []
        self.starts = 0
        """How many processes there were; functions of earlier ones are made anew."""
        self.printed = ""
        """What the last call printed."""

    def call(
        self, function: str, *arguments: Any, seconds: float = 0, heard: Callable[[str], None] | None = None
    ) -> Any:
        """Return what a function of the module gives; raise ToolkitError.

        A process that takes longer than ``seconds`` (0: any time) is stopped, as it is where this call is interrupted.
        ``heard`` gets what is printed meanwhile.
        """
        return self._call(function, arguments, seconds, heard, (function, arguments))

    def _call(
        self,
        what: int | str,
        arguments: tuple[Any, ...],
        seconds: float,
        heard: Callable[[str], None] | None,
        made_by: tuple[str, tuple[Any, ...]],
    ) -> Any:
        with self._lock:
            doing = what if isinstance(what, str) else f"a function of '{made_by[0]}'"
            if self._owner != os.getpid() or self._socket is None:
                self._start()
            assert self._socket is not None
            dropped, self._dropped = self._dropped, []
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # how it ended is asked for below
                    toolkit_worker.send(self._socket, [what, list(arguments), dropped], _number_of)
                return self._answer(doing, seconds, heard, made_by)
            except ToolkitError:
                raise
            except BaseException:  # interrupted: what half a message is nobody knows
                self._end()
                raise

    def _start(self) -> None:
        if self._owner == os.getpid():
            self._end()
        if not os.access(self._python, os.X_OK):
            raise ToolkitError(
                f"plugin '{self._plugin}': its interpreter '{self._python}' cannot be run; give the path of a python",
                plugin=self._plugin,
            )
        ours, theirs = socket.socketpair()
        self._folder = tempfile.mkdtemp(prefix="graft-toolkit-")
        self._output = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115 - closed by `_end`
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = os.pathsep.join(filter(None, (os.path.dirname(self._python), environment.get("PATH"))))
        command = [self._python, "-I", "-u", toolkit_worker.__file__, str(theirs.fileno()), self._module, self._folder]
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._output,
                stderr=self._output, start_new_session=True,
                env={**environment, **HEADLESS, "PATH": path, "TMPDIR": self._folder},
            )  # fmt: skip
        self._socket, self._owner = ours, os.getpid()
        self._dropped.clear()
        self.starts += 1
        self._answer("its import", 0, None, ("", ()))

    def _answer(
        self, doing: str, seconds: float, heard: Callable[[str], None] | None, made_by: tuple[str, tuple[Any, ...]]
    ) -> Any:
        self._wait(doing, seconds, heard)
        assert self._socket is not None
        starts = self.starts
        try:
            fine, value = toolkit_worker.receive(self._socket, lambda one: ToolkitFunction(self, one, starts, made_by))
        except (EOFError, ConnectionResetError):
            raise self._lost(doing) from None
        self.printed = self._take_printed()
        if fine:
            return value
        if doing == "its import":  # a module that is not there is of no use to the next call
            self._end()
        raise self._error(f"raised {value['kind']} in {doing}: {value['text']}", value["trace"])

    def _wait(self, doing: str, seconds: float, heard: Callable[[str], None] | None) -> None:
        """Return when there is an answer; raise ToolkitError where the process has ended, or takes too long."""
        assert self._socket is not None and self._process is not None
        end = time.monotonic() + seconds
        process = os.pidfd_open(self._process.pid)
        told = 0
        try:
            poll = select.poll()
            for one in (self._socket.fileno(), process):
                poll.register(one, select.POLLIN)
            while True:
                step = None if heard is None and not seconds else STEP
                ready = {one for one, _ in poll.poll(None if step is None else step * 1000)}
                if heard is not None:
                    text = self._text(told)
                    told += len(text)
                    if text:
                        heard(text.decode(errors="replace"))
                if self._socket.fileno() in ready:
                    return
                if ready:  # what it forked may still have the socket
                    raise self._lost(doing)
                if seconds and time.monotonic() >= end:
                    raise self._lost(doing, late=seconds)
        finally:
            os.close(process)

    def _lost(self, doing: str, late: float = 0.0) -> ToolkitError:
        printed = self._take_printed()
        status = self._end(wait=not late)
        text = f"did not answer within {late:g} s and was stopped" if late else ending(status)
        return self._error(f"{text} in {doing}", printed=printed)

    def _error(self, text: str, trace: str = "", printed: str | None = None) -> ToolkitError:
        said = self.printed if printed is None else printed
        last = said.strip().splitlines()[-1:]
        hint = f"; the last that it printed: {last[0]}" if last else ""
        error = ToolkitError(
            f"plugin '{self._plugin}': its toolkit ({self._python}) {text}{hint}", plugin=self._plugin, printed=said
        )
        if trace:
            error.add_note(trace)
        return error

    def _text(self, begin: int) -> bytes:
        assert self._output is not None
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), PRINTED, max(begin, size - PRINTED))

    def _take_printed(self) -> str:
        """Return what was printed since it was taken last."""
        assert self._output is not None
        text = self._text(0).decode(errors="replace")
        os.ftruncate(self._output.fileno(), 0)
        os.lseek(self._output.fileno(), 0, os.SEEK_SET)  # the toolkit's own place, which it shares
        return text

    def _end(self, wait: bool = False) -> int | None:
        """End the process and what it started, remove what it left; return how it ended, if by itself."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        status = None
        if process is not None:
            if wait:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(GRACE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(GRACE)
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        return status

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._owner == os.getpid():
                self._end()

    def __del__(self, at_end: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, modules may be gone; the process ends by itself with its socket.
        if not at_end() and getattr(self, "_owner", 0) == os.getpid():
            self._end()


class ToolkitFunction:
    """A function that a function of a toolkit returned; where its process was lost, it is asked for again."""

    def __init__(self, toolkit: Toolkit, number: int, starts: int, made_by: tuple[str, tuple[Any, ...]]) -> None:
        self._toolkit, self._number, self._starts, self._made_by = toolkit, number, starts, made_by

    def __call__(self, *arguments: Any, seconds: float = 0) -> Any:
        """Return what it gives; raise ToolkitError."""
        with self._toolkit._lock:
            if self._toolkit._socket is None or self._starts != self._toolkit.starts:
                other = self._toolkit.call(self._made_by[0], *self._made_by[1])
                self._number, self._starts, other._starts = other._number, other._starts, -1
            return self._toolkit._call(self._number, arguments, seconds, None, self._made_by)

    def __del__(self) -> None:
        if self._starts == self._toolkit.starts:
            self._toolkit._dropped.append(self._number)


def _number_of(function: Any) -> int:
    raise TypeError("a function of this process cannot be called in a toolkit's")


def file_of(module: str) -> Path:
    """Return the file of a module, whose package alone is imported; raise PluginError where there is none."""
    from importlib.util import find_spec

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise PluginError(f"the toolkit '{module}' is no module that is installed; reinstall its plugin")
    return Path(spec.origin)
