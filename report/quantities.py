"""Quantities for people: numbers of bytes, shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.runtime.procedure import Schedule

OF_INTEREST = ("cost", "compile-failed", "user-excluded")
"""The codes of refusals that are worth a line; that a strategy is for other kernels is not."""


def size(count: int) -> str:
    """Return a number of bytes for people: ``12.3 MiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def shape(extents: Sequence[int | str | None] | None) -> str:
    """Return a shape for people: ``1x3x224x224``, ``[batch, 2*seq]``, ``scalar``, ``?`` where the rank is unknown."""
    if extents is None:
        return "?"
    if any(isinstance(extent, str) for extent in extents):
        return f"[{', '.join('?' if extent is None else str(extent) for extent in extents)}]"
    return "x".join("?" if extent is None else str(extent) for extent in extents) or "scalar"


def knobs(schedule: Schedule) -> str:
    """Return the knobs of a kernel's strategy, and what it is said to cost: ``rows=14 vectors=2 cycles=9000``."""
    numbers = {name: value for name, value in schedule.items() if name not in ("strategy", "refused", "steps")}
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def dearer(schedule: Schedule) -> str:
    """Return the strategies that could have made a kernel but cost more, failed, or were switched off, and why."""
    refused = schedule.get("refused", {})
    reasons = refused.items() if isinstance(refused, Mapping) else ()
    return ", ".join(f"{name} ({why})" for name, why in reasons if why.startswith(OF_INTEREST))
