"""The shared libraries and headers of a vendor: what is there, and what a program that uses them has to name."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from graft.errors import CompileError
from graft.runtime.system.c_compiler import c_compiler, preprocessed


@cache
def opened(library: str) -> ctypes.CDLL | str:
    """Open a library, by soname or path, and return it, else the system's reason.

    What is open is found by its soname by whoever asks for it later.
    """
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        return str(error)


def missing_library(libraries: Sequence[str]) -> str | None:
    """Return why one of the libraries cannot be opened, None if all can."""
    for library in libraries:
        found = opened(library)
        if isinstance(found, str):
            return f"the library '{library}' cannot be opened: {found}"
    return None


def missing_header(headers: Sequence[str], flags: Sequence[str]) -> str | None:
    """Return why one of the headers cannot be included, or that there is no C compiler; None if all can."""
    try:
        command = c_compiler()
    except CompileError as error:
        return error.message
    for header in headers:
        if (reason := _refused(command, tuple(flags), header)) is not None:
            return reason
    return None


@cache
def _refused(command: Sequence[str], flags: Sequence[str], header: str) -> str | None:
    try:
        preprocessed(command, flags, header)
    except CompileError as error:
        is_missing = f"{header}: No such file" in error.message or f"'{header}' file not found" in error.message
        return f"the header '{header}' is not found" if is_missing else error.message
    return None


def unknown_symbols(names: Sequence[str], libraries: Sequence[str]) -> list[str]:
    """Return those names that no library has, the C library that each of them needs included."""
    found = [one for one in map(opened, libraries) if isinstance(one, ctypes.CDLL)]
    return [name for name in names if not any(hasattr(library, name) for library in found)]


def link_flags(libraries: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of a linker: ``-lopenblas`` for ``libopenblas.so.0``; a path that is no soname stays one."""
    return tuple(_link_flag(library) for library in libraries)


def _link_flag(library: str) -> str:
    found = re.fullmatch(r"lib(.+?)\.so(\.[\d.]+)?", Path(library).name)
    return library if found is None or "/" in library else f"-l{found[1]}"
