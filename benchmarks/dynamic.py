"""Programs of any shape beside static ones of the same shapes and other runtimes, in turns in one run.

    python -m benchmarks.dynamic [MODEL ...] [--reduced] [--count 20] [--batches 1] [--threads 1] [--backends llvm]
                                 [--against onnxruntime,openvino] [--seconds 1] [--markdown] [--images]

For each of ``--count`` lengths (of batches, where a model has no length) that nobody said when the symbolic program was
compiled: the median latency of the symbolic program, of a program compiled for this length, and of peers with dynamic
shapes. ``of static`` and ``of best`` are our time by theirs, round by round; ``first`` is what the first call with a
shape takes beyond the median of later ones, of a program that has run before. With ``--reduced``, one layer of each
kind is measured. At the end, by model, the geometric mean and the worst, and what compiling took. With ``--images``,
models of images get sizes instead of lengths.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import onnx
import onnx_ir as ir

import graft
from benchmarks.data.symbolic_zoo import BATCH, HEIGHT, IMAGES, LENGTH, WIDTH, dims, with_symbols
from benchmarks.peers import machine
from benchmarks.zoo import model
from graft.core.importer.load import load
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import Run, measure, program_run
from graft.measure.peers.peer_table import installed
from graft.measure.peers.runtimes import onnxruntime_call
from graft.runtime.program import Program

NAMES = ("bert_base", "distilbert", "gpt2", "vit_base", "whisper_tiny_encoder")
PEERS = ("onnxruntime", "openvino")
ROUNDS = 7
LATER = 5
"""Calls whose median the first one is compared with: of a busy machine's, the fastest says nothing of a single one."""
SIZES = 96, 320
"""The least and the greatest height or width of an image."""
WARMUP = """<ir_version: 10, opset_import: ["" : 20]> g (float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, x) }"""


@dataclass(frozen=True)
class Row:
    """What one shape took: milliseconds by contestant, ratios, and the first call beyond later ones."""

    shape: str
    milliseconds: Mapping[str, float]
    of_static: float
    of_best: float
    first: float


def bindings(name: str, count: int, batches: Sequence[int], images: bool) -> list[dict[str, int]]:
    """Return values of the symbols, lengths and sizes from a seed; without either there are as many batches."""
    if images:
        draw = random.Random(name)
        sizes = [{HEIGHT: draw.randint(*SIZES), WIDTH: draw.randint(*SIZES)} for _ in range(count)]
        return [{BATCH: batch, **size} for batch in batches for size in sizes]
    if LENGTH not in dims(name):
        return [{BATCH: number + 1} for number in range(count)]
    low, high = dims(name)[LENGTH]
    lengths = sorted(random.Random(name).sample(range(max(low, 4), high + 1), count))
    return [{BATCH: batch, LENGTH: length} for batch in batches for length in lengths]


def openvino(proto: onnx.ModelProto, threads: int) -> Callable[[Mapping[str, np.ndarray]], object]:
    """Return a call of OpenVINO, made once for every shape."""
    import io

    import openvino as peer

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = peer.Core().compile_model(peer.Core().read_model(io.BytesIO(proto.SerializeToString())), "CPU", settings)
    request = compiled.create_infer_request()
    return lambda feeds: request.infer(dict(feeds))


def timed(call: Run) -> float:
    """Return the milliseconds of one call."""
    started = perf_counter()
    call()
    return (perf_counter() - started) * 1e3


def compare(
    program: Program, static: Program, peers: Mapping[str, Callable[[Mapping[str, np.ndarray]], object]],
    binding: Mapping[str, int], feeds: Mapping[str, np.ndarray], seconds: float,
) -> Row:  # fmt: skip
    """Measure one shape: the first call and some that follow, then everyone in turns."""
    arrays = [feeds[one.name] for one in program.inputs]
    run: Run = lambda: program(*arrays)  # noqa: E731 - `program_run` would be the first call
    first = timed(run)
    later = median(timed(run) for _ in range(LATER))
    runs: dict[str, Run] = {"symbolic": run, "static": program_run(static, feeds)}
    for name, peer in peers.items():
        runs[name] = lambda peer=peer: peer(feeds)  # type: ignore[misc]
        runs[name]()
    rows = {row.name: row for row in measure(runs, seconds, minimum=ROUNDS)}
    best = min((rows[name] for name in peers), key=lambda row: row.median_ms, default=rows["static"])
    shape = "x".join(str(number) for number in binding.values())
    times = {name: row.median_ms for name, row in rows.items()}
    return Row(shape, times, rows["static"].ratio, best.ratio, first - later)


def compiled(source: onnx.ModelProto, options: argparse.Namespace, **more: object) -> tuple[Program, float]:
    """Return a program, and the seconds that it took."""
    started = perf_counter()
    program = graft.compile(
        source, options.backends, threads=options.threads, cache=False, tuned=False, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return program, perf_counter() - started


def source_of(name: str, reduced: bool) -> ir.Model:
    """Return a model of the suite, or one layer of each kind of it."""
    if not reduced:
        return model(name)
    from tests.plugins.c_source.reduced_models import reduced as one_layer

    return one_layer(name)


def measured(name: str, options: argparse.Namespace) -> None:
    """Print the rows of one model, and what they come to."""
    proto = with_symbols(name, source_of(name, options.reduced), images=options.images)
    compiled(onnx.parser.parse_model(WARMUP), options)  # what the first compilation loads is not this model's
    program, seconds = compiled(proto, options, dims=dims(name))
    makers = {"onnxruntime": onnxruntime_call, "openvino": openvino}
    peers = {peer: makers[peer](proto, options.threads) for peer in options.against}
    columns = ("model", "shape", "symbolic ms", "static ms", *(f"{peer} ms" for peer in peers), "of static", "of best",
               "first ms")  # fmt: skip
    print(line(columns, options.markdown), *(["|---" * len(columns) + "|"] if options.markdown else []), sep="\n")
    loaded, rows, apart = load(proto, dims=dims(name)), [], []
    program.run(
        sample_inputs(loaded)
    )  # what any program's first call does is no shape's: it touches memory and weights
    for binding in bindings(name, options.count, options.batches, options.images):
        static, each = compiled(proto, options, dims=binding)
        apart.append(each)
        row = compare(program, static, peers, binding, sample_inputs(loaded, dims=binding), options.seconds)
        rows.append(row)
        numbers = [f"{time:.2f}" for time in row.milliseconds.values()]
        of_best = f"{row.of_best:.2f}" if peers else "-"
        cells = (name, row.shape, *numbers, f"{row.of_static:.2f}", of_best, f"{row.first:.2f}")
        print(line(cells, options.markdown), flush=True)
    print(
        f"\n{name}: of static {summary([row.of_static for row in rows])}"
        + (f", of best {summary([row.of_best for row in rows])}" if peers else "")
        + f", first call at worst {max(row.first for row in rows):.2f} ms beyond later ones; "
        f"compiled in {seconds:.1f} s, {seconds / sorted(apart)[len(apart) // 2]:.2f} of a static program's\n"
    )


def summary(ratios: Sequence[float]) -> str:
    """Return the geometric mean and the worst."""
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} (worst {max(ratios):.2f})"


def line(cells: Sequence[str], markdown: bool) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cells) + " |" if markdown else " ".join(f"{cell:>14}" for cell in cells)


def main() -> None:
    """Print one table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--batches", default=[1], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backends", default=["llvm", "reference"], type=lambda text: text.split(","))
    parser.add_argument("--against", default=None, type=lambda text: text.split(",") if text else [])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if options.against is None:
        options.against = [name for name in PEERS if installed(name)]
    print(machine(options.against), end="\n\n")
    for name in options.models or (IMAGES if options.images else NAMES):
        measured(name, options)


if __name__ == "__main__":
    sys.exit(main())
