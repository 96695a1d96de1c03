"""Products and convolutions for AVX2 beside oneDNN held to AVX2: ``python -m benchmarks.schedules.avx2 [--threads N]``.

Ours is the target ``x86-64-v3`` of the built-in compiler, whatever the machine has; oneDNN runs under
``ONEDNN_MAX_CPU_ISA=AVX2``, which a first process confirms by ``ONEDNN_VERBOSE=1``. Both run in turns in one process;
the best of each counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # read once, when the library is loaded

import graft
from benchmarks.kernels import CASES, Case
from benchmarks.peers import best_turns


def library_line() -> str:
    """Return what oneDNN says of the instruction set that it uses, in a process of its own."""
    name = next(case.name for case in CASES if not case.dot)
    command = [sys.executable, "-m", "benchmarks.schedules.avx2", "--once", name]
    environment = {**os.environ, "ONEDNN_VERBOSE": "1"}
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line for line in lines if "isa" in line.lower())


def theirs(case: Case, threads: int) -> graft.Program:
    """Return a case compiled for oneDNN alone."""
    return graft.compile(case.model, ["onednn"], threads=threads, strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the names of the kernels to run")
    parser.add_argument("--once", help="run one kernel in oneDNN, and nothing else")
    arguments = parser.parse_args()
    if arguments.once:
        case = next(case for case in CASES if case.name == arguments.once)
        theirs(case, 1).run(case.inputs())
        return
    print(f"{library_line()}; {arguments.threads} thread(s)\n")
    print("| kernel | G operations/s | oneDNN, AVX2 | ratio of times |\n|---|---:|---:|---:|")
    for case in CASES:
        if case.dot or arguments.only not in case.name:
            continue
        inputs = case.inputs()
        programs = (
            graft.compile(
                case.model, ["llvm"], target="x86-64-v3", threads=arguments.threads, strict=True, tuned=False
            ),
            theirs(case, arguments.threads),
        )
        own, peer = best_turns([partial(program.run, inputs) for program in programs])
        print(f"| {case.name} | {case.flops / own / 1e9:.1f} | {case.flops / peer / 1e9:.1f} | {own / peer:.2f} |")


if __name__ == "__main__":
    main()
