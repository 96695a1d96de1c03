"""The built-in compiler as a backend: every operator that has a lowering, in fused kernels of native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from graft.plugins.tensor_ir_backend import TensorIrBackend
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.machine.machine import Machine
    from graft.core.machine.target import CompileOptions, Target
    from graft.core.tensor_ir.ir import Function
    from graft.plugins.codegen.region_code import RegionCode


class LlvmBackend(TensorIrBackend):
    """Compiles whatever has a lowering and static shapes; the last resort before the `reference` backend."""

    name: ClassVar[str] = "llvm"
    priority: ClassVar[int] = 10
    fallback: ClassVar[bool] = True
    recipes: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"name": "llvm-int8", "base": "int8-channel"},
        {"name": "llvm-int4-weights", "base": "int4-weights"},
    )

    def available(self) -> str | None:
        """Return None if llvmlite can be imported."""
        try:
            import llvmlite.binding  # noqa: F401 - only whether it is there
        except ImportError as error:
            return f"llvmlite cannot be imported ({error}); pip install llvmlite"
        return None

    def version(self) -> str:
        """Return the versions of llvmlite and LLVM."""
        from graft.plugins.llvm.emit import llvm_version

        return llvm_version()

    def generates_code(self, machine: Machine) -> bool | str:
        """Return True for the architectures that LLVM is asked for here."""
        from graft.plugins.codegen.llvm_ir.builder import TRIPLES

        return machine.arch in TRIPLES or f"it generates code for {', '.join(TRIPLES)}, not for {machine.arch}"

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the functions as one native image, or as objects where another linker makes the program."""
        from graft.plugins.codegen.kernel_objects import unlinked
        from graft.plugins.codegen.llvm_ir.builder import PLAIN
        from graft.plugins.llvm.emit import compile_functions, compile_object

        names = tuple(function.name for function in functions)
        if target.arch in PLAIN:
            return unlinked(names, names, [compile_object(function, target) for function in functions])
        return Module("", "native", names, compile_functions(functions, target))

    def region_code(self, target: Target, options: CompileOptions) -> RegionCode:
        """Compile each function while the next is scheduled: LLVM runs outside Python's lock.

        It takes one call at a time (llvmlite has a lock of its own), so one thread is enough.
        """
        from graft.plugins.codegen.kernel_objects import KernelObjects, ObjectCompiler, Written
        from graft.plugins.codegen.llvm_ir.builder import PLAIN
        from graft.plugins.llvm.emit import module_ir, object_of, processor_of

        processor, features = processor_of(target.machine)
        compiler = ObjectCompiler(
            self.name,
            f"{self.version()} {processor} {','.join(features)}",
            self.sources(),
            text=lambda function: Written(module_ir((function,), target)),
            compile=partial(object_of, target=target),
            is_linked=target.arch not in PLAIN,
        )
        return KernelObjects(compiler, target, options.cache)
