"""Kernels linked with the emulator to one shared object, by the system's C compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from graft.errors import CompileError
from graft.plugins.cuda.emulation import DECLARED, entry
from graft.plugins.cuda.emulator.device_instructions import COLLECTIVE
from graft.plugins.cuda.emulator.ptx_text import Instruction, PtxFunction, functions
from graft.plugins.cuda.emulator.translation import translated
from graft.plugins.cuda.launches import Launch
from graft.plugins.cuda.ptx import parsed
from graft.runtime.system.c_compiler import run_in
from graft.runtime.system.files import write

EMULATOR = Path(__file__).parent / "emulator"
# Fortified, longjmp refuses to leave one thread's stack for another's, which is how the emulator changes threads.
_FLAGS = ("-U_FORTIFY_SOURCE", "-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror")


def emulated(ptx: str, launches: Sequence[tuple[Launch, int]], name: str) -> bytes:
    """Return the kernels of PTX as a shared object of native code with the emulator.

    Beside each launch stand its bytes of shared memory. Raises CompileError without a C compiler, and for PTX that the
    emulator cannot run.
    """
    known = {one.name: one for one in functions(ptx)}
    entries = [
        entry(launch, _memory(known[launch.name], shared), known[launch.name].text) for launch, shared in launches
    ]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = llvm.get_host_cpu_features().flatten()  # also what the processor has and the system hides: switched off
    triple = llvm.get_process_triple()
    generator = llvm.Target.from_triple(triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=1, reloc="pic", codemodel="small"
    )
    text = "\n".join([f'target triple = "{triple}"', translated(list(known.values())), *DECLARED, *entries, ""])
    module = parsed(text, name)
    module.data_layout = str(generator.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(generator, options)
    builder.getModulePassManager().run(module, builder)
    with tempfile.TemporaryDirectory() as folder:
        code, made = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        write(code, bytes(generator.emit_object(module)), "the kernels for the emulator", CompileError)
        parts = ("-shared", "-fPIC", "-o", str(made), str(code), str(emulator_object()), "-lm", "-lpthread")
        run_in(Path(folder), parts, f"could not link '{name}' with the emulator")
        return made.read_bytes()


def _memory(function: PtxFunction, shared: int) -> int:
    """Return the bytes of shared memory, -1 if no thread ever waits for another one."""
    waits = any(isinstance(one, Instruction) and one.name.startswith(COLLECTIVE) for one in function.body)
    return shared if waits or shared else -1


@cache
def emulator_object() -> Path:
    """Return the emulator as one object, compiled once a process."""
    folder = Path(tempfile.mkdtemp(prefix="graft-emulator-"))
    sources = map(str, sorted(EMULATOR.glob("*.c")))
    run_in(folder, (*_FLAGS, "-r", "-nostdlib", *sources, "-o", "emulator.o"), "refused the emulator")
    return folder / "emulator.o"
