"""How a process ended, in words."""

from __future__ import annotations

import signal


def ending(status: int | None, when: str = "") -> str:
    """Return what a status says, as the rest of a sentence; None where nobody knows it."""
    if status is None:
        return f"ended{when}, and nobody knows how"
    return f"was killed by {signal_name(-status)}{when}" if status < 0 else f"ended with status {status}{when}"


def signal_name(number: int) -> str:
    """Return a signal's name, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
