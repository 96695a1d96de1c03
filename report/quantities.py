"""Quantities for people: numbers of bytes, shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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


def knobs(schedule: Mapping[str, int | str]) -> str:
    """Return the knobs of a kernel's strategy: ``rows=14 vectors=2``."""
    return " ".join(f"{name}={value}" for name, value in schedule.items() if name != "strategy")
