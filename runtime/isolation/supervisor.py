"""The parent of workers: it has imported what they need and nothing of a vendor's, so that a new one is a fork.

``python -m graft.runtime.isolation.supervisor N`` obeys the socket with descriptor N until its other end is gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress

import graft.runtime._native  # what workers need, imported once
import graft.runtime.program  # noqa: F401
from graft.runtime.isolation.messages import receive, send
from graft.runtime.isolation.worker import work


class Supervisor:
    """Workers by process number, each with a descriptor that can be waited for."""

    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._workers: dict[int, int] = {}

    def obey(self) -> None:
        """Start workers and tell of their ends, until the host is gone; then end them all."""
        while self._turn():
            pass
        for worker in self._workers:
            stop(worker)

    def _turn(self) -> bool:
        poll = select.poll()
        for descriptor in (self._host.fileno(), *self._workers.values()):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        for worker, descriptor in list(self._workers.items()):
            if descriptor in ready:
                self._bury(worker, descriptor)
        if self._host.fileno() not in ready:
            return True
        order = receive(self._host)
        if order is None:
            return False
        self._start(order[1])
        return True

    def _start(self, descriptors: list[int]) -> None:
        """Fork a worker, which gets its module and its own end of a socket."""
        package, end = descriptors
        worker = os.fork()
        if worker == 0:
            self._host.close()
            for descriptor in self._workers.values():
                os.close(descriptor)
            work(package, end)
        for descriptor in descriptors:
            os.close(descriptor)
        self._workers[worker] = os.pidfd_open(worker)
        send(self._host, {"worker": worker})

    def _bury(self, worker: int, descriptor: int) -> None:
        _, status = os.waitpid(worker, 0)
        os.close(self._workers.pop(worker))
        send(self._host, {"ended": worker, "status": os.waitstatus_to_exitcode(status)})


def stop(worker: int) -> None:
    """Kill a worker and what it started."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(worker, signal.SIGKILL)


def main() -> None:
    """Obey the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's Ctrl-C is the host's business
    with suppress(OSError):  # the host is gone
        Supervisor(socket.socket(fileno=int(sys.argv[1]))).obey()


if __name__ == "__main__":
    main()
