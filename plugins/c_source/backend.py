"""C from the tensor IR, compiled by the system's compiler into native code that Graft links."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import graft.runtime
from graft.core.machine.host import available_threads
from graft.core.machine.machine import Machine
from graft.core.machine.rows import GENERIC, NATIVE, ROWS
from graft.core.machine.target import CompileOptions, Target, host_target
from graft.core.tensor_ir.ir import Function
from graft.errors import CompileError
from graft.plugins.c_source.functions import function_text
from graft.plugins.codegen.kernel_objects import KernelObjects, ObjectCompiler
from graft.plugins.native_image import link
from graft.plugins.tensor_ir_backend import TensorIrBackend
from graft.runtime.c_compiler import c_compiler, compiled, preprocessed, version_of
from graft.runtime.procedure import Module

PRELUDE = "prelude.h"
HEADERS = (Path(__file__).parent, Path(graft.runtime.__file__).parent / "native" / "include")
FLAGS = (
    "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-tree-loop-distribute-patterns",
    "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", *(f"-I{folder}" for folder in HEADERS),
)  # fmt: skip
"""No library is called, and every operation is rounded where the tensor IR has it."""


class CSourceBackend(TensorIrBackend):
    """Writes scalar portable C11 and compiles it with ``CC``, or else cc, gcc or clang."""

    name: ClassVar[str] = "c_source"
    by_default: ClassVar[bool] = False

    def available(self) -> str | None:
        """Return None if there is a C compiler."""
        try:
            c_compiler()
        except CompileError as error:
            return error.message
        return None

    def version(self) -> str:
        """Return the command of the compiler, and what it says of itself."""
        return "" if self.available() else f"{' '.join(c_compiler())}: {version_of(c_compiler())}"

    def machine(self, target: Target) -> Target:
        """Return the target as one of which nothing is known but scalars; the compiler knows its processor."""
        row = target.machine
        own = replace(GENERIC, name=row.name, arch=row.arch, cpu=row.cpu, features=row.features)
        return replace(target, machine=own)

    def generates_code(self, machine: Machine) -> bool | str:
        """Return True for what this machine's compiler compiles for; of one that ``CC`` names that is not known."""
        here = host_target().arch
        fits = machine.arch in (GENERIC.arch, here) or "CC" in os.environ
        return fits or f"it runs a compiler for {here}, not for {machine.arch}; name one for that in CC"

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the functions as one native image."""
        names = tuple(function.name for function in functions)
        code = compiled(source_text(*functions), ", ".join(names), flags_for(target.machine))
        return Module("", "native", names, link([code], names))

    def region_code(self, target: Target, options: CompileOptions) -> KernelObjects:
        """Compile each function by itself, several at once, and keep what comes of it."""
        flags = flags_for(target.machine)
        seen = "" if options.cache is None else preprocessed(c_compiler(), flags, PRELUDE)
        version = f"{self.version()} {' '.join(flags)} {hashlib.sha256(seen.encode()).hexdigest()}"
        compile = partial(compiled, flags=flags)
        own = ObjectCompiler(self.name, version, self.sources(), source_text, compile, available_threads())
        return KernelObjects(own, target, options.cache)


def source_text(*functions: Function) -> str:
    """Return a C source with some functions."""
    return "\n".join([f'#include "{PRELUDE}"\n', *map(function_text, functions)])


def flags_for(machine: Machine) -> tuple[str, ...]:
    """Return what the compiler is told; the processor only where the compiler of this machine knows it by its name."""
    row = machine.name.partition("+")[0]
    is_known = machine.arch == host_target().arch and row in (NATIVE, *ROWS)
    return (*FLAGS, f"-march={row}") if is_known else FLAGS
