"""C from the tensor IR, compiled by the system's compiler into native code that Graft links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import graft.runtime
from graft.core.machine.host import available_threads
from graft.core.machine.machine import Machine
from graft.core.machine.rows import GENERIC, NATIVE, ROWS
from graft.core.machine.target import CompileOptions, Target, host_target
from graft.core.tensor_ir.ir import Function
from graft.errors import CompileError
from graft.plugins.c_compiler import c_compiler, compiled, version_of
from graft.plugins.c_source.functions import function_text
from graft.plugins.codegen.kernel_objects import KernelObjects, ObjectCompiler
from graft.plugins.native_image import link
from graft.plugins.tensor_ir_backend import TensorIrBackend
from graft.runtime.procedure import Module

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
        """Return the target as one of which nothing is known but scalars."""
        processor = NATIVE if target.machine.name == NATIVE else target.cpu
        return replace(target, machine=replace(GENERIC, arch=target.arch, cpu=processor), precision="float32")

    def generates_code(self, machine: Machine) -> bool | str:
        """Return True for what this machine's compiler compiles for; of one that ``CC`` names that is not known."""
        here = host_target().arch
        fits = machine.arch in (GENERIC.arch, here) or "CC" in os.environ
        return fits or f"it runs a compiler for {here}, not for {machine.arch}; name one for that in CC"

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the functions as one native image."""
        names = tuple(function.name for function in functions)
        return Module("", "native", names, link([self._object(self._text(*functions), names[0], target)], names))

    def region_code(self, target: Target, options: CompileOptions) -> KernelObjects:
        """Compile each function by itself, several at once, and keep what comes of it."""

        def compile(text: str, name: str) -> bytes:
            return self._object(text, name, target)

        own = ObjectCompiler(self.name, self.version(), self.sources(), self._text, compile, available_threads())
        return KernelObjects(own, target, options.cache)

    def _text(self, *functions: Function) -> str:
        return "\n".join(['#include "prelude.h"\n', *map(function_text, functions)])

    def _object(self, text: str, name: str, target: Target) -> bytes:
        is_known = target.arch == host_target().arch and (target.cpu == NATIVE or target.cpu in ROWS)
        return compiled(text, [*FLAGS, *([f"-march={target.cpu}"] if is_known else [])], name)
