"""The machine that runs this: features from ``/proc/cpuinfo``, caches from ``/sys``.

What neither says (registers, costs) is that of the row of its family, as is everything on a system without the two.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from graft.core.machine.instructions import instructions_of
from graft.core.machine.machine import KIB, MIB, Level, Machine, Memory
from graft.core.machine.rows import COMPILED_FOR, KNOWN_FEATURES, NATIVE, family_row

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_FEATURES = {
    "abm": "lzcnt", "amx_bf16": "amx-bf16", "asimd": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16",
    "bmi1": "bmi", "lahf_lm": "sahf", "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2",
}  # fmt: skip
"""Features that Linux calls otherwise than compilers do, beyond an underscore."""


@cache
def host_machine() -> Machine:
    """Return this machine."""
    return read_machine(platform.machine(), Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu"))


def available_threads() -> int:
    """Return the number of processors this process may run on (affinity mask, then cgroup quota)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, -(-int(quota) // int(period))))


def read_machine(machine: str, processors: Path, devices: Path, sysconf: Callable[[str], int] = os.sysconf) -> Machine:
    """Return the machine whose architecture the system calls ``machine``, from its descriptions.

    ``processors`` is a file like ``/proc/cpuinfo``, ``devices`` a folder like ``/sys/devices/system/cpu``; ``sysconf``
    is asked for caches that are not in the latter.
    """
    arch = _ARCHITECTURES.get(machine.lower(), machine.lower())
    facts = _facts(processors)
    features = frozenset(_features(facts)) & KNOWN_FEATURES
    row = family_row(arch, features)
    features = features or row.features
    instructions = instructions_of(arch, features)
    # Code is generated for the family and for what the instructions need, not for all that the processor has: the
    # program then runs wherever these are.
    needed = row.features.union(*(one.needs for one in instructions))
    features -= COMPILED_FOR - needed
    return replace(
        row,
        name=NATIVE,
        arch=arch,
        cpu=_processor(facts) or row.cpu,
        features=features,
        memories=_memories(row, devices / "cpu0" / "cache", sysconf),
        levels=(Level("thread", available_threads()),),
        instructions=instructions,
    )


def _facts(processors: Path) -> Mapping[str, str]:
    """Return what is said of the first processor, by lower-case names."""
    try:
        lines = processors.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _features(facts: Mapping[str, str]) -> Iterator[str]:
    for name in facts.get("flags", facts.get("features", "")).split():
        yield _FEATURES.get(name, name.replace("_", ""))


def _processor(facts: Mapping[str, str]) -> str:
    """Return a word for a processor's make, the same on every one of it."""
    known = ("vendor_id", "cpu family", "model", "cpu implementer", "cpu part")
    return "-".join(facts[name].replace(" ", "_") for name in known if facts.get(name))


def _memories(row: Machine, folder: Path, sysconf: Callable[[str], int]) -> tuple[Memory, ...]:
    """Return the memories of a row with the caches that the system describes, if what it says can be."""
    sizes = _listed(folder) or _configured(sysconf)
    if not sizes or any(sizes[inner][0] > sizes[outer][0] for inner, outer in pairwise(sorted(sizes))):
        return row.memories
    caches = []
    for level in sorted(sizes):
        number, ways, line = sizes[level]
        usual = row.caches[min(level, len(row.caches)) - 1]
        caches.append(replace(usual, name=f"l{level}", bytes=number, ways=ways or usual.ways, line=line or usual.line))
    return (*caches, *(memory for memory in row.memories if not memory.is_cache))


def _listed(folder: Path) -> dict[int, tuple[int, int, int]]:
    """Return bytes, ways and bytes of a line (0: not said) of the data caches in a folder of ``/sys``, by level."""
    found = {}
    for index in sorted(folder.glob("index*")):
        kind, level, size = (_word(index / name) for name in ("type", "level", "size"))
        if kind in ("Data", "Unified") and level.isdigit() and (number := _bytes(size)):
            ways, line = (_word(index / name) for name in ("ways_of_associativity", "coherency_line_size"))
            found[int(level)] = number, _bytes(ways), _bytes(line)
    return found


def _configured(sysconf: Callable[[str], int]) -> dict[int, tuple[int, int, int]]:
    """Return the same as C's library knows it."""
    found = {}
    for level, name in ((1, "LEVEL1_DCACHE"), (2, "LEVEL2_CACHE"), (3, "LEVEL3_CACHE")):
        try:
            size, ways, line = (sysconf(f"SC_{name}_{fact}") for fact in ("SIZE", "ASSOC", "LINESIZE"))
        except (OSError, ValueError):
            continue
        if size > 0:
            found[level] = size, max(0, ways), max(0, line)
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    """Return the number in ``48K`` or ``64``, 0 for what is none."""
    digits, unit = (text[:-1], text[-1]) if text[-1:] in ("K", "M") else (text, "")
    return int(digits) * {"K": KIB, "M": MIB, "": 1}[unit] if digits.isdigit() else 0
