"""Room for the frames of Python's calls.

CPython keeps the frames of Python functions in chunks of 16 KiB of each thread's data stack. A call that does not fit
in the last chunk maps another, and its return unmaps that one: a loop whose calls begin just below the end of a chunk
maps and unmaps memory at each call (`_PyThreadState_PushFrame` and `_PyThreadState_PopFrame` of CPython's pystate.c).
Whether it does depends on nothing but the depth of the caller. A compile made up to 27,000 such mappings, a tenth of
its time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

WORDS = 33_000
"""A frame of so many words gets a chunk of 512 KiB, the next power of two, half of which is left for its callees."""


def with_room_for_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, called from a frame so large that all of its callees' frames are in one chunk with it."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=WORDS)
    return wraps(function)(call)
