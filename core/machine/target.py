"""The machine that code is generated for."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from graft.errors import GraftError

OPTIMISATIONS = {
    "attention": "scores, mask, Softmax and the product with the values in one kernel",
    "channels-last": "parts of a convolutional network stored with channels last",
    "fusion": "elementwise operators and moves in the kernel of what they follow",
    "horizontal": "products and convolutions of one input side by side in one kernel",
    "index-checks": "indices compared with the extent of their axis, before Gather, Scatter and their like use them",
    "in-place": "memory shared: by one result after another, by a result and its operand, by a Concat and its parts",
    "integer-arithmetic": "quantised models in integers",
    "threads": "loops shared among threads",
    "views": "Reshape and its like as another shape of the same memory, not as copies",
    "winograd": "convolutions by Winograd's algorithm",
}
"""What the built-in compiler can do without, by name; the answer is the same within rounding."""


def check_switches(names: Collection[str], known: Collection[str] = tuple(OPTIMISATIONS)) -> frozenset[str]:
    """Return the names as a set; raise GraftError for one that is not in ``known``."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(sorted(known))}"
            raise GraftError(f"there is no optimisation '{name}' to switch off; {hint}", name=name)
    return frozenset(names)


Precision = Literal["float32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture (``x86_64``, ``aarch64``), an LLVM CPU name, its feature set, and how many threads will run.

    ``threads`` is 0 where it is not known: schedules then leave enough tasks for any usual number. ``without`` names
    the optimisations (`OPTIMISATIONS`) that code for this target does without. ``precision`` is that of float32
    matrix products and convolutions: ``bf16`` rounds the factors to bfloat16, sums in float32, and keeps images between
    convolutions in bfloat16.
    """

    arch: str
    cpu: str
    features: frozenset[str] = frozenset()
    threads: int = 0
    without: frozenset[str] = frozenset()
    precision: Precision = "float32"

    @property
    def vector_bytes(self) -> int:
        """The width of the widest vector register worth using, in bytes."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx2" in self.features else 16


DOT_FEATURES = {"dot4_u8s8": "avx512vnni", "dot2_bf16": "avx512bf16"}
SLOW_DOTS = {"dot2_bf16": "amx-bf16"}
"""By dot product: what processors have whose vector instruction for it takes longer than multiply-adds in its place.

Those with tiles (Sapphire Rapids on) start one ``vdpbf16ps`` in two cycles: 73 Gflop/s where float32 has 136.
"""


def has_dot(name: str, target: Target) -> bool:
    """Whether the target has an instruction for a dot product of the tensor IR that is worth using."""
    is_there = DOT_FEATURES[name] in target.features and "avx512vl" in target.features
    return is_there and SLOW_DOTS.get(name) not in target.features


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the user asked for, as every backend's ``compile`` receives it.

    ``threads`` is the number of threads the program will run with; ``strict`` makes a failed region an error;
    ``cache`` is the directory in which a backend may keep compiled code, None to keep none; ``tuned`` is the database
    of what tuning has found, None to use nothing of it.
    """

    target: Target
    threads: int = 1
    strict: bool = False
    cache: Path | None = None
    tuned: Path | None = None


_LEVEL_1 = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})
_LEVEL_2 = _LEVEL_1 | {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_LEVEL_3 = _LEVEL_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_LEVEL_4 = _LEVEL_3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {
    "x86-64": Target("x86_64", "x86-64", _LEVEL_1),
    "x86-64-v2": Target("x86_64", "x86-64-v2", _LEVEL_2),
    "x86-64-v3": Target("x86_64", "x86-64-v3", _LEVEL_3),
    "x86-64-v4": Target("x86_64", "x86-64-v4", _LEVEL_4),
    "armv8-a": Target("aarch64", "generic", frozenset({"neon"})),
}
"""What to compile for another machine: the levels of the x86-64 psABI (System V ABI, AMD64 supplement, 3.1.1), and the
base of 64-bit ARM, which has NEON."""


def target_named(cpu: str) -> Target:
    """Return the target called ``cpu``: ``native`` for this machine, or one of `LEVELS`; raise GraftError otherwise."""
    if cpu == "native":
        return host_target()
    if cpu not in LEVELS:
        raise GraftError(f"unknown cpu '{cpu}'; choose native, {', '.join(LEVELS)}", cpu=cpu)
    return LEVELS[cpu]


def precision_named(name: str) -> Precision:
    """Return a precision by its name; raise GraftError if there is none of that name."""
    for known in PRECISIONS:
        if name == known:
            return known
    raise GraftError(f"unknown precision '{name}'; choose {' or '.join(PRECISIONS)}", precision=name)


def cache_directory() -> Path | None:
    """Return where compiled code is kept for this user: under ``XDG_CACHE_HOME``, else ``~/.cache``.

    A relative path counts as none (XDG Base Directory Specification). None where neither is known: a user without an
    entry in the system's list of users, and without ``HOME``.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "graft"
    if os.environ.get("HOME") == "":  # which `Path.home` takes for the root
        return None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "graft" if home.is_absolute() else None


def tuned_database() -> Path | None:
    """Return the file of what tuning has found for this user: ``tuned.sqlite3`` in the cache directory, if any."""
    directory = cache_directory()
    return None if directory is None else directory / "tuned.sqlite3"


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
