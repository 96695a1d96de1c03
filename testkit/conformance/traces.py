"""Where a process was when it was lost: the function of the vendor's, in what `faulthandler` writes of all threads."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sysconfig
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import graft

ASK = signal.SIGUSR1
"""The signal upon which a process that hangs writes where it is."""
WAIT = 2.0
FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
OWN = (str(Path(graft.__file__).parent), sysconfig.get_path("stdlib"))
LIBRARIES = frozenset({"ml_dtypes", "numpy", "onnx", "onnx_ir", "pluggy"})
"""Packages whose functions are no vendor's."""


def watch(descriptor: int) -> None:
    """Have this process write where it is when it crashes, when it is asked, and when Python code exits at once."""
    own, leave = os.getpid(), os._exit

    def exit_at_once(status: int) -> NoReturn:
        if os.getpid() == own:
            faulthandler.dump_traceback(descriptor)
        leave(status)

    faulthandler.enable(descriptor)
    faulthandler.register(ASK, descriptor)
    os._exit = exit_at_once


def asked(process: int, descriptor: int) -> None:
    """Have a process that is watched write where it is; what blocks its signals is not waited for."""
    os.kill(process, ASK)
    end, size = time.monotonic() + WAIT, 0
    while time.monotonic() < end:
        time.sleep(0.05)
        now = os.fstat(descriptor).st_size
        if now == size > 0:
            return
        size = now


def where(descriptor: int) -> str:
    """Return the vendor's function in what was written, as in " in kernel of npu.py, line 12", or "" without one."""
    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
    for thread in re.split(r"(?m)^(?=Current thread|Thread)", text)[1:]:
        frames = [match.groups() for line in thread.splitlines() if (match := FRAME.match(line))]
        vendors = [frame for frame in reversed(frames) if _is_vendors(frame[0])]
        named = [frame for frame in vendors if frame[2] == "<module>" or not frame[2].startswith("<")]
        for path, line, function in (named or vendors)[:1]:
            doing = "its import" if function == "<module>" else function
            return f" in {doing} of {Path(path).name}, line {line}"
    return ""


def _is_vendors(path: str) -> bool:
    parts = Path(path).parts
    installed = next(_installed(parts), "")
    if installed:
        return installed not in LIBRARIES and not path.startswith(OWN[0])
    return not path.startswith(("<", *OWN))


def _installed(parts: tuple[str, ...]) -> Iterator[str]:
    """Give the name of the package that a file is of, if it is of an installed one."""
    for folder, name in pairwise(parts):
        if folder in ("site-packages", "dist-packages"):
            yield name
