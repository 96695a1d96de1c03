"""The system's C compiler: found, asked for its version, and run on a text."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from graft.errors import CompileError

USUAL = ("cc", "gcc", "clang")
OLDEST = {"__clang_major__": ("Clang", 9), "__GNUC__": ("GCC", 9)}
"""By the macro that says the version, what it is of and the oldest that will do."""
NEEDED = "C11, and __builtin_convertvector for vectors"
"""What older ones lack."""
SHOWN_LINES = 20
"""Of what a compiler says when it refuses a text."""
_PLACE = re.compile(r"^([^\s:]+):(\d+):", re.MULTILINE)


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


@cache
def family_of(command: Sequence[str]) -> tuple[str, int] | None:
    """Return which compiler a command is, and its version; None if it is none of those in `OLDEST`."""
    try:
        macros = preprocessed(command, (), "limits.h")
    except CompileError:
        return None
    for macro, (name, _) in OLDEST.items():
        found = re.search(rf"^#define {macro} (\d+)$", macros, re.MULTILINE)
        if found is not None:
            return name, int(found[1])
    return None


def why_too_old(command: Sequence[str]) -> str | None:
    """Return why a compiler will not do; None for one that will, or that does not say what it is."""
    family = family_of(command)
    if family is None or family[1] >= (oldest := dict(OLDEST.values())[family[0]]):
        return None
    needed = f"{family[0]} {oldest} or newer is needed ({NEEDED}); install one, or name another compiler in CC"
    return f"the C compiler '{shlex.join(command)}' is {family[0]} {family[1]}; {needed}"


@cache
def preprocessed(command: Sequence[str], flags: Sequence[str], header: str) -> str:
    """Return a header as the compiler sees it, and every macro: these say what the processor that is meant can do.

    Raises CompileError if the compiler refuses.
    """
    return _run([*command, *flags, "-E", "-P", "-dD"], f'#include "{header}"\n', f"refused '{header}'").stdout


def compiled(text: str, name: str, flags: Sequence[str]) -> bytes:
    """Return the object file of a C source; raise CompileError with the compiler's own message if it refuses.

    ``name`` is what the error names, beside the line that the message is of. Where that is a file which the text gives
    to its lines (``#line 1 "kernel.c"``), the error is of the function ``kernel``.
    """
    command, refused = c_compiler(), f"refused the code of '{name}'"
    with TemporaryDirectory(prefix="graft-") as folder:
        output = Path(folder) / "kernel.o"
        done = _run([*command, *flags, "-c", "-o", str(output)], text, refused, name)
        if not output.exists():
            raise _refusal(command, refused, "no object file", done, name)
        return output.read_bytes()


def machine_of(command: Sequence[str]) -> str:
    """Return the architecture that a compiler makes code for, as in "x86_64"; "" if it does not say."""
    try:
        said = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return said.stdout.strip().partition("-")[0]


def run_in(folder: Path, arguments: Sequence[str], refused: str) -> None:
    """Run the compiler on files in a folder; raise CompileError with its own message if it refuses."""
    _done([*c_compiler(), *arguments], refused, folder=folder)


def run_tool(folder: Path, tool: str, arguments: Sequence[str]) -> None:
    """Run a tool that belongs to the compiler, as ``ar`` does; raise CompileError if it refuses."""
    named = _done([*c_compiler(), f"-print-prog-name={tool}"], f"does not say where its '{tool}' is").stdout.strip()
    _done([named or tool, *arguments], f"has an '{tool}' that refused", folder=folder)


def _run(arguments: Sequence[str], text: str, refused: str, name: str = "") -> subprocess.CompletedProcess[str]:
    return _done([*arguments, "-x", "c", "-"], refused, name, text)


def _done(
    arguments: Sequence[str], refused: str, name: str = "", text: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        raise CompileError(f"the C compiler '{arguments[0]}' cannot be run: {error}", function=name) from error
    if done.returncode:
        raise _refusal(c_compiler(), refused, f"exit {done.returncode}", done, name, text)
    return done


def _refusal(
    command: Sequence[str],
    refused: str,
    how: str,
    done: subprocess.CompletedProcess[str],
    name: str,
    text: str = "",
) -> CompileError:
    said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:SHOWN_LINES])
    for place in _PLACE.finditer(said):
        line = _line_of(text, place[1], int(place[2]))
        if line is not None:
            said = f"{said}\nthe line is: {line.strip()}"
            name = place[1].removesuffix(".c")
            break
    return CompileError(f"the C compiler '{shlex.join(command)}' {refused} ({how}): {said}", function=name)


def _line_of(text: str, file: str, number: int) -> str | None:
    """Return a line of the part of a text that is called ``file``; None if it has no such line."""
    _, mark, part = text.partition(f'#line 1 "{file}"\n')
    lines = part.partition("\n#line 1 ")[0].splitlines()
    return lines[number - 1] if mark and 0 < number <= len(lines) else None
