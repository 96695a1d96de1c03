"""PTX by LLVM, and cubins by `ptxas` or nvJitLink, whichever is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from graft.core.machine.machine import Machine
from graft.errors import CompileError
from graft.plugins.cuda import jit_link
from graft.plugins.cuda.kernel_text import KernelText
from graft.plugins.cuda.wheels import installed
from graft.runtime.system.files import write

TRIPLE = "nvptx64-nvidia-cuda"
INSTALL = "pip install nvidia-cuda-nvcc-cu12"
_USED = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Used:
    """What ptxas says that a kernel takes: registers of a thread, bytes that are spilled and of its stack."""

    registers: int
    spilled: int
    stack: int


def ptx_of(texts: Sequence[KernelText], machine: Machine, name: str) -> str:
    """Return the PTX of kernels for a machine; ``name`` stands in the error if LLVM refuses them."""
    generator = _generator(machine)
    module = parsed(f'target triple = "{TRIPLE}"\n\n{joined(texts)}', name)
    module.data_layout = str(generator.target_data)
    _optimise(module, generator)
    return str(generator.emit_assembly(module))


def joined(texts: Sequence[KernelText]) -> str:
    """Return the text of several modules, what they all declare once."""
    declared: dict[str, None] = {}
    functions: list[str] = []
    for text in texts:
        for part in re.split(r"\n(?=define |declare |@)", text.text):
            stripped = part.strip("\n")
            if stripped.startswith("define ") and "@graft." not in stripped.partition("(")[0]:
                functions.append(stripped)
            elif stripped:
                declared.setdefault(stripped)
    return "\n".join((*functions, *declared, ""))


def parsed(text: str, name: str) -> Any:
    """Return LLVM's module of a text; raise CompileError if it refuses."""
    try:
        return llvm.parse_assembly(text, context=llvm.create_context())
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the code of '{name}': {error}", function=name) from error


@cache
def _generator(machine: Machine) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{name}" for name in sorted(machine.features))
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=machine.cpu, features=features, opt=3)


def _optimise(module: Any, machine: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@cache
def assembler() -> Path | None:
    """Return `ptxas`: of NVIDIA's wheels, or on the path; None if there is none."""
    for found in installed("*/bin/ptxas"):
        return found
    path = shutil.which("ptxas")
    return None if path is None else Path(path)


def assembles() -> bool:
    """Return whether cubins can be made here."""
    return assembler() is not None or jit_link.library() is not None


def cubin_of(ptx: str, machine: Machine, name: str) -> bytes:
    """Return the cubin of PTX, by ptxas or else by nvJitLink; raise CompileError with what they say if they refuse."""
    return jit_link.linked(ptx, machine, name) if assembler() is None else assembled(ptx, machine, name)[0]


def assembled(ptx: str, machine: Machine, name: str) -> tuple[bytes, dict[str, Used]]:
    """Return the cubin of PTX, and what each kernel takes; raise CompileError with what ptxas says if it refuses."""
    tool = assembler()
    if tool is None:
        raise CompileError(f"there is no ptxas to assemble '{name}' with; {INSTALL}")
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        source, cubin = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        write(source, ptx, "the code for ptxas", CompileError)
        command = [str(tool), "-v", f"-arch={machine.cpu}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise CompileError(f"ptxas refused the code of '{name}': {said}", function=name)
        return cubin.read_bytes(), {one["name"]: _used(one) for one in _USED.finditer(done.stderr + done.stdout)}


def _used(found: re.Match[str]) -> Used:
    return Used(int(found["registers"]), int(found["stores"]) + int(found["loads"]), int(found["stack"]))


def versions() -> str:
    """Return the versions of what makes code."""
    import llvmlite

    tool = assembler()
    said = (
        ""
        if tool is None
        else subprocess.run([str(tool), "--version"], capture_output=True, text=True, check=False).stdout
    )
    found = re.search(r"V([\d.]+)", said)
    own = f", ptxas {found[1]}" if found else f", {jit_link.version() or 'no ptxas'}"
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}{own}"
