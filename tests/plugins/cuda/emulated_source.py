"""The printed CUDA C compiled for this machine: the text that NVRTC gets, with the emulator's threads and barriers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Barrier, Buffer, CallExtern, Function
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import element_bits
from graft.plugins.cuda.backend import CudaEmulator
from graft.plugins.cuda.emulated_image import emulator_object
from graft.plugins.cuda.image import FunctionRow, Image, function_row
from graft.plugins.cuda.launches import Launch, launches_of
from graft.plugins.cuda.source.expressions import PRELUDE
from graft.plugins.cuda.source.kernels import KernelC, kernel_c, source_text

FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-DGRAFT_EMULATED", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]


class EmulatedSource(CudaEmulator):
    """The emulator's backend, whose kernels are the text of `cuda_source`; every text is kept."""

    name = "cuda_emulator"
    texts: ClassVar[list[str]] = []

    def _compiled(self, functions: Sequence[Function], target: Target) -> tuple[list[Image], list[FunctionRow]]:
        texts: list[KernelC] = []
        rows, entries = [], []
        for function in functions:
            launches = launches_of(function)
            own = [kernel_c(one, function, target) for one in launches.launches]
            rows.append(
                function_row(launches, {one.name: c.shared for one, c in zip(launches.launches, own, strict=True)})
            )
            entries += [_entry(one, c.shared) for one, c in zip(launches.launches, own, strict=True)]
            texts += own
        text = source_text(texts)
        type(self).texts.append(text)
        return [Image(target.machine.name, "emulated", _linked("\n".join([text, HEAD, *entries])))], rows


HEAD = """
extern "C" {
void graft_emulator_begin(const char *name);
void graft_emulator_end(void);
void graft_emulator_buffer(const void *begin, int64_t bytes);
void graft_emulator_run(void (*run)(void **), const int64_t *grid, const int64_t *block, void **args, int64_t shared);
}"""


def _entry(launch: Launch, shared: int) -> str:
    """What launches a kernel: it tells the emulator of the buffers and lets it run the threads."""
    waits = shared or any(
        isinstance(one, Barrier | CallExtern) for one in walk_statements(launch.body)
    )  # who waits needs contexts
    values = [f"*(char **)args[{number}]" for number in range(len(launch.buffers))]
    given = [f"(decltype(argument_of<{number}>({launch.name})))({value})" for number, value in enumerate(values)]
    extents = {one: f"*(int32_t *)args[{len(values) + number}]" for number, one in enumerate(launch.extents)}
    name = launch.name
    lines = [f"static void {name}_run(void **args) {{ {name}({', '.join([*given, *extents.values()])}); }}"]
    parameters = "const int64_t *grid, const int64_t *block, void **args"
    lines.append(f'void {name}_launch({parameters}) __asm__("{name}");')
    lines.append(f"void {name}_launch({parameters}) {{")
    lines.append(f'  graft_emulator_begin("{name}");')
    for value, buffer in zip(values, launch.buffers, strict=True):
        lines.append(f"  graft_emulator_buffer({value}, {_bytes(buffer, extents)});")
    lines += [f"  graft_emulator_run({name}_run, grid, block, args, {shared if waits else -1});"]
    return "\n".join([*lines, "  graft_emulator_end();", "}"])


def _bytes(buffer: Buffer, extents: dict) -> str:
    from graft.plugins.codegen.c_expressions import ExpressionWriter

    writer = ExpressionWriter("size")
    writer.variables = dict(extents)
    return " * ".join([str(element_bits(buffer.dtype) // 8), *(writer.index(one) for one in buffer.shape)])


ARGUMENT = """
template <int NUMBER, class First, class... Rest> struct Argument : Argument<NUMBER - 1, Rest...> {};
template <class First, class... Rest> struct Argument<0, First, Rest...> { typedef First type; };
template <int NUMBER, class... Types> typename Argument<NUMBER, Types...>::type argument_of(void (*)(Types...));
"""


def _linked(text: str) -> bytes:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to run the text with")
    with TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(text.replace(HEAD, ARGUMENT + HEAD), encoding="utf-8")
        emulator = emulator_object()
        command = [
            compiler,
            *FLAGS,
            f"-I{PRELUDE.parent}",
            str(source),
            str(emulator),
            "-o",
            str(made),
            "-lm",
            "-lpthread",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stderr[:4000]}\n{text}"
        return made.read_bytes()
