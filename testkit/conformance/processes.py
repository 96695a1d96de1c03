"""Checks in processes of their own: what they cost a host that a plugin takes down is a line of the scorecard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from graft.runtime.foreign import one_line
from graft.testkit.conformance.cases.outcome import Failure

SECONDS = 120
"""The time a process gets; one that takes longer hangs."""
CHILD = "graft.testkit.conformance.child"


def run(action: str, *arguments: object, seconds: float = SECONDS, **environment: str) -> str:
    """Run an action of `child` in a new process and return what it prints; raise Failure for how it ends otherwise."""
    path = os.pathsep.join(part for part in sys.path if part)
    command = [sys.executable, "-W", "ignore", "-m", CHILD, action, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Failure(f"hangs: {action} took more than {seconds:.0f} s") from error
    if done.returncode < 0:
        raise Failure(f"crashes: {action} ended by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise Failure(one_line(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{action} fails"))
    return done.stdout
