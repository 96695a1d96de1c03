"""What libraries do to this process: what they print, in C too, as text instead; settings put back."""

from __future__ import annotations

import ctypes
import ctypes.util
import locale
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np


@contextmanager
def printed() -> Iterator[list[str]]:
    """Give a list whose one text is, at the end, what was printed to both outputs meanwhile, by any thread."""
    found = [""]
    streams = (sys.stdout, sys.stderr)
    in_c = ctypes.CDLL(None).fflush
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        for stream in streams:
            stream.flush()
        in_c(None)
        kept = [os.dup(one) for one in (1, 2)]
        try:
            for one in (1, 2):
                os.dup2(file.fileno(), one)
            with redirect_stdout(file), redirect_stderr(file):
                yield found
        finally:
            for stream in (*streams, file):
                stream.flush()
            in_c(None)
            for one, old in zip((1, 2), kept, strict=True):
                os.dup2(old, one)
                os.close(old)
            file.seek(0)
            found[0] = file.read()


_C = ctypes.CDLL(ctypes.util.find_library("m"))


def _file_mode() -> int:
    """Return the bits that new files lack; to ask the system for them would set them. 0 where it does not list them."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return int(text.partition("\nUmask:")[2].split(maxsplit=1)[0] or "0", 8)


def _flushes() -> bool:
    return bool(np.float32(1e-39) + np.float32(1e-39) == 0)


def _float_state() -> bytes:
    """Return C's ``fenv_t`` of this thread."""
    state = ctypes.create_string_buffer(256)
    _C.fegetenv(state)
    return state.raw


def _random_numbers() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), (name, np.asarray(keys).tobytes(), *rest)


def _set_random_numbers(states: tuple[Any, ...]) -> None:
    own, (name, keys, *rest) = states
    random.setstate(own)
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a library may change for the whole process, as it was when this was made."""

    locale: str = field(default_factory=lambda: locale.setlocale(locale.LC_ALL))
    directory: str = field(default_factory=os.getcwd)
    numpy_errors: dict[str, Any] = field(default_factory=lambda: dict(np.geterr()))
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    handlers: dict[int, Any] = field(
        default_factory=lambda: {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    )
    """By signal what the process does; it may be set in the main thread alone."""
    file_mode: int = field(default_factory=lambda: _file_mode())
    floats: tuple[int, bool] = field(default_factory=lambda: (_C.fegetround(), _flushes()))
    """Of this thread: the direction in which it rounds, and whether it takes subnormal numbers for zero."""
    float_state: bytes = field(default_factory=lambda: _float_state(), compare=False)
    random_numbers: tuple[Any, ...] = field(default_factory=lambda: _random_numbers())
    """The states of the generators of Python and of NumPy that all code of a process shares."""

    def changed_in(self, other: Settings) -> list[str]:
        """Return the names of what is otherwise in other settings."""
        return [one.name for one in fields(self) if one.compare and getattr(self, one.name) != getattr(other, one.name)]

    def put_back(self) -> None:
        """Make the process's settings these."""
        locale.setlocale(locale.LC_ALL, self.locale)
        os.chdir(self.directory)
        np.seterr(**self.numpy_errors)
        for name in os.environ.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update({name: text for name, text in self.environment.items() if os.environ.get(name) != text})
        if threading.current_thread() is threading.main_thread():
            for one, handler in self.handlers.items():
                if handler is not None and signal.getsignal(one) is not handler:  # None: it was not set from Python
                    signal.signal(one, handler)
        if self.file_mode != _file_mode():
            os.umask(self.file_mode)
        if self.floats != (_C.fegetround(), _flushes()):
            _C.fesetenv(self.float_state)
        if self.random_numbers != _random_numbers():
            _set_random_numbers(self.random_numbers)


@contextmanager
def with_settings_kept() -> Iterator[None]:
    """Put back at the end what a library may change for the whole process, and the filters of warnings."""
    own = Settings()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        own.put_back()
