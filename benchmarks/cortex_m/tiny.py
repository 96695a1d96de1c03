"""The models of MLPerf Tiny on an emulated Cortex-M4: instructions, memory and code.

    python -m benchmarks.cortex_m.tiny [model ...]               in 8-bit integers, or with --float32
    python -m benchmarks.cortex_m.tiny --indices --flags=-O3 --flags=-Os     with indices of 64 bits and of 32
    python -m benchmarks.cortex_m.tiny --soft                    without the unit for floats

Each is written as a bare-metal C project, compiled with arm-none-eabi-gcc, and run in QEMU's mps2-an386 with the
harness in examples/deploy/cortex_m, which compares its output with that of the built-in compiler on this machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import graft
from benchmarks.zoo import TINY, model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.rows import THUMBV7EM
from graft.core.shapes.sample_inputs import sample_inputs
from graft.plugins.c_source.backend import CBackend
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project
from graft.runtime.procedure import ProgramDescription

MOST_WORDS = 8
"""Arguments that the harness forwards by default."""
HARNESS = Path(__file__).parents[2] / "examples" / "deploy" / "cortex_m"
NEEDED = {"qemu-system-arm": "qemu-system-arm", "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi"}
"""Commands, and the Debian packages that they are of."""
INSTRUCTIONS_A_TICK = 40
"""An instruction takes a nanosecond; the board's timer counts at 25 MHz."""
SOFT = "CPU=-mcpu=cortex-m4 -mthumb -mfloat-abi=soft"
LIMIT = 300
"""Seconds that a run may take."""
_SECTION = re.compile(r"^ \.(?!ARM\.attributes)(\w+)\S*\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run of one model took; memory in bytes. ``rest`` is code that is neither kernel, check nor board."""

    passed: bool
    instructions: int
    arena: int
    stack: int
    weights: int
    kernels: int
    rest: int


def missing() -> str:
    """Return what has to be installed, "" if nothing."""
    packages = [package for command, package in NEEDED.items() if shutil.which(command) is None]
    return f"needs Debian's {' '.join(packages)}" if packages else ""


def measured(
    name: str,
    folder: Path,
    *,
    precision: str = "int8_",
    flags: str = "-O3",
    soft: bool = False,
    without: Collection[str] = (),
    **options: bool,
) -> Measured:
    """Write the project of a model to a folder, run it on the board and return what it took.

    ``precision`` is "int8_", or "" for 32-bit floats; ``flags`` are the compiler's, ``options`` the backend's. With
    ``soft`` functions of the compiler compute floats.

    Raise RuntimeError with its output where it does not run.
    """
    source, short = model(precision + name), name.removeprefix("tiny_")
    feeds = sample_inputs(source)
    wanted = graft.compile(source, ["llvm"], threads=1)(**feeds)
    request = Request([CBackend(compiles=False, **options)], threads=1, target=THUMBV7EM.name, without=without)
    description = compile_model(source, request).description
    return run_on_board(description, Recorded(list(feeds.values()), [wanted]), short, folder, flags, soft)


def run_on_board(
    description: ProgramDescription,
    recorded: Recorded,
    short: str,
    folder: Path,
    flags: str = "-O3",
    soft: bool = False,
) -> Measured:
    """Write the project of a program to a folder, run it on the board and return what it took.

    Raise RuntimeError with its output where it does not run.
    """
    written = export_c_project(description, folder / short, recorded, name=short, profile="bare-metal")
    build, words = folder / "build", len(recorded.inputs) + len(recorded.outputs) + 1
    command = [
        "make",
        "--silent",
        "-C",
        str(HARNESS),
        f"PROJECT={written.path}",
        f"MODEL={short}",
        f"BUILD={build}",
        f"CFLAGS={flags}",
        *([f"WORDS={words}"] if words > MOST_WORDS else []),
        *([SOFT] if soft else ()),
    ]
    outcome = subprocess.run([*command, "run"], capture_output=True, text=True, timeout=LIMIT)
    found = dict(line.split() for line in outcome.stdout.splitlines() if line.startswith(("ticks ", "stack ")))
    if not found:
        raise RuntimeError(f"{short} did not run: {outcome.stdout}{outcome.stderr}")
    sizes = code_sizes((build / f"{short}.elf.map").read_text())
    board = ("board.o", "board_main.o", "startup.o", f"{short}_check.o", f"{short}_weights.o", f"{short}_kernels.o")
    rest = sum(size for file, size in sizes.items() if file not in board)
    return Measured(
        outcome.returncode == 0, int(found["ticks"]) * INSTRUCTIONS_A_TICK, written.arena_bytes, int(found["stack"]),
        written.weight_bytes, sizes[f"{short}_kernels.o"], rest,
    )  # fmt: skip


def code_sizes(linker_map: str) -> dict[str, int]:
    """Return the bytes of code and read-only data of each object file or member of an archive that a linker kept."""
    sizes: dict[str, int] = {}
    for section, size, path in _SECTION.findall(linker_map.partition("Linker script and memory map")[2]):
        if section in ("text", "rodata", "vectors", "data", "ARM"):
            file = re.split(r"[/(]", path.rstrip(")"))[-1]
            sizes[file] = sizes.get(file, 0) + int(size, 16)
    return sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=TINY)
    parser.add_argument("--flags", action="append", help="The compiler's; once for each row.")
    parser.add_argument("--indices", action="store_true")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--soft", action="store_true")
    options = parser.parse_args(arguments)
    if reason := missing():
        sys.exit(reason)
    heads = ["Instructions", "Arena", "Stack", "Weights", "Kernels", "Other code", "Output"]
    narrow, precision = (False, True) if options.indices else (False,), "" if options.float32 else "int8_"
    print("| Model | Flags | Indices |", *(f"{head} |" for head in heads))
    print("|---|---|---:|" + "---:|" * (len(heads) - 1) + "---|")
    for name, flags, is_narrow in product(options.models, options.flags or ["-O3"], narrow):
        with TemporaryDirectory() as folder:
            one = measured(
                name, Path(folder), precision=precision, flags=flags, soft=options.soft, narrow_indices=is_narrow
            )
        numbers = [one.instructions, one.arena, one.stack, one.weights, one.kernels, one.rest]
        shown = " | ".join(f"{number:,}" for number in numbers)
        print(
            f"| {name} | {flags} | {32 if is_narrow else 64} | {shown} | {'equal' if one.passed else 'differs'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
