"""One shared library per program: its artifact in a section, the runtime beside it, entry symbols with its name.

The section ``.graft`` holds the bytes of the artifact at the beginning of a page: `graft.runtime.load` and
``graft_program_load`` find it in the file, and the library's own functions where it is mapped. Everything but these
functions is hidden, so that libraries of several models work side by side. The same program gives the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from graft.errors import ArtifactError, CompileError
from graft.runtime.artifact import save
from graft.runtime.export.c_names import model_name
from graft.runtime.export.runtime_object import FLAGS, SOURCES, runtime_object
from graft.runtime.loaders import NATIVE
from graft.runtime.procedure import Module, ProgramDescription
from graft.runtime.system.c_compiler import c_compiler, machine_of, run_in, why_too_old
from graft.runtime.system.cache_directory import cache_directory
from graft.runtime.system.files import write, writing

LARGEST = (1 << 31) - (64 << 20)
"""Of an artifact: what code reaches with displacements of 32 bits, less the code."""
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Need:
    """A loader that the host has to bring for modules of some kind."""

    kind: str
    plugin: str
    install: str

    def __str__(self) -> str:
        by = f" of plugin '{self.plugin}'" if self.plugin else ""
        return f"the loader{by} for '{self.kind}'" + (f" ({self.install})" if self.install else "")


def needs_of(modules: Sequence[Module]) -> tuple[Need, ...]:
    """Return the loaders that modules need beside the runtime's own, each once."""
    found = [Need(module.kind, module.plugin, module.install) for module in modules if module.kind != NATIVE]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class ExportedLibrary:
    """What was written: the file, its size, the model's name in C, and the loaders that a host in C has to bring."""

    path: Path
    bytes: int
    name: str
    needs: tuple[Need, ...] = ()


def export_library(
    description: ProgramDescription, path: str | os.PathLike[str], *, name: str | None = None
) -> ExportedLibrary:
    """Write a program to a shared library with the functions ``graft_model_<name>_load`` and so on.

    ``name`` is the file's, without "lib", if left out. Raises CompileError where there is no C compiler, it is too old,
    or it refuses, and ArtifactError where the program cannot be saved, is for another machine than the compiler, or the
    file cannot be written: what was there is then as it was.
    """
    model = model_name(name, path)
    if (reason := why_too_old(c_compiler())) is not None:
        raise CompileError(reason)
    _check_machine(description)
    with writing(path, "library", ArtifactError) as file, TemporaryDirectory(prefix="graft-") as made:
        folder = Path(made)
        size = save(description, folder / "artifact.graft")
        if size > LARGEST:
            raise ArtifactError(
                f"the program has {size} bytes, and a shared library holds at most {LARGEST}; save it as an artifact "
                "(.graft), which C programs load as well",
                bytes=size,
            )
        _link(folder, model, Path(path).name)
        with (folder / "model.so").open("rb") as library:
            shutil.copyfileobj(library, file, _COPY_BYTES)
            written = library.tell()
    return ExportedLibrary(Path(path), written, model, needs_of(description.modules))


def _check_machine(description: ProgramDescription) -> None:
    """Raise ArtifactError where the code of a program is for another machine than that of the compiler."""
    made = machine_of(c_compiler())
    made = _ALIASES.get(made, made)
    for target in description.targets:
        wanted = target.get("arch", "")
        if made and wanted and wanted not in ("generic", made):
            raise ArtifactError(
                f"the program is compiled for {wanted}, and the C compiler '{' '.join(c_compiler())}' is one for "
                f"{made}; name one for {wanted} in CC, as in CC={wanted}-linux-gnu-gcc",
                wanted=wanted,
                made=made,
            )


def _link(folder: Path, model: str, name: str) -> None:
    """Make ``model.so`` of ``artifact.graft`` in a folder."""
    kept = cache_directory()
    write(folder / "runtime.o", runtime_object(None if kept is None else kept / "kernels"), "object", ArtifactError)
    exported = f"{{ global: graft_model_{model}; graft_model_{model}_*; local: *; }};\n"
    write(folder / "exported", exported, "version script", ArtifactError)
    sources = [str(SOURCES / "export" / one) for one in ("model.c", "artifact.S")]
    _run(folder, [*FLAGS, f"-DGRAFT_MODEL={model}", "-c", *sources])
    options = [
        "--version-script=exported", "--build-id=sha1", "--gc-sections", "--strip-all", "--no-undefined",
        "-z,noexecstack", "-z,relro", *([f"-soname,{name}"] if name.isascii() and "," not in name else []),
    ]  # fmt: skip
    objects = ["model.o", "artifact.o", "runtime.o"]
    linked = [f"-Wl,{option}" for option in options]
    _run(folder, ["-shared", "-o", "model.so", *objects, *linked, "-pthread", "-ldl", "-lm"])


def _run(folder: Path, arguments: Sequence[str]) -> None:
    run_in(folder, arguments, "refused to make the shared library")
