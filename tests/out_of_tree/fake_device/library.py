"""The fake device as tests use it: its library, built once, and what it counts and is told to do."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

import graft.runtime

HERE = Path(__file__).parent
COUNTS = ("live", "to_device", "to_host", "within", "launches", "waits", "programs", "streams", "events")
FAILURES = ("allocate", "copy", "launch", "wait")


@cache
def built() -> Path:
    """Return the library, compiled if there is none of this source yet; skip the test where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake device with")
    headers = Path(graft.runtime.include_dir())
    sources = [
        HERE / "native.c",
        *(headers.parent / "src" / f"{name}.c" for name in ("program/image", "base/error", "base/platform_linux")),
    ]
    known = [*sources, *sorted(headers.glob("graft/*.h")), *sorted((headers.parent / "src").glob("*/*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in known)).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"graft-fake-device-{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / library.name
            include = [f"-I{headers}", f"-I{headers.parent / 'src'}"]
            flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden"]
            command = [compiler, *flags, *include, *map(str, sources), "-o", str(made), "-ldl", "-pthread"]
            subprocess.run(command, check=True)
            shutil.move(made, library)
    return library


class Device:
    """What the library counts, and what is to go wrong next."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(built()))
        self._library.fake_count.restype = ctypes.c_int64
        self._library.fake_fail.argtypes = [ctypes.c_int32, ctypes.c_int64]
        self._library.fake_limit.argtypes = [ctypes.c_int64]

    def count(self, what: str) -> int:
        """Return how often something happened so far, or how many there are."""
        return int(self._library.fake_count(COUNTS.index(what)))

    def fail(self, what: str, after: int = 0) -> None:
        """Let the next operation of a kind fail, or one after it; -1 takes that back."""
        self._library.fake_fail(FAILURES.index(what), after)

    def limit(self, size: int) -> None:
        """Let the device have so many bytes; -1 for all that it likes."""
        self._library.fake_limit(size)

    def reset(self) -> None:
        """Take back whatever was to go wrong."""
        for what in FAILURES:
            self.fail(what, -1)
        self.limit(-1)
        self._library.fake_mend()
