"""Native code from tensor IR through LLVM.

LLVM sees explicit vectors, so the passes that look for vectors are switched off, as are those that make library calls
out of loops. The result is a position-independent image that `graft.plugins.native_image` links: no external symbol,
no linker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from graft.core.machine.machine import Machine
from graft.core.machine.rows import COMPILED_FOR, NATIVE
from graft.core.machine.target import Target
from graft.core.tensor_ir.arithmetic.fused import unfused
from graft.core.tensor_ir.arithmetic.vector_math import expansion, has_expansions
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.visit import map_statement
from graft.errors import CompileError
from graft.plugins.codegen.llvm_ir.builder import PLAIN, TRIPLES, ModuleText
from graft.plugins.llvm.emit_function import BRIEF, emit_function
from graft.plugins.native_image import link


def emit_ir(function: Function, target: Target) -> str:
    """Return the LLVM IR of one function, before LLVM's own passes."""
    return module_ir((function,), target)


def module_ir(functions: Sequence[Function], target: Target) -> str:
    """Return one LLVM module with all of ``functions``."""
    module = ModuleText(target)
    for function in functions:
        module.is_exact = function.is_exact
        emit_function(module, _expanded(function, target))
    layout = f'target datalayout = "{target_machine(target).target_data}"\n' if module.is_plain else ""
    return f'{layout}target triple = "{_triple(target)}"\n\n{module.text()}'


def _expanded(function: Function, target: Target) -> Function:
    """Return the function with transcendental functions as arithmetic; what they share stays shared, not bound."""
    body = function.body
    if has_expansions(body):
        has_ldexp = target.arch == "x86_64" and target.machine.features >= {"avx512f", "avx512vl"}
        body = map_statement(body, expansion(has_ldexp=has_ldexp))
    if not target.machine.has("fma"):
        body = map_statement(body, unfused(is_exact=function.is_exact))
    return replace(function, body=body)


def compile_functions(functions: Sequence[Function], target: Target) -> bytes:
    """Return a native image with a GraftFunction for each of ``functions``, called by its name.

    Raises CompileError where a function needs what native code here cannot have (an unknown intrinsic, an external
    symbol), naming the function.
    """
    objects = [compile_object(function, target) for function in functions]
    return link(objects, [function.name for function in functions])


def compile_object(function: Function, target: Target) -> bytes:
    """Return the ELF object of one function."""
    return object_of(module_ir((function,), target), function.name, target)


def object_of(text: str, name: str, target: Target) -> bytes:
    """Return the ELF object of an LLVM module; ``name`` stands in the error if LLVM refuses it."""
    machine = target_machine(target, level=0 if _needs_no_speed(text) else 2)
    # A context of its own: types and constants of one kernel do not pile up in a global one.
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the code of '{name}': {error}", function=name) from error
    _optimise(module, machine)
    return bytes(machine.emit_object(module))


def _needs_no_speed(text: str) -> bool:
    """Whether a module is so little work that LLVM's quickest code generator will do.

    That one does not fuse products with sums, so results would round differently: what has both is left to the other.
    """
    return BRIEF in text and not ("fmul contract" in text and ("fadd contract" in text or "fsub contract" in text))


def llvm_version() -> str:
    """Return the version of LLVM and of what leads to it."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def assembly(function: Function, target: Target) -> str:
    """Return the assembly of one function, for people."""
    machine = target_machine(target)
    module = llvm.parse_assembly(module_ir((function,), target), context=llvm.create_context())
    _optimise(module, machine)
    return str(machine.emit_assembly(module))


def _optimise(module: Any, machine: Any) -> None:
    """Run LLVM's pipeline function by function: nothing is to be inlined, and level 1 has all that matters here."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration and not any(b"optnone" in group for group in function.attributes):
            passes.run(function, builder)


def _triple(target: Target) -> str:
    try:
        return TRIPLES[target.arch]
    except KeyError:
        known = ", ".join(TRIPLES)
        raise CompileError(
            f"the built-in compiler has no code generator for '{target.arch}'; it has {known}", arch=target.arch
        ) from None


@cache
def processor_of(machine: Machine) -> tuple[str, tuple[str, ...]]:
    """Return LLVM's names of a machine's processor and of its features, signed.

    Of this machine they are those that LLVM sees, without those that code is not generated for.
    """
    if machine.name != NATIVE:
        return machine.cpu, tuple(f"+{name}" for name in sorted(machine.features))
    unused = COMPILED_FOR - machine.features
    features = sorted(llvm.get_host_cpu_features().items())
    return llvm.get_host_cpu_name(), tuple(
        f"{'+' if on and name not in unused else '-'}{name}" for name, on in features
    )


@cache
def target_machine(target: Target, level: int = 2) -> Any:
    """Return LLVM's code generator for a target; at level 0 the one that takes a quarter of the time."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    processor, names = processor_of(target.machine)
    features = ",".join(names)
    if "+avx512f" in names:
        features += ",-prefer-256-bit"
    return llvm.Target.from_triple(_triple(target)).create_target_machine(
        cpu=processor,
        features=features,
        opt=level,
        reloc="static" if target.arch in PLAIN else "pic",
        codemodel="small",
    )
