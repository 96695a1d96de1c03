"""A sandbox for this process, which it never leaves: Landlock for files, seccomp for system calls (Linux).

In it, code can compute, start threads, read the files that were named, and use the descriptors that it has. It has no
network, starts no other program, forks not, writes no file, and reaches no other process. A refused system call fails
with EPERM and is noted (`_native.enter_sandbox`), so that errors can name it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

import graft
import graft.runtime._native as _native
from graft.errors import UnsupportedError
from graft.runtime.isolation.system_calls import ALLOWED, LOOKED_AT, NAMED

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The place of a machine's numbers in the tables, and its AUDIT_ARCH."""

# ---- Landlock (linux/landlock.h) -----------------------------------------------------------------------------------

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights about files a version handles; later ones at least as many as the last."""
TCP, SCOPES = 0b11, 0b11
"""Binding and connecting, from version 4 on; abstract sockets and signals of processes outside, from 6 on."""

# ---- seccomp (linux/seccomp.h, linux/filter.h) -----------------------------------------------------------------------

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, TRAP, KILL = 0x7FFF0000, 0x00030000, 0x80000000
EPERM, ENOTTY, ENOSYS = 0x00050001, 0x00050019, 0x00050026
NUMBER, ARCHITECTURE = 0, 4
X32 = 0x40000000
CLONE_THREAD, CLONE_NEW = 0x00010000, 0x7E020080
OWNERS = (8, 15)
"""fcntl's F_SETOWN and F_SETOWN_EX, by which a descriptor sends signals to a process."""
PROCESS_NAMES = (15, 16, 0x53564D41)
"""prctl's PR_SET_NAME, PR_GET_NAME, PR_SET_VMA."""
PR_SET_NO_NEW_PRIVS = 38


MOST_CALLS = 512
"""Of which `_native.enter_sandbox` keeps names."""
STARTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Return why there can be no sandbox here, "" if there can."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"it needs Linux on {' or '.join(MACHINES)}, this is {sys.platform} on {platform.machine()}"
    if landlock_version() < 1:
        return "this kernel has no Landlock (Linux 5.13, and 'landlock' among the lsm= of its command line)"
    if _libc().prctl(21, 0, 0, 0, 0) < 0:  # PR_GET_SECCOMP
        return "this kernel has no seccomp"
    return ""


def require() -> None:
    """Raise UnsupportedError where there can be no sandbox."""
    if reason := why_not():
        raise UnsupportedError(
            f"no plugin can be isolated in a sandbox here: {reason}; isolation 'process' guards against faults, not "
            "against malice"
        )


def landlock_version() -> int:
    """Return the version of the kernel's Landlock, 0 where it has none."""
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def enter(readable: Iterable[str | os.PathLike[str]]) -> None:
    """Enter the sandbox, with the files and folders below that may be read; the process must have one thread.

    Raises UnsupportedError where there is none, and OSError for what the system refuses.
    """
    require()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread that runs already would stay outside"
    _checked(_libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _restrict_files(readable)
    place, architecture = MACHINES[platform.machine()]
    names = {number: f"number {number}" for number in range(MOST_CALLS)}
    names |= {numbers[place]: name for table in (ALLOWED, LOOKED_AT, NAMED) for name, numbers in table.items()}
    sys.addaudithook(_audit)
    _native.enter_sandbox(_filter(place, architecture, os.getpid()), names)


def _audit(event: str, _: tuple[object, ...]) -> None:
    """Say what is refused where the system says EPERM alone; the filter refuses it whoever asks."""
    if event in STARTS:
        raise PermissionError(f"the sandbox of a plugin starts no processes: {event}")


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _restrict_files(readable: Iterable[str | os.PathLike[str]]) -> None:
    """Leave this process nothing of files but reading those named, and no new connections."""
    version = landlock_version()
    handled = (1 << FILE_RIGHTS[min(version, max(FILE_RIGHTS))]) - 1
    attributes = struct.pack("<QQQ", handled, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _checked(_libc().syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)))
    try:
        for path in readable:
            _allow(rules, os.fspath(path))
        _checked(_libc().syscall(RESTRICT_SELF, rules, ctypes.c_uint(0)))
    finally:
        os.close(rules)


def _allow(rules: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there is not read
    try:
        rights = READ_FILE | EXECUTE | (READ_DIR if os.path.isdir(path) else 0)  # EXECUTE: libraries are mapped
        rule = struct.pack("<Qi", rights, descriptor)
        _checked(_libc().syscall(ADD_RULE, rules, ctypes.c_int(1), rule, ctypes.c_uint(0)))
    finally:
        os.close(descriptor)


# ---- The filter ----------------------------------------------------------------------------------------------------


def _filter(place: int, architecture: int, process: int) -> bytes:
    """Return the program that decides about a system call, as an array of ``struct sock_filter``."""
    looked_at = {name: numbers[place] for name, numbers in LOOKED_AT.items()}
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    for numbers in ALLOWED.values():
        if numbers[place] >= 0:
            code += [(EQUAL, 0, 1, numbers[place]), (RETURN, 0, 0, ALLOW)]
    threads = [(LOAD, 0, 0, _low(0)), (ANY_BIT, 0, 2, CLONE_THREAD), (ANY_BIT, 1, 0, CLONE_NEW), (RETURN, 0, 0, ALLOW)]
    threads += [(RETURN, 0, 0, EPERM)]
    rules = {
        "clone": threads,
        "clone3": [(RETURN, 0, 0, ENOSYS)],  # whose flags a filter cannot see; C libraries go on with clone
        "vfork": [(RETURN, 0, 0, EPERM)],  # callers of this and of clone block signals, also that of a trap
        "kill": _only(0, (process,), TRAP),
        "tgkill": _only(0, (process,), TRAP),
        "prctl": _only(0, PROCESS_NAMES, EPERM),
        "fcntl": _only(1, OWNERS, ALLOW, then=TRAP),
        "prlimit64": [(LOAD, 0, 0, _low(2)), (EQUAL, 0, 3, 0), (LOAD, 0, 0, _low(2) + 4), (EQUAL, 0, 1, 0),
                      (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)],  # to read limits, not to set them
        "ioctl": [(RETURN, 0, 0, ENOTTY)],  # a terminal takes input from whoever may ask
        "sched_setaffinity": _only(0, (0,), EPERM),
    }  # fmt: skip
    for name, rule in rules.items():
        if looked_at[name] >= 0:
            code += [(EQUAL, 0, len(rule), looked_at[name]), *rule]
    code += [(RETURN, 0, 0, TRAP)]
    return b"".join(struct.pack("<HBBI", *one) for one in code)


def _low(argument: int) -> int:
    """Return where the low half of an argument stands in ``struct seccomp_data``."""
    return 16 + 8 * argument


def _only(argument: int, values: Iterable[int], otherwise: int, then: int = ALLOW) -> list[tuple[int, int, int, int]]:
    tests = [row for value in values for row in ((EQUAL, 0, 1, value), (RETURN, 0, 0, then))]
    return [(LOAD, 0, 0, _low(argument)), *tests, (RETURN, 0, 0, otherwise)]


# ---- What is readable ----------------------------------------------------------------------------------------------

SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime",
    "/usr/share/zoneinfo", "/dev/null", "/dev/zero", "/dev/urandom", "/proc/self", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/stat", "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip


def installed() -> Iterator[str]:
    """Yield what any process of Python may read: the system's libraries, Python's, and what is installed for it."""
    yield from SYSTEM
    yield from (os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix))
    for scheme in ({}, {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}):
        paths = sysconfig.get_paths(vars=scheme)
        yield from (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    # packages of other environments, which a .pth file or the user's own site adds
    yield from (path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
    yield from graft.__path__
    for folder in graft.__path__:
        yield from (os.path.realpath(one.path) for one in os.scandir(folder) if one.is_symlink())


def of_module(name: str) -> list[str]:
    """Return the folders and files of the package or module that a dotted name begins with; nothing is imported."""
    found = PathFinder.find_spec(name.partition(".")[0])
    if found is None:
        return []
    folders = list(found.submodule_search_locations or ())
    return folders or ([found.origin] if found.origin else [])


def of_file(path: str | os.PathLike[str]) -> list[str]:
    """Return what a plugin in a file may read: its package or, of a script, the modules and packages beside it."""
    own = Path(path).resolve()
    top = own.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    if top != own.parent:
        return [str(top / own.relative_to(top).parts[0])]
    beside = [one for one in top.iterdir() if one.suffix in (".py", ".so") or (one / "__init__.py").is_file()]
    return [str(one) for one in (own, *beside)]
