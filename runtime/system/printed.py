"""What libraries do to this process: what they print, in C too, as text instead; settings put back."""

from __future__ import annotations

import ctypes
import locale
import os
import sys
import tempfile
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
    """Put back at the end what a library may change for the whole process: locale, directory, NumPy's error state."""
    own, folder, errors = locale.setlocale(locale.LC_ALL), os.getcwd(), np.geterr()
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, own)
        os.chdir(folder)
        np.seterr(**errors)
