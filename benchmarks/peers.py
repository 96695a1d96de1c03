"""Latency and accuracy of whole models beside other runtimes, in turns in one run.

    python -m benchmarks.peers [MODEL ...] [--threads 1,2] [--backends llvm]
                               [--against onnxruntime,openvino,mnn,torch,iree,tvm]
                               [--seconds 4] [--precision bf16] [--tune SECONDS] [--markdown]

Prints the median latency of each in milliseconds (``-``: it cannot run the model); ``of best`` is the median, round by
round, of our time by that of the peer with the smallest median. ``error`` is the largest difference to the same model
computed in float64 by Graft, relative to the largest output. All compute in float32, with ``--precision bf16`` we and
OpenVINO in bfloat16; for models of 8-bit integers
(int8_...) the difference is to the float model that they were made from.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from time import perf_counter

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.zoo import NAMES, QUANTIZED, model
from graft.compiler.driver import prepare
from graft.core.machine.target import PRECISIONS
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import measure, program_run
from graft.measure.peers.peer_table import COMPARE, PACKAGES, Run, installed, peer

ROUNDS = 30


def best_turns(runs: Sequence[Callable[[], object]], seconds: float = 0.6, turns: int = 15) -> list[float]:
    """Return the least seconds per call of each, in turns that share ``seconds``: all see the same machine."""
    counts = []
    for run in runs:
        run()
        started = perf_counter()
        run()
        counts.append(max(1, int(seconds / turns / len(runs) / max(1e-7, perf_counter() - started))))
    best = [math.inf] * len(runs)
    for _ in range(turns):
        for number, (run, count) in enumerate(zip(runs, counts, strict=True)):
            started = perf_counter()
            for _ in range(count):
                run()
            best[number] = min(best[number], (perf_counter() - started) / count)
    return best


def machine(peers: Sequence[str]) -> str:
    """Return one line about this machine and the versions that matter."""
    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), name)
    packages = ("llvmlite", *(package for one in peers for package in PACKAGES[one]))
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    python = platform.python_version()
    return f"{name}, {os.cpu_count()} processors, Python {python}, graft {graft.__version__}, {versions}"


def in_float64(source: ir.Model) -> ir.Model:
    """Return a model, normalised, with float64 in place of float32 everywhere."""
    wide = prepare(source)
    for graph in wide.graphs():
        for value in ir.convenience.create_value_mapping(graph).values():
            if value.dtype is ir.DataType.FLOAT:
                value.type = ir.TensorType(ir.DataType.DOUBLE)  # a clone shares its types with the original
            if value.const_value is not None and value.const_value.dtype is ir.DataType.FLOAT:
                value.const_value = ir.tensor(value.const_value.numpy().astype(np.float64), name=value.name)
        for node in graph:
            for name, attribute in node.attributes.items():
                if attribute.type is ir.AttributeType.TENSOR and attribute.as_tensor().dtype is ir.DataType.FLOAT:
                    contents = ir.tensor(attribute.as_tensor().numpy().astype(np.float64))
                    node.attributes[name] = ir.AttrTensor(name, contents)
                elif node.op_type == "Cast" and name == "to" and attribute.as_int() == ir.DataType.FLOAT:
                    node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.DOUBLE))
    return wide


def reference(source: ir.Model, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a model computed in float64."""
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feeds.items()}
    program = graft.compile(in_float64(source), ["llvm", "reference"])
    results = program.run(wide)
    return [results[one.name] for one in program.outputs]


def error(found: object, expected: Sequence[np.ndarray]) -> float:
    """Return the largest difference, relative to the largest number of the output that it is in."""
    arrays = list(found) if isinstance(found, list | tuple) else [found]
    rows = zip(arrays, expected, strict=True)
    return max(float(np.max(np.abs(a - e)) / max(1e-30, float(np.max(np.abs(e))))) for a, e in rows)


class Table:
    """Rows as they come, in Markdown or aligned."""

    def __init__(self, peers: Sequence[str], markdown: bool) -> None:
        names = ("graft", *peers)
        self._markdown = markdown
        self._columns = ("model", "threads", *(f"{name} ms" for name in names), "of best",
                         *(f"{name} error" for name in names), "compile s")  # fmt: skip
        self.row(*self._columns)
        if markdown:
            print("|---|" + "---:|" * (len(self._columns) - 1))

    def row(self, *cells: str) -> None:
        """Print a row."""
        if self._markdown:
            print("| " + " | ".join(cells) + " |", flush=True)
            return
        widths = [22, *(max(9, len(column)) for column in self._columns[1:])]
        first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        print(" ".join((first.strip().ljust(widths[0]), *rest)), flush=True)


def compare(
    name: str, threads: int, options: argparse.Namespace, expected: Sequence[np.ndarray], table: Table
) -> float:
    """Measure one model, print its row, and return our time relative to that of the best peer."""
    source = model(name)
    feeds = sample_inputs(source)
    started = perf_counter()
    program = graft.compile(
        source, options.backends, threads=threads, precision=options.precision, cache=False,
        tune=options.tune or False, tuned=options.tune > 0,
    )  # fmt: skip
    compiled = perf_counter() - started
    runs = {"graft": program_run(program, feeds)}
    able = {one: _able(one, source, feeds, threads, options.precision) for one in options.against}
    runs |= {one: run for one, run in able.items() if run is not None}
    errors = {one: f"{error(run(), expected):.0e}" for one, run in runs.items()}
    rows = {row.name: row for row in measure(runs, options.seconds, minimum=ROUNDS)}
    best = min(list(rows.values())[1:] or rows.values(), key=lambda row: row.median_ms)
    names = ("graft", *options.against)
    table.row(
        name, str(threads), *(f"{rows[one].median_ms:.2f}" if one in rows else "-" for one in names),
        f"{best.ratio:.2f}", *(errors.get(one, "-") for one in names), f"{compiled:.1f}",
    )  # fmt: skip
    return best.ratio


def _able(name: str, source: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, precision: str) -> Run | None:
    """Return a peer's call, or None where it cannot run the model (on standard error it says why)."""
    try:
        run = peer(name, source, feeds, threads, precision)
        run()
    except Exception as fault:
        print(f"{name} cannot run it: {fault}", file=sys.stderr)
        return None
    return run


def main() -> None:
    """Print the table and the geometric mean of the ratios, by number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*NAMES, *QUANTIZED])
    parser.add_argument("--threads", default=[1, 2], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--backends", default=["llvm"], type=lambda text: text.split(","))
    parser.add_argument(
        "--against", default=[name for name in COMPARE if installed(name)], type=lambda text: text.split(",")
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--tune", type=float, default=0.0, help="seconds of tuning before; untuned by default")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    print(machine(options.against), f"backends {','.join(options.backends)}", sep="; ", end="\n\n")
    table = Table(options.against, options.markdown)
    ratios: dict[int, list[float]] = {threads: [] for threads in options.threads}
    for name in options.models:
        expected = reference(model(QUANTIZED.get(name, name)), sample_inputs(model(name)))
        for threads in options.threads:
            ratios[threads].append(compare(name, threads, options, expected, table))
    print()
    for threads, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{threads} thread{'' if threads == 1 else 's'}: geometric mean of the ratios {mean:.2f}")


if __name__ == "__main__":
    sys.exit(main())
