"""A vendor's loader whose function does what it should not, as the first element of its input says."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

VICTIM = Path(__file__).with_name("victim.txt")
"""A file beside the module, which is none of its own."""


def connect_to(family: int, address: object) -> object:
    with socket.socket(family) as connection:
        connection.connect(address)  # type: ignore[arg-type]
    return address


def in_a_thread(deed: Callable[[], object]) -> object:
    found: list[BaseException] = []

    def run() -> None:
        try:
            deed()
        except BaseException as error:
            found.append(error)

    other = threading.Thread(target=run)
    other.start()
    other.join()
    raise found[0]


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library, where Python's checks do not reach."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


DEEDS: dict[str, Callable[[], object]] = {
    "opens a network connection": lambda: connect_to(socket.AF_INET, ("127.0.0.1", 9)),
    "opens a local connection": lambda: connect_to(socket.AF_UNIX, "\0anything"),
    "opens one in a thread": lambda: in_a_thread(socket.socket),
    "reads a file": lambda: Path("/etc/passwd").read_text(encoding="utf-8"),
    "reads the user's folder": lambda: os.listdir(Path.home()),
    "reads another process": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "writes a file": lambda: Path("/tmp/graft-sandbox-test").write_text("", encoding="utf-8"),
    "removes a file": lambda: os.unlink(__file__),
    "opens a file up": lambda: os.chmod(__file__, 0o777),
    "executes a program": lambda: os.execv("/bin/true", ["true"]),
    "starts a program": lambda: subprocess.run(["/bin/true"], check=False),
    "forks": os.fork,
    "forks by C": lambda: call("fork"),
    "kills its parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "traces its parent": lambda: call("ptrace", 16, os.getppid(), 0, 0),
    "gives signals by a descriptor": lambda: __import__("fcntl").fcntl(0, 8, os.getppid()),
    "raises its limits": lambda: call("prlimit", 0, 4, (ctypes.c_long * 2)(-1, -1), None),
    "writes to the terminal": lambda: __import__("fcntl").ioctl(2, 0x5412, b"x"),
    "leaves its namespace": lambda: call("unshare", 0x10000000),
}


def load(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> Mapping[str, object]:
    """Return a function that doubles, or does the deed of a number."""
    if data in {one.encode() for one in DEEDS}:
        DEEDS[data.decode()]()

    def double(inputs: list[np.ndarray | None]) -> list[np.ndarray]:
        assert inputs[0] is not None
        number = int(inputs[0][0])
        if number > 0:
            list(DEEDS.values())[number - 1]()
        return [2 * inputs[0]]

    def secrets(inputs: list[np.ndarray | None]) -> list[np.ndarray]:
        found = sum("GRAFT_TEST_SECRET" in text for text in (*os.environ, Path("/proc/self/environ").read_text()))
        return [np.full(4, found, np.float32)]

    return {"double": double, "secrets": secrets}
