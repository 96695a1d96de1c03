"""One C project per program: sources, a header with a typed entry point, weights, build files, and a recorded check.

It needs a C11 compiler and, of Graft, nothing: no runtime, no heap, no files, and threads only where they are wanted.
With profile ``bare-metal`` the weights are C arrays (they go where ``const`` goes: into flash) and the main program
prints nothing; else larger weights are a file that the assembler brings in. Profiles ``arduino`` and ``zephyr`` are the
same as a folder that these build systems take.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from graft.errors import ArtifactError
from graft.runtime.arena import fullest_moment
from graft.runtime.c_source import PRELUDE
from graft.runtime.export.c_arrays import blob_text, weights_blob, weights_text
from graft.runtime.export.c_build import (
    FLAGS,
    arduino_files,
    cmake_text,
    compiler_for,
    makefile_text,
    target_flags,
    zephyr_files,
)
from graft.runtime.export.c_built import Built, built, least_text
from graft.runtime.export.c_check import Recorded, check_header, check_text, main_text
from graft.runtime.export.c_names import model_name
from graft.runtime.export.c_program import CProgram
from graft.runtime.export.c_regions import blob_bytes, region_files
from graft.runtime.export.c_session import session_files
from graft.runtime.export.c_text import header_text, kernel_texts, prelude_text, program_text, threads_text
from graft.runtime.export.folder import Parts, write_folder
from graft.runtime.procedure import ALIGNMENT, ProgramDescription

Profile = Literal["hosted", "bare-metal", "arduino", "zephyr"]
PROFILES: tuple[Profile, ...] = ("hosted", "bare-metal", "arduino", "zephyr")
BLOB_BYTES = 1 << 20
"""From so many bytes of weights on they are a file of their own: C arrays take compilers a second per megabyte."""
SHOWN_TENSORS = 3
NARROW = "narrow its indices (narrow_indices)"
SPELLED = {"narrow_indices": "-b c_source:narrow_indices=true"}


@dataclass(frozen=True, slots=True)
class ExportedProject:
    """What was written: the folder, its bytes, the model's name in C, and what a program that links it needs."""

    path: Path
    bytes: int
    name: str
    arena_bytes: int
    weight_bytes: int
    built: Built | None = None
    """What a compiler makes of it, where one was asked."""
    kernels: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """The names of functions in the project, by module and function."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """The names of weights in the project, by their keys in the program."""


def export_c_project(
    description: ProgramDescription,
    path: str | os.PathLike[str],
    recorded: Recorded,
    *,
    name: str | None = None,
    profile: Profile = "hosted",
    ram: int | None = None,
    threads: int = 1,
    session: bool = False,
    flash: int | None = None,
    stack: int | None = None,
    compiler: str = "",
) -> ExportedProject:
    """Write a program, all of whose modules have C source, to a folder; ``recorded`` is what its check compares with.

    Several ``threads`` share the loops of kernels, which needs a host. ``ram`` is how many bytes the arena may have,
    its stack included where a compiler is asked; ``flash`` how many weights and code, ``stack`` how many the stack:
    both as ``compiler``, a command with flags, makes them, else a usual one of the target. With ``session`` there are
    the files of one besides. Raises ArtifactError where the program has no C form, a budget does not do, or the
    folder cannot be written: what was there is then as it was.
    """
    if threads > 1 and profile != "hosted":
        raise ArtifactError(
            f"a project of profile '{profile}' has no threads, and {threads} are wanted; leave them out"
        )
    program = CProgram(model_name(name, path), description, threads=threads)
    weights = sum(description.constants[key].nbytes for key in program.constants) + blob_bytes(program)
    if profile == "hosted" and weights >= BLOB_BYTES:
        program = replace(program, blob=True)
    if ram is not None and program.arena_bytes > ram:
        raise _too_large(program, ram)
    made = None
    if compiler or flash is not None or stack is not None:
        command = shlex.split(compiler) or compiler_for(description.targets)
        made = _built(program, command)
        budgets = Budgets(program, command, made)
        budgets.check_flash(weights, flash)
        budgets.check_stack(stack)
        budgets.check_ram(ram)
    files = _files(program, recorded, profile, weights, made)
    if session:
        files |= {f"{program.name}.c": program_text(program, [f"{program.name}_timed.h"]), **session_files(program)}
    written = write_folder(path, files, made_later=("build",))
    kernels = {
        (call.module, call.function): program.kernels[program.function(call).entry]
        for procedure in program.procedures
        for call in procedure.calls
        if call.kind == "call"
    }
    return ExportedProject(
        Path(path), written, program.name, program.arena_bytes, weights, made, kernels, program.constants
    )


def _built(program: CProgram, command: Sequence[str]) -> Built:
    """Return what a compiler makes of all but the weights of a project."""
    name = program.name
    texts = {f"{name}.h": header_text(program), f"{name}.c": program_text(program), PRELUDE: prelude_text(program)}
    texts |= kernel_texts(program)
    texts |= {f"{name}_threads.c": threads_text(program)} if program.threads > 1 else {}
    flags = ["-std=c11", *FLAGS, *target_flags(program.targets), *(["-pthread"] if program.threads > 1 else [])]
    sources = [one for one in texts if one.endswith(".c")]
    texts |= {one: text for one, text in region_files(program).items() if one.endswith(".h") and isinstance(text, str)}
    return built(name, texts, sources, [*command, *flags])


def _files(
    program: CProgram, recorded: Recorded, profile: Profile, weights: int, made: Built | None
) -> dict[str, Parts]:
    """Return the files of a project by their names."""
    name = program.name
    libraries = dict.fromkeys(
        one for module in program.modules if module.source is not None for one in module.source.libraries
    )
    stored = f"{name}_weights.{'S' if program.blob else 'c'}"
    threads = [f"{name}_threads.c"] if program.threads > 1 else []
    regions = region_files(program)
    sources = [f"{name}.c", f"{name}_kernels.c", *([stored] if program.constants else []), *threads]
    sources += [one for one in regions if one.endswith(".c")]
    flags = target_flags(program.targets)
    sizes = f"{name}: arena {program.arena_bytes} bytes, weights {weights} bytes"
    sizes += f", stack at most {made.stack} bytes by {made.compiler}" if made else ""
    files: dict[str, Parts] = {
        f"{name}.h": header_text(program, made),
        f"{name}.c": program_text(program),
        **kernel_texts(program),
        PRELUDE: prelude_text(program),
        f"{name}_check.h": check_header(name),
        f"{name}_check.c": check_text(program, recorded),
        **regions,
        "main.c": main_text(name, profile == "hosted"),
        "Makefile": makefile_text(name, sources, list(libraries), sizes, flags),
        "CMakeLists.txt": cmake_text(name, sources, list(libraries), flags),
    }
    if threads:
        files[threads[0]] = threads_text(program)
    if program.constants:
        files[stored] = blob_text(name) if program.blob else weights_text(program)
    if program.blob:
        files[f"{name}_weights.bin"] = weights_blob(program)
    if profile == "zephyr":
        return files | zephyr_files(name, sources, flags)
    if profile == "arduino":  # whose builder compiles all of src, in whose sketches there is a main
        kept = {f"src/{file}": text for file, text in files.items() if file.endswith((".c", ".h")) and file != "main.c"}
        return kept | arduino_files(name)
    return files


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a project may need, held against what a command makes of it; what is too much is told with the least."""

    program: CProgram
    command: Sequence[str]
    made: Built

    def check_flash(self, weights: int, flash: int | None) -> None:
        """Raise ArtifactError where weights and code need more than there is."""
        code = self.made.code_bytes
        if flash is None or weights + code <= flash:
            return
        largest = sorted(self.made.code.items(), key=lambda one: -one[1])[:SHOWN_TENSORS]
        named = ", ".join(f"'{one}' ({size})" for one, size in largest)
        otherwise = "quantise the model" if weights > code else NARROW
        raise ArtifactError(
            f"weights ({weights} bytes) and code ({code}) are {weights + code - flash} bytes more than the {flash} "
            f"that there are; the largest functions are {named}; "
            f"{self._least(lambda one: weights + one.code_bytes, flash, otherwise)}",
            spelled=SPELLED,
            flash_bytes=weights + code,
            flash=flash,
        )

    def check_stack(self, stack: int | None) -> None:
        """Raise ArtifactError where the bound of the stack is larger than what there is."""
        if stack is None or self.made.stack <= stack:
            return
        named = " -> ".join(f"'{one}' ({frame})" for one, frame in self.made.path)
        raise ArtifactError(
            f"the stack needs at most {self.made.stack} bytes, {self.made.stack - stack} more than the {stack} that "
            f"there are, on the path {named}; "
            f"{self._least(lambda one: one.stack, stack, NARROW)}",
            spelled=SPELLED,
            stack_bytes=self.made.stack,
            stack=stack,
        )

    def check_ram(self, ram: int | None) -> None:
        """Raise ArtifactError where arena and stack together need more than there is."""
        arena = self.program.arena_bytes
        needed = arena + self.made.stack
        if ram is None or needed <= ram:
            return
        raise ArtifactError(
            f"the arena ({arena} bytes) and the stack ({self.made.stack}) are {needed - ram} bytes more than the {ram} "
            f"that there are; {self._least(lambda one: arena + one.stack, ram, 'make the model smaller')}",
            ram_bytes=needed,
            ram=ram,
        )

    def _least(self, size: Callable[[Built], int], most: int, otherwise: str) -> str:
        def with_flag(flag: str) -> int:
            return size(_built(self.program, (*self.command, flag)))

        return least_text(size(self.made), with_flag, most, otherwise)


def _too_large(program: CProgram, ram: int) -> ArtifactError:
    """Return the error for an arena that is larger than the memory, with the largest tensors of its fullest moment."""
    moment = fullest_moment(program.entry)
    live = moment.blocks[:SHOWN_TENSORS] if moment else ()
    beside = program.arena_bytes - program.entry.arena_bytes
    shown = ", ".join(f"'{one.name}' ({one.bytes})" for one in live)
    of_control = program.scratch_offset - program.entry.arena_bytes
    parts = {"scratch memory of kernels": program.threads * program.scratch_bytes, "of control flow": of_control}
    more = "".join(f", of which {size} are {what}" for what, size in parts.items() if size >= ALIGNMENT)
    least = beside + moment.bytes if moment else program.arena_bytes
    named = f"; the largest tensors of its fullest moment are {shown}" if shown else ""
    return ArtifactError(
        f"the arena has {program.arena_bytes} bytes{more}, {program.arena_bytes - ram} more than the {ram} that there "
        f"are, and no plan of this program has less than {least}{named}: make the model smaller, or its numbers "
        "narrower",
        arena_bytes=program.arena_bytes,
        ram=ram,
    )
