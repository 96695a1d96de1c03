"""The system's C compiler: found, asked for its version, and run on a text."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from graft.errors import CompileError

USUAL = ("cc", "gcc", "clang")
SHOWN_LINES = 20
"""Of what a compiler says when it refuses a text."""


def c_compiler() -> tuple[str, ...]:
    """Return the command that ``CC`` names, else the first of the usual ones; raise CompileError if there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [[name] for name in USUAL]:
        if shutil.which(command[0]) is not None:
            return tuple(command)
    if named:
        raise CompileError(f"CC names the C compiler '{named[0]}', which is not found; install it, or unset CC")
    raise CompileError(f"there is no C compiler ({', '.join(USUAL)}); install one, or name it in CC")


@cache
def version_of(command: Sequence[str]) -> str:
    """Return the first line of what a compiler says of itself, "" if it says nothing."""
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return said.stdout.partition("\n")[0]


def compiled(text: str, flags: Sequence[str], name: str) -> bytes:
    """Return the object file of a C source; raise CompileError with the compiler's own message if it refuses.

    ``name`` is the function that the error names.
    """
    command = c_compiler()
    with TemporaryDirectory(prefix="graft-") as folder:
        output = Path(folder) / "kernel.o"
        arguments = [*command, *flags, "-x", "c", "-c", "-", "-o", str(output)]
        try:
            done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
        except OSError as error:
            raise CompileError(f"the C compiler '{command[0]}' cannot be run: {error}", function=name) from error
        if done.returncode == 0 and output.exists():
            return output.read_bytes()
    said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:SHOWN_LINES])
    how = f"exit {done.returncode}" if done.returncode else "no object file"
    raise CompileError(
        f"the C compiler '{shlex.join(command)}' refused the code of '{name}' ({how}): {said}", function=name
    )
