"""A bound on the time that a plugin's code takes in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a plugin's code may take."""

    load: float = 120.0
    """For its registration, and for a pass of its over a model."""
    answer: float = 60.0
    """For an answer about one node or match, what a backend says of itself, and what any other hook gives."""
    importing: float = 10.0
    """For its import."""


LIMITS = Limits()
"""The limits of whoever states no others."""


class TimeLimitExceeded(BaseException):
    """What a plugin's code is stopped by; no ``except Exception`` of its own holds it up."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in code that takes longer: in Python, and where a system call may be interrupted.

    Only the main thread can be stopped so, and only if nobody else uses the timer (SIGALRM); elsewhere there is no
    limit, nor for compiled code that hangs: that is what isolation in a process is for.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it did not end within {seconds:g} s and was stopped")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
