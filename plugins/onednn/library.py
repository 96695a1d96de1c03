"""Where oneDNN is on this machine. Needs neither onnx nor a compiler: loaders use it where a program is deployed."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path

from graft.errors import PluginError

NAME = "libdnnl.so.3"
DISTRIBUTIONS = ("onednn-cpu-gomp", "onednn")
INSTALL = "pip install 'graft-compiler[onednn]'"
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
MISSING = f"oneDNN is not installed; {INSTALL}"


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def candidates() -> list[str]:
    """Return where oneDNN may be, best first: beside this Python, as a distribution installed it, on the system."""
    paths = [Path(prefix, "lib", NAME) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix))]
    for name in DISTRIBUTIONS:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        paths += [Path(str(file.locate())).resolve() for file in files if file.name == NAME]
    return [*(str(path) for path in dict.fromkeys(paths) if path.exists()), NAME]


@cache
def open_library() -> tuple[ctypes.CDLL, str] | None:
    """Open oneDNN and return it with its path, None where there is none.

    The native loader opens the library by its name; because it is open already, the loader finds this copy.
    """
    with _short_waits():
        for path in candidates():
            try:
                return ctypes.CDLL(path), path
            except OSError:
                continue
    return None


@contextmanager
def _short_waits() -> Iterator[None]:
    """Let OpenMP's threads, where they are started by what is opened here, spin some 40 us and then park.

    By default libgomp's threads spin for milliseconds. That takes the processors from Graft's own threads, which run
    the next region, and on a shared machine it delays the very thread that is waited for. The library reads these
    variables once, when it is opened; what the user has set stays.
    """
    if any(name in os.environ for name in WAITING):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = "1000"
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def missing() -> str:
    """Return what to install, "" where oneDNN is there: the note of `graft backends list`."""
    return "" if open_library() is not None else MISSING


def version() -> str:
    """Return the version and path, such as ``oneDNN 3.2.0 (/usr/lib/libdnnl.so.3)``; raise PluginError if missing."""
    found = open_library()
    if found is None:
        raise PluginError(MISSING, plugin="onednn")
    library, path = found
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    number = library.dnnl_version().contents
    return f"oneDNN {number.major}.{number.minor}.{number.patch} ({path})"
