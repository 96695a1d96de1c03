"""What the host of isolated modules and its processes say to each other: JSON, with descriptors beside it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

LARGEST = 1 << 16
MOST_DESCRIPTORS = 4


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends whose messages keep their borders."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message; raise OSError if the other end is gone."""
    socket.send_fds(end, [json.dumps(message).encode()], list(descriptors))


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors, which are then the caller's; None if the other end is gone."""
    try:
        data, descriptors, _, _ = socket.recv_fds(end, LARGEST, MOST_DESCRIPTORS)
    except ConnectionError:
        return None
    return (json.loads(data), descriptors) if data else None
