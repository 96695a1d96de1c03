"""What libraries do to this process: what they print, in C too, as text instead; settings put back."""

from __future__ import annotations

import ctypes
import locale
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields
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

    def changed_in(self, other: Settings) -> list[str]:
        """Return the names of what is otherwise in other settings."""
        return [one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)]

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


@contextmanager
def with_settings_kept() -> Iterator[None]:
    """Put back at the end what a library may change for the whole process, and the filters of warnings."""
    own = Settings()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        own.put_back()
