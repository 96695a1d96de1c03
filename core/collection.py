"""The collector of cycles, kept still or made rare while large models grow."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARE = 100_000
"""Objects more than there were before the youngest are looked through, where the collector is rare; usual are 700."""


@contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the collector of cycles from looking through a growing model again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def collection_rare() -> Iterator[None]:
    """Let the collector look for cycles seldom: kernels leave some behind, but most objects die by themselves.

    Where it is rare already, or switched off by a threshold of zero, nothing changes.
    """
    usual = gc.get_threshold()
    if not 0 < usual[0] < RARE:
        yield
        return
    gc.set_threshold(RARE, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
