"""C from the tensor IR, compiled by the system's compiler into native code that Graft links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import graft.runtime
from graft.core.machine.target import LEVELS, CompileOptions, Target, available_threads, host_target
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


@dataclass(frozen=True, slots=True)
class ScalarTarget(Target):
    """Any machine, of which only scalars are used."""

    @property
    def vector_bytes(self) -> int:
        """One lane of whatever type."""
        return 1


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
        """Return the target without vectors and their instructions."""
        return ScalarTarget(target.arch, target.cpu, frozenset(), target.threads, target.without)

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
        here, machine = host_target(), []
        if (target.arch, target.cpu) == (here.arch, here.cpu):
            machine = ["-march=native"]
        elif target.arch == here.arch and target.cpu in LEVELS:
            machine = [f"-march={target.cpu}"]
        return compiled(text, [*FLAGS, *machine], name)
