"""Faulty backends that nobody named: they are left out with a warning, and what was asked for goes on without them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from graft.core.reject import Reject
from graft.errors import GraftError
from graft.plugins.backend import Backend
from graft.plugins.registry.fence import FencedBackend
from graft.plugins.time_limit import timer_held
from graft.runtime.foreign import one_line

T = TypeVar("T")
log = logging.getLogger("graft")


class LeftOut(Backend):
    """What stands in a faulty backend's place, so that plans say why it took nothing."""

    def __init__(self, backend: Backend, reason: str) -> None:
        self.reason = reason
        vars(self).update(
            name=backend.name,
            priority=backend.priority,
            by_default=backend.by_default,
            fallback=backend.fallback,
            constants=backend.constants,
        )

    def available(self) -> str:
        """Return the fault."""
        return self.reason


def without_faulty(
    work: Callable[[Sequence[Backend]], T], backends: Sequence[Backend], forgiven: Collection[str]
) -> tuple[T, list[Backend]]:
    """Return what ``work`` gives, and the backends that it was given in the end.

    Where a backend among ``forgiven`` is at fault, the work is done again without it. Other errors pass.
    """
    left = list(backends)
    while True:
        try:
            with timer_held():
                return work(left), left
        except GraftError as error:
            number = _culprit(error, left)
            if number is None or left[number].name not in forgiven or isinstance(left[number], LeftOut):
                raise
            reason = one_line(error.message)
            log.warning("%s; backend '%s' is left out", reason, left[number].name)
            left[number] = LeftOut(left[number], f"it is faulty: {reason}")


def forgiven_of(backends: Sequence[Backend], named: bool, strict: bool = False) -> frozenset[str]:
    """Return the names of the backends that may be left out: none that the user named, and none if ``strict``."""
    if named or strict:
        return frozenset()
    return frozenset(one.name for one in backends if isinstance(one, FencedBackend) and not one.named)


def _culprit(error: GraftError, backends: Sequence[Backend]) -> int | None:
    """Return the number of the backend that an error accuses: only faults of plugins have the fact ``plugin``."""
    if "plugin" not in error.facts:
        return None
    for number, backend in enumerate(backends):
        if error.facts.get("backend") == backend.name:
            return number
    for number, backend in enumerate(backends):
        if error.facts["plugin"] in (backend.name, getattr(backend, "plugin", "")):
            return number
    return None


def refused_nodes(error: GraftError, origin: Sequence[str]) -> tuple[Sequence[str], Reject]:
    """Return which nodes of a region its backend does not get after a failure to compile, and why.

    These are those that the error names in its fact ``nodes``, all where it names none of the region's.
    """
    named, why = error.facts.get("nodes"), error.facts.get("reject")
    names = [name for name in origin if name in named] if isinstance(named, list | tuple | set | frozenset) else []
    return names or origin, why if isinstance(why, Reject) else Reject("compile-failed", last_line(error))


def last_line(error: GraftError) -> str:
    """Return what a traceback ends with: what was raised, and the innermost place of its cause."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{one_line(error.message)}{where}"
