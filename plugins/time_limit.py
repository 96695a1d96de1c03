"""A bound on the time that a plugin's code takes in this process."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
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


@dataclass(slots=True)
class _Timer:
    """The process's timer while it is ours; times are those of `time.monotonic`, infinity where there is none."""

    seconds: float = 0.0
    deadline: float = math.inf
    """When the code that runs now must have ended."""
    strikes: float = math.inf
    """When the timer strikes next: it may be earlier than the deadline, of code that has ended in time."""

    def begin(self, seconds: float) -> None:
        """Set the deadline; the timer goes on if it strikes before that."""
        self.seconds, self.deadline = seconds, monotonic() + seconds
        if self.deadline < self.strikes:
            self.strikes = self.deadline
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def strike(self, number: int, frame: FrameType | None) -> None:
        """Stop the code that runs if its time is over."""
        left, self.strikes = self.deadline - monotonic(), math.inf
        if left <= 0:
            self.deadline = math.inf
            raise TimeLimitExceeded(f"it did not end within {self.seconds:g} s and was stopped")
        if left < math.inf:
            self.strikes = self.deadline
            signal.setitimer(signal.ITIMER_REAL, left)


_HELD: list[_Timer] = []
"""The timer, where the main thread holds it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in code that takes longer: in Python, and where a system call may be interrupted.

    Only the main thread can be stopped so, and only if nobody else uses the timer (SIGALRM); elsewhere there is no
    limit, nor for compiled code that hangs: that is what isolation in a process is for. Within another limit, that
    one counts.
    """
    if not _HELD:
        with timer_held(), time_limit(seconds) if _HELD else nullcontext():
            yield
        return
    timer = _HELD[0]
    if timer.deadline < math.inf or not _is_main_thread():
        yield
        return
    timer.begin(seconds)
    try:
        yield
    finally:
        timer.deadline = math.inf


@contextmanager
def timer_held() -> Iterator[None]:
    """Hold the timer for many limits, of which each then costs no system call."""
    if (
        _HELD
        or not _is_main_thread()
        or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        yield
        return
    _HELD.append(timer := _Timer())
    signal.signal(signal.SIGALRM, timer.strike)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        _HELD.clear()


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
