"""C from the tensor IR, compiled by the system's compiler into native code that Graft links."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from graft.core.machine.host import available_threads
from graft.core.machine.machine import Machine
from graft.core.machine.rows import COMPILED_FOR, GENERIC, NATIVE, ROWS, family_row
from graft.core.machine.target import CompileOptions, Target, host_target
from graft.core.tensor_ir.ir import Function
from graft.errors import CompileError
from graft.plugins.c_source.functions import function_source
from graft.plugins.c_source.sharing import shared
from graft.plugins.codegen.kernel_objects import KernelObjects, ObjectCompiler, Written
from graft.plugins.codegen.kernel_source import KernelSource, comment, entry_text, joined, opening
from graft.plugins.codegen.region_code import RegionCode
from graft.plugins.native_image import link
from graft.plugins.options.declared import option
from graft.plugins.tensor_ir_backend import TensorIrBackend
from graft.runtime.c_source import INCLUDE, PRELUDE
from graft.runtime.procedure import Module
from graft.runtime.system.c_compiler import c_compiler, compiled, family_of, preprocessed, version_of, why_too_old

ENTRY = "{}_entry"
"""What the prelude makes of the name of a kernel for its entry."""
SHUFFLES = 12
"""The first version of GCC with `__builtin_shufflevector`."""
TEXT_ONLY = "c"
"""The kind of a module that is nothing but its C text."""
NOT_COMPILED = "it is C that was not compiled"
FLAGS = (
    "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-tree-loop-distribute-patterns",
    "-ffp-contract=off", "-fPIC", "-fno-plt", "-fvisibility=hidden",
    f"-I{INCLUDE}",
)  # fmt: skip
"""No library is called, and every operation is rounded where the tensor IR has it."""
_COPIES = "-mstringop-strategy=unrolled_loop"
"""Has GCC for x86 copy vectors of many registers without a call of ``memcpy``."""
_ARM = {"fullfp16": "fp16"}
"""What compilers call features of ARM otherwise than LLVM does."""


@dataclass(frozen=True)
class COptions:
    """The options of the backend."""

    compiles: bool = option(True, help="false only writes C, for any machine and without a compiler: for exports")
    narrow_indices: bool = option(
        False, help="indices in 32 bits where extents allow: less flash and stack on a microcontroller, a bit slower"
    )


class CBackend(TensorIrBackend):
    """Writes C11, with vector types where they are to be had, and compiles it with ``CC``, or else cc, gcc or clang.

    Vectors are those of the machine, with the vector types of GCC 12 and Clang; without the optimisation
    ``vector-types`` it is C11 alone.
    """

    name: ClassVar[str] = "c_source"
    by_default: ClassVar[bool] = False
    options: ClassVar[Any] = COptions

    def available(self) -> str | None:
        """Return None if there is a C compiler, or if none is needed."""
        if not self.options.compiles:
            return None
        try:
            return why_too_old(c_compiler())
        except CompileError as error:
            return error.message

    def version(self) -> str:
        """Return the command of the compiler, and what it says of itself."""
        if not self.options.compiles:
            return "only writes C"
        return "" if self.available() else f"{' '.join(c_compiler())}: {version_of(c_compiler())}"

    def machine(self, target: Target) -> Target:
        """Return the target; where there are no vector types, as one of which nothing is known but scalars."""
        if "vector-types" not in target.without and self._has_vector_types():
            return target
        row = target.machine
        own = replace(GENERIC, name=row.name, arch=row.arch, cpu=row.cpu, features=row.features)
        return replace(target, machine=own)

    def _has_vector_types(self) -> bool:
        if not self.options.compiles:
            return True
        family = None if self.available() else family_of(c_compiler())
        return family is not None and (family[0] == "Clang" or family[1] >= SHUFFLES)

    def generates_code(self, machine: Machine) -> bool | str:
        """Return True for what this machine's compiler compiles for; of one that ``CC`` names that is not known."""
        if not self.options.compiles:
            return True
        here = host_target().arch
        fits = machine.arch in (GENERIC.arch, here) or "CC" in os.environ
        return fits or f"it runs a compiler for {here}, not for {machine.arch}; name one for that in CC"

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the functions as one native image; where C is only written, as a module that nothing loads."""
        write = self._writer(target)
        sources = {one.name: write(one) for one in functions}
        origins = {function.name: function.origin for function in functions}
        if not self.options.compiles:
            own = shared(sources) if target.machine.threads == 1 else sources
            return Module("", TEXT_ONLY, tuple(sources), b"", bound=NOT_COMPILED, source=joined(own, origins))
        source = joined(sources, origins)
        text, flags = image_text(functions, sources), flags_for(target.machine)
        code = compiled(text, ", ".join(sources), flags)
        image = link([code], tuple(sources), [ENTRY.format(name) for name in sources])
        return Module("", "native", tuple(sources), image, source=replace(source, compiler=_compiler(flags)))

    def _writer(self, target: Target) -> Callable[[Function], KernelSource]:
        """Return what writes a function for a target."""
        options, machine = self.options, target.machine
        return partial(
            function_source, vectors=bool(machine.vectors), narrow=options.narrow_indices,
            threads=machine.threads != 1, rolls=not options.compiles,
        )  # fmt: skip

    def region_code(self, target: Target, options: CompileOptions) -> RegionCode:
        """Compile each function by itself, several at once, and keep what comes of it."""
        if not self.options.compiles:
            return super().region_code(target, options)
        flags = flags_for(target.machine)
        seen = "" if options.cache is None else preprocessed(c_compiler(), flags, PRELUDE)
        version = f"{self.version()} {' '.join(flags)} {hashlib.sha256(seen.encode()).hexdigest()}"
        version += " narrow" if self.options.narrow_indices else ""
        write = partial(_written, write=self._writer(target))
        compile = partial(compiled, flags=flags)
        own = ObjectCompiler(self.name, version, self.sources(), write, compile, available_threads(), ENTRY)
        return KernelObjects(own, target, options.cache, _compiler(flags))


def _compiler(flags: Sequence[str]) -> str:
    """Return what a program says of the compiler that made it; folders of this machine are no part of that."""
    return " ".join((version_of(c_compiler()), *(flag for flag in flags if not flag.startswith("-I"))))


def _written(function: Function, *, write: Callable[[Function], KernelSource]) -> Written:
    source = write(function)
    return Written(image_text([function], {function.name: source}), source)


def image_text(functions: Sequence[Function], sources: Mapping[str, KernelSource]) -> str:
    """Return the C source of an image: some kernels, and below each its entry."""
    lines = [f'#include "{PRELUDE}"\n', *opening(sources.values())]
    for function in functions:
        own = sources[function.name]
        text = comment(function.origin) + own.text
        lines += [f'#line 1 "{function.name}.c"', text, entry_text(own.function, len(function.input_buffers))]
    return "\n".join(lines)


def flags_for(machine: Machine) -> tuple[str, ...]:
    """Return the flags of the compiler; the processor only where the compiler of this machine knows it by its name."""
    is_here = machine.name == NATIVE
    row = family_row(machine.arch, machine.features) if is_here else ROWS.get(machine.name.partition("+")[0])
    if row is None or machine.arch != host_target().arch:
        return FLAGS
    more, fewer = ((machine.features - row.features) & COMPILED_FOR, (row.features - machine.features) & COMPILED_FOR)
    if machine.arch == "aarch64":
        return (*FLAGS, "".join([f"-march={row.name}", *(f"+{_ARM.get(one, one)}" for one in sorted(more))]))
    flags = (f"-march={row.name}", *(f"-m{one}" for one in sorted(more)), *(f"-mno-{one}" for one in sorted(fewer)))
    family = family_of(c_compiler())
    copies = (_COPIES,) if family is not None and family[0] == "GCC" else ()
    return (*FLAGS, *flags, *copies, *(["-mtune=native"] if is_here else []))
