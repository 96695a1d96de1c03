"""The machine that code is generated for."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture (``x86_64``, ``aarch64``), an LLVM CPU name, and its feature set."""

    arch: str
    cpu: str
    features: frozenset[str] = frozenset()

    @property
    def vector_bytes(self) -> int:
        """The width of the widest vector register worth using, in bytes."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx2" in self.features else 16


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the user asked for, as every backend's ``compile`` receives it.

    ``threads`` is the number of threads the program will run with; ``strict`` makes a failed region an error.
    """

    target: Target
    threads: int = 1
    strict: bool = False


def available_threads() -> int:
    """Return the number of processors this process may run on (affinity mask, then cgroup quota)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, -(-int(quota) // int(period))))


@cache
def host_target() -> Target:
    """Return this machine as LLVM sees it."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return Target(arch, llvm.get_host_cpu_name(), frozenset(name for name, on in features.items() if on))
