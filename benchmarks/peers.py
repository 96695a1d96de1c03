"""Latency of whole models beside ONNX Runtime, in turns in one run.

    python -m benchmarks.peers [MODEL ...] [--threads 1,2] [--backends onednn,llvm] [--seconds 4]

Prints a Markdown table: the median latency of each, and the median of ours / theirs round by round. ``error`` is the
largest absolute difference to ONNX Runtime, relative to the largest output.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from time import perf_counter

import numpy as np

import graft
from benchmarks.zoo import NAMES, model
from graft.benchmark import measure, peer, program_run
from graft.core.sample_inputs import sample_inputs


def machine() -> str:
    """Return one line about this machine and the versions that matter."""
    import llvmlite
    import onnxruntime

    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), name)
    versions = f"graft {graft.__version__}, onnxruntime {onnxruntime.__version__}, llvmlite {llvmlite.__version__}"
    return f"{name}, {os.cpu_count()} processors, Python {platform.python_version()}, {versions}"


def row(name: str, threads: int, backends: list[str], seconds: float) -> str:
    """Measure one model and return its table row."""
    source = model(name)
    feeds = sample_inputs(source)
    started = perf_counter()
    program = graft.compile(source, backends, threads=threads)
    compiled = perf_counter() - started
    theirs = peer("onnxruntime", source, feeds, threads)
    expected = np.asarray(theirs()[0])  # type: ignore[index]
    actual = program.run(feeds)[program.outputs[0].name]
    error = float(np.max(np.abs(actual - expected)) / max(1e-30, float(np.max(np.abs(expected)))))
    ours, other = measure({"graft": program_run(program, feeds), "onnxruntime": theirs}, seconds)
    return (
        f"| {name} | {threads} | {ours.median_ms:.2f} | {other.median_ms:.2f} | {ours.ratio:.2f} | {error:.1e} "
        f"| {compiled:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(NAMES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--backends", default="llvm")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    print(machine(), f"backends {options.backends}", sep="; ")
    print(
        "\n| model | threads | graft ms | onnxruntime ms | ratio | error | compile s |\n|---|---|---|---|---|---|---|"
    )
    for name in options.models:
        for threads in map(int, options.threads.split(",")):
            print(row(name, threads, options.backends.split(","), options.seconds), flush=True)


if __name__ == "__main__":
    sys.exit(main())
