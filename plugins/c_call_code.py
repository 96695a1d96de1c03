"""The C text of a region's calls as a module: compiled, linked, and what it calls looked for in the libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from graft.core.machine.rows import GENERIC
from graft.core.machine.target import host_target
from graft.errors import CompileError
from graft.plugins.c_call_text import CText
from graft.plugins.c_libraries import link_flags, unknown_symbols
from graft.plugins.codegen.kernel_source import entry_text, joined
from graft.plugins.layouts import c_transpose as transpose
from graft.plugins.native_image import imported, link
from graft.runtime.c_source import INCLUDE, PRELUDE, CSource
from graft.runtime.loaders import C_SOURCE
from graft.runtime.procedure import Module
from graft.runtime.system.c_compiler import compiled

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.plugins.c_vendor import CVendor

FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
)  # fmt: skip
"""Functions of libraries are called through places that the runtime fills; what contradicts a header is refused."""
ENTRY = "{}_entry"
"""What the prelude makes of the name of a kernel for its entry."""


def flags_of(backend: CVendor) -> tuple[str, ...]:
    """Return the flags of the compiler."""
    return (*FLAGS, f"-I{INCLUDE}", *(f"-I{folder}" for folder in backend.includes))


def source_of(backend: CVendor, functions: Mapping[str, CText], origins: Mapping[str, Sequence[str]]) -> CSource:
    """Return the C of a region: what the backend has for all calls, then each function."""
    source = joined({name: text.named(name) for name, text in functions.items()}, origins)
    helpers = "\n".join([backend.helpers.strip(), *([transpose.helpers()] if backend.channels_last else [])]).strip()
    if helpers:
        guard = f"GRAFT_HELPERS_{sha256(helpers.encode()).hexdigest()[:16].upper()}"
        helpers = f"#ifndef {guard}\n#define {guard}\n{helpers}\n#endif\n\n"
    libraries = tuple(backend.link) or link_flags(backend.libraries)
    return replace(source, text=f"{helpers}{source.text}", libraries=libraries, headers=tuple(backend.headers))


def compiled_calls(
    backend: CVendor,
    region: str,
    functions: Mapping[str, CText],
    origins: Mapping[str, Sequence[str]],
    labels: Mapping[str, str],
    options: CompileOptions,
) -> Module:
    """Return the module of a region's functions; ``labels`` say for messages which kernels they are of.

    Raise CompileError for another machine than this one, and where the C compiler refuses.
    """
    machine, here = options.target.machine, host_target().arch
    if machine.arch not in (GENERIC.arch, here):
        raise CompileError(
            f"backend '{backend.name}' compiles calls of libraries for this machine, {here}, not for '{machine.name}'; "
            "leave it out of backends for that target",
            target=machine.name,
        )
    source = source_of(backend, functions, origins)
    head = "".join(f"#include <{name}>\n" for name in (PRELUDE, *backend.headers))
    entries = [entry_text(source.functions[name], len(text.inputs)) for name, text in functions.items()]
    whole, where = "\n".join((head, source.text, *entries)), f"backend '{backend.name}': region '{region}'"
    try:
        code = compiled(whole, region, flags_of(backend))
    except CompileError as error:
        raise _refused(where, whole, error, labels, backend.install) from error
    _check_symbols(where, imported([code]), backend, {labels[name]: text.body for name, text in functions.items()})
    symbols = [ENTRY.format(name) for name in functions]
    image = link([code], tuple(functions), symbols, libraries=backend.libraries)
    path = next((one for one in backend.libraries if "/" in one), None)
    bound = "" if path is None else f"it calls functions of '{path}', a file of this machine; name it by its soname"
    return Module(region, C_SOURCE, tuple(functions), image, install=backend.install, bound=bound, source=source)


def _check_symbols(where: str, names: Sequence[str], backend: CVendor, bodies: Mapping[str, str]) -> None:
    """Raise CompileError for a function that no library has; ``bodies`` are the functions' by kernel."""
    for name in unknown_symbols(names, backend.libraries):
        libraries = ", ".join(f"'{one}'" for one in backend.libraries) or "it names none"
        kernel = next((label for label, body in bodies.items() if re.search(rf"\b{name}\b", body)), "a helper")
        raise CompileError(
            f"{where}: {kernel} calls '{name}', which none of the backend's libraries has ({libraries}); is the header "
            "of another version?",
            symbol=name,
        )


def _refused(where: str, text: str, error: CompileError, labels: Mapping[str, str], install: str) -> CompileError:
    """Return the error for what the compiler refused: the line, the kernel that it is of, and what was said of it."""
    said = re.search(r"<stdin>:(\d+):(?:\d+:)? (?:fatal )?error: (.*)", error.message)
    if said is None:
        return CompileError(f"{where}: {error.message}")
    lines, number = text.splitlines(), int(said[1])
    line, reason = lines[number - 1].strip(), re.sub("[\u2018\u2019]", "'", said[2])
    if line.startswith("#include"):
        how = f"; {install}" if install else ""
        return CompileError(f"{where}: the C compiler refuses '{line}': {reason}{how}", line=line)
    begun = re.findall(r"^GRAFT_KERNEL int32_t (\w+)\(", "\n".join(lines[:number]), re.MULTILINE)
    of = labels[begun[-1]] if begun else "its helpers"
    return CompileError(f"{where}, {of}: the C compiler refuses '{line}': {reason}", line=line)
