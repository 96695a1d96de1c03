"""Every operator by itself, against ONNX Runtime and the machine: ``python -m benchmarks.operators [OPERATOR ...]``.

Every row is one small model at one of three sizes (`benchmarks.families.operator_cases`). Ours and the peer's are
called again and again, in turns of some calls each, with everything in the caches that fits there; a row says the best
turn of each. *of the limit* is the least time that the machine allows, for the operations that the table of operators
counts or for reading and writing each byte once, by the time taken; the machine is measured in the same run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.families.operator_cases import CASES, REASONS, Shape, model_of
from graft.core.model.sample_inputs import sample_inputs
from graft.core.model.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.measure.latency import program_run
from graft.measure.peers.peer_table import installed, peer
from graft.measure.roofline import Roofline, measure_roofline

TURNS = 6
LEAST = 0.3
"""The share of the limit below which a row says why."""
SHORT = 6.0
"""Microseconds of a call in which entering it shows."""


def best_turns(runs: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Return the least seconds per call of each, in turns that share ``seconds``."""
    counts = []
    for run in runs:
        run()
        started = perf_counter()
        run()
        counts.append(max(1, int(seconds / TURNS / len(runs) / max(1e-7, perf_counter() - started))))
    best = [math.inf] * len(runs)
    for _ in range(TURNS):
        for number, (run, count) in enumerate(zip(runs, counts, strict=True)):
            started = perf_counter()
            for _ in range(count):
                run()
            best[number] = min(best[number], (perf_counter() - started) / count)
    return best


def limit(model: ir.Model, moved: int, roofline: Roofline) -> float:
    """Return the least seconds that a model of one node takes."""
    rows = [(OPERATORS.of(node), node) for node in map(NodeView, model.graph)]
    flops = sum(found.cost(node).flops for found, node in rows if found is not None and found.cost is not None)
    return max(flops / roofline.flops, moved / roofline.bytes_per_second(moved))


def row(operator: str, shape: Shape, seconds: float, roofline: Roofline, *, against: bool) -> tuple[float, ...]:
    """Return microseconds, the share of the limit, the peer's microseconds (else NaN), and seconds of compiling."""
    source = graft.load(model_of(operator, shape))
    feeds = sample_inputs(source)
    started = perf_counter()
    program = graft.compile(source, threads=1, cache=False)
    compiled = perf_counter() - started
    runs = [program_run(program, feeds)]
    if against:
        try:
            runs.append(peer("onnxruntime", source, feeds, 1))
        except Exception as error:  # it has no kernel for some types
            print(f"onnxruntime cannot run {operator}: {error}"[:200])
    times = best_turns(runs, seconds)
    results = runs[0]()
    outputs = results if isinstance(results, list | tuple) else [results]
    constants = [one.const_value for one in source.graph.initializers.values() if one.const_value is not None]
    moved = sum(np.asarray(one).nbytes for one in (*feeds.values(), *outputs)) + sum(one.nbytes for one in constants)
    least = limit(source, moved, roofline)
    return 1e6 * times[0], least / times[0], 1e6 * times[1] if len(times) > 1 else math.nan, compiled


def reason(operator: str, share: float, microseconds: float) -> str:
    """Return why a row is far from the limit, "" where it is not or nothing is known."""
    if share >= LEAST:
        return ""
    return "entering the program takes as long" if microseconds < SHORT else REASONS.get(operator, "")


def main() -> None:
    """Print the table, what is behind the peer, and the median time of compiling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", default=sorted(CASES))
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    roofline = measure_roofline()
    figures = ", ".join(f"{size >> 10} KiB {rate / 1e9:.0f}" for size, rate in roofline.bandwidth)
    print(f"one core: {roofline.flops / 1e9:.0f} GFLOP/s; GB/s of {figures}\n")
    print("| operator | shape | µs | of the limit | onnxruntime µs | ratio | compile ms | why |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    compiled, ratios = [], []
    for operator in options.operators:
        for shape in CASES[operator][1]:
            ours, share, theirs, seconds = row(
                operator, shape, options.seconds, roofline, against=installed("onnxruntime")
            )
            print(
                f"| {operator} | {'x'.join(map(str, shape))} | {ours:.1f} | {share:.0%} | {theirs:.1f} | "
                f"{ours / theirs:.2f} | {1e3 * seconds:.0f} | {reason(operator, share, ours)} |",
                flush=True,
            )
            compiled.append(1e3 * seconds)
            ratios += [] if math.isnan(theirs) else [ours / theirs]
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    behind = sum(one > 1 for one in ratios)
    print(f"\n{len(compiled)} rows; of onnxruntime: geometric mean {mean:.2f}, {behind} behind; ", end="")
    print(f"compiling: median {np.median(compiled):.0f} ms")


if __name__ == "__main__":
    main()
