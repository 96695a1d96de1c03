"""Environments for vendors' toolkits: made once of a list of requirements that leaves nothing open, kept for the user.

An environment is found by the digest of its list and of its interpreter's version. It counts as made when the file
``made`` is in it, which is written last: of one that was cancelled or killed half-way nothing is used, and the next
attempt begins anew. Two processes that want one environment wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from graft.errors import GraftError
from graft.runtime.isolation.options import Isolation, locked
from graft.runtime.isolation.toolkit import VARIABLE
from graft.runtime.system.cache_directory import cache_directory
from graft.runtime.system.files import write
from graft.runtime.system.private import why_not_private

MADE = "made"


def with_interpreter(how: Isolation) -> dict[str, str]:
    """Return the environment of an isolated plugin's process, which says what interpreter its toolkit has."""
    python = interpreter(how)
    return {**os.environ, **({VARIABLE: python} if python else {})}


def interpreter(how: Isolation) -> str | None:
    """Return the interpreter of a toolkit; its environment is made if it is not there and the user agreed.

    Raises GraftError for requirements that leave something open, and where nothing may be installed, or cannot be.
    """
    if not how.requirements:
        return how.python
    lines = locked(how.requirements)
    base = how.python or sys.executable
    folder = _folder_of(lines, base)
    python = str(folder / "bin" / "python")
    if not (folder / MADE).exists():
        if not how.install:
            raise GraftError(
                f"an environment with {', '.join(one.split()[0] for one in lines)} is wanted and was not made yet; "
                "agree with graft.Isolation(..., install=True), or --isolate NAME:install=yes"
            )
        _make(folder, lines, base, how.wheels)
    return python


def _folder_of(lines: Sequence[str], base: str) -> Path:
    directory = cache_directory()
    if directory is None:
        raise GraftError("there is no folder to keep an environment in; set XDG_CACHE_HOME")
    try:
        version = subprocess.run([base, "-IVV"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise GraftError(f"the interpreter '{base}' cannot be run: {error}; give the path of a python") from error
    key = hashlib.sha256("\n".join([version, *lines]).encode()).hexdigest()
    found = directory / "environments" / key[:32]
    if reason := why_not_private(found):
        raise GraftError(f"the environment '{found}' is not used: {reason}")
    return found


def _make(folder: Path, lines: Sequence[str], base: str, wheels: str | None) -> None:
    """Make an environment; what is half made is removed, by this call or, where that was killed, by the next."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")):
        if (folder / MADE).exists():  # another process was first
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _run([base, "-I", "-m", "venv", "--without-pip", str(folder)])
            source = ["--no-index", "--find-links", wheels] if wheels else []
            listed = folder / "requirements.txt"
            write(listed, "\n".join(lines) + "\n", "requirements")
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(folder / "bin" / "python"),
                "--disable-pip-version-check",
            ]
            _run(
                [
                    *pip,
                    "install",
                    "--no-input",
                    "--no-compile",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    *source,
                    "-r",
                    str(listed),
                ]
            )
            write(folder / MADE, "", "environment")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _run(command: Sequence[str]) -> None:
    """Run a program that ends with this call, even where that is interrupted; raise GraftError with what it said."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        errors = [line for line in said.splitlines() if line.startswith(("ERROR", "error"))] or said.splitlines()[-3:]
        raise GraftError(f"the environment cannot be made: {'; '.join(errors)}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
