"""CUDA programs without a device: a library with the driver's functions, and kernels that the emulator made."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graft.plugins.cuda.backend import CudaBackend, CudaEmulator
from graft.plugins.cuda.image import Image, packed
from graft.plugins.cuda.module import native_loader
from graft.runtime.procedure import Module

SOURCE = Path(__file__).parents[3] / "plugins" / "cuda" / "native" / "tests" / "driver.c"
FAILURES = ("allocate", "copy", "launch", "synchronize", "load", "capture", "pin")
COUNTS = ("live", "launches", "graphs", "graph_launches", "modules", "pinned")


@cache
def build() -> Path:
    """Build the library that this process has, as a process opens one driver; skip the test where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the driver with")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder, "libcuda.so.1")
    flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library), "-ldl", "-pthread"], check=True)
    return library


class Driver:
    """What the library is like, and what is to go wrong next."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_count.restype = ctypes.c_int64
        self._library.fake_fail.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int]

    def machine(self, devices: int = 1, version: int = 12040, arch: int = 80, shared: int = 166912) -> None:
        """Let there be so many devices of an architecture, with so much shared memory, and a driver of a version."""
        self._library.fake_machine(devices, version, arch, shared)

    def fail(self, what: str, code: int, after: int = 0) -> None:
        """Let an operation give a result of the driver."""
        self._library.fake_fail(FAILURES.index(what), after, code)

    def mend(self) -> None:
        """Take back whatever was to go wrong, and what did."""
        self._library.fake_mend()

    def count(self, what: str) -> int:
        """Return how many there are, or were so far."""
        return int(self._library.fake_count(COUNTS.index(what)))


class Emulated(CudaEmulator):
    """The backend `cuda`, whose images are the emulator's kernels and say that they are ``form`` for ``arch``."""

    name = "cuda"
    device = "cuda"
    arch = "sm_80"
    form = "ptx"
    shared = 0

    def module_loaders(self):
        """Return the loader that is tested."""
        return [native_loader()]

    def emit(self, functions, target):
        """Return a module of kind `cuda`."""
        images, rows = self._compiled(functions, target)
        for row in rows:
            row.launches = [replace(one, shared=max(one.shared, self.shared)) for one in row.launches]
        renamed = [Image(self.arch, self.form, image.data) for image in images]
        return Module("", "cuda", tuple(row.name for row in rows), packed(renamed, rows))

    def compile(self, region, options):
        """Compile as for a device."""
        return CudaBackend.compile(self, region, options)
