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


@contextmanager
def with_settings_kept() -> Iterator[None]:
    """Put back at the end what a library may change for the whole process.

    That is the locale, the directory, NumPy's error state, the environment, the filters of warnings, and, in the main
    thread, how the process answers to Ctrl-C and to being ended.
    """
    own, folder, errors, environment = locale.setlocale(locale.LC_ALL), os.getcwd(), np.geterr(), dict(os.environ)
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        locale.setlocale(locale.LC_ALL, own)
        os.chdir(folder)
        np.seterr(**errors)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update({name: text for name, text in environment.items() if os.environ.get(name) != text})
        if threading.current_thread() is threading.main_thread():
            for one, handler in handlers.items():
                if handler is not None and signal.getsignal(one) is not handler:  # None: it was not set from Python
                    signal.signal(one, handler)
