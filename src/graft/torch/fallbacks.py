"""What stays in PyTorch: counted by operator and reason, warned of once, an error under ``strict``."""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock

from graft.errors import UnsupportedError

log = logging.getLogger("graft")
COUNTS: Counter[tuple[str, str]] = Counter()
"""How often an operator stayed in PyTorch, by operator and reason, in this process."""
_LOCK = Lock()


def note(operator: str, reason: str, place: str, strict: bool) -> None:
    """Count an operator that stays in PyTorch; warn of the first with this reason, or raise UnsupportedError."""
    if strict:
        raise UnsupportedError(f"{operator} ({place}) stays in PyTorch: {reason}", operator=operator, place=place)
    with _LOCK:
        COUNTS[operator, reason] += 1
        is_first = COUNTS[operator, reason] == 1
    if is_first:
        log.warning("%s (%s) stays in PyTorch: %s; said once, options={'strict': True} raises", operator, place, reason)
