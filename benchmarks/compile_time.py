"""Time of compiling, of compiling again with the kernels of the first time, of loading; size; memory while running.

    python -m benchmarks.compile_time [MODEL ...]
    python -m benchmarks.compile_time --operators [OPERATOR ...]

The second form compiles the one-node models of `benchmarks.families.operator_cases`, in turns and without a cache. Of
each operator it prints the median over its shapes of the least time, and last the median over all models. CPU time is
that of all threads; where other programs keep the processor busy, it says more than the clock.

In the first form each figure comes from a process of its own; the kernels are kept in a directory of this run. Peak
memory is what the process has at most resident while it loads and runs the model, less what it has after its imports;
the peer is ONNX Runtime, which reads the same model. Times are wall clock: take them on a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

TURNS = 3
"""How often each one-node model is compiled."""
DEFAULT = ("light_resnet50", "light_densenet121", "bert_base", "mobilenet_v2")


def compiled(name: str, artifact: str) -> dict[str, float]:
    """Compile and save a model; return seconds."""
    from benchmarks.zoo import model
    from graft.compiler.api import compile_model
    from graft.compiler.request import Request
    from graft.runtime.artifact import save

    source = model(name)
    started = perf_counter()
    result = compile_model(source, Request(["llvm"], threads=1))
    seconds = perf_counter() - started
    save(result.description, artifact)
    return {"seconds": seconds, "bytes": Path(artifact).stat().st_size}


def loaded(artifact: str) -> dict[str, float]:
    """Load and run an artifact; return seconds of loading and bytes at most resident."""
    import numpy as np

    from graft.runtime import load
    from graft.runtime.dtypes import numpy_dtype

    before = _peak()
    started = perf_counter()
    program = load(artifact, threads=1)
    seconds = perf_counter() - started
    arrays = [np.zeros(one.shape, numpy_dtype(one.dtype)) for one in program.inputs]
    program(*arrays)
    return {"seconds": seconds, "bytes": _peak() - before}


def saved(name: str, path: str) -> dict[str, float]:
    """Write a model with its weights for the peer."""
    import onnx_ir as ir

    from benchmarks.zoo import model

    Path(path).write_bytes(ir.to_proto(model(name)).SerializeToString())
    return {}


def peer(path: str) -> dict[str, float]:
    """Load and run a model in ONNX Runtime; return as `loaded` does."""
    import numpy as np
    import onnxruntime

    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    before = _peak()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    started = perf_counter()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    seconds = perf_counter() - started
    session.run(None, {one.name: np.zeros(one.shape, kinds[one.type]) for one in session.get_inputs()})
    return {"seconds": seconds, "bytes": _peak() - before}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


STEPS = {"compiled": compiled, "loaded": loaded, "saved": saved, "peer": peer}


def apart(folder: str, *arguments: str) -> dict[str, float]:
    """Take a step in a process of its own; return what it returned."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--step", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def row(name: str) -> str:
    """Measure one model and return its table row."""
    with tempfile.TemporaryDirectory() as folder:
        artifact, onnx = str(Path(folder) / "model.graft"), str(Path(folder) / "model.onnx")
        first, second = (apart(folder, "compiled", name, artifact) for _ in range(2))
        ours = apart(folder, "loaded", artifact)
        apart(folder, "saved", name, onnx)
        theirs = apart(folder, "peer", onnx)
    return (
        f"| {name} | {first['seconds']:.1f} | {second['seconds']:.1f} | {1e3 * ours['seconds']:.0f} | "
        f"{1e3 * theirs['seconds']:.0f} | {first['bytes'] / 2**20:.0f} | {ours['bytes'] / 2**20:.0f} | "
        f"{theirs['bytes'] / 2**20:.0f} |"
    )


def operators(names: Sequence[str]) -> None:
    """Print how long one-node models take to compile: the least of `TURNS` times, by operator and over all."""
    import graft
    from benchmarks.families.operator_cases import CASES, model_of

    def seconds(source: ir.Model) -> tuple[float, float]:
        cpu, wall = process_time(), perf_counter()
        graft.compile(source, threads=1, cache=False)
        return perf_counter() - wall, process_time() - cpu

    graft.compile(model_of("Relu", (8,)), threads=1, cache=False)  # what is made once in a process
    print("| operator | compile ms | CPU ms |\n|---|---:|---:|")
    every: list[tuple[float, float]] = []
    for name in names or sorted(CASES):
        sources = [graft.load(model_of(name, shape)) for shape in CASES[name][1]]
        turns = [[seconds(source) for source in sources] for _ in range(TURNS)]
        least = [(min(wall for wall, _ in one), min(cpu for _, cpu in one)) for one in zip(*turns, strict=True)]
        every += least
        print(f"| {name} | {_medians(least)} |", flush=True)
    print(f"| median of {len(every)} models | {_medians(every)} |")


def _medians(times: Sequence[tuple[float, float]]) -> str:
    return " | ".join(f"{1e3 * median(column):.1f}" for column in zip(*times, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(DEFAULT))
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--operators", nargs="*", help="compile models of one node, of all operators by default")
    options = parser.parse_args()
    if options.operators is not None:
        operators(options.operators)
        return
    if options.step:
        step, *arguments = options.step
        print(json.dumps(STEPS[step](*arguments)))
        return
    print("| model | cold s | again s | load ms | onnxruntime ms | artifact MiB | memory MiB | onnxruntime MiB |")
    print("|---|" + "---:|" * 7)
    for name in options.models:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
