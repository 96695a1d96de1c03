"""One step of decoding with a cache, beside ONNX Runtime with the same model, in turns in one run.

    python -m benchmarks.decode [llama llama_4bit gpt2] [--lengths 128,512,1024] [--layers 4] [--threads 1]
                                [--seconds 6] [--markdown]

The models have seeded random weights and the widths of TinyLlama 1.1B (2048, 32 heads, 4 of keys and values) and of
GPT-2 small (768, 12 heads); that with weights of 4 bits is of MatMulNBits and GroupQueryAttention. A step takes one
token. ``bound`` is `Program.bind`, whose caches grow in place, ``plain`` a call that gets its caches and returns new
ones, as ONNX Runtime does. ``of peer`` is the median, round by round, of the time of a bound step by that of ONNX
Runtime, ``of plain`` by that of a plain call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

import numpy as np
import onnx

import graft
from benchmarks.peers import machine
from examples.decoders.models import Config, gpt2, llama
from examples.decoders.weight_only import llama_4bit
from graft.measure.latency import Run, measure
from graft.measure.peers.runtimes import onnxruntime_call
from graft.runtime.program import Program

CHUNK = 128
"""Tokens of the text that fills the caches, for each call."""
LLAMA = Config(width=2048, heads=32, kv_heads=4, inner=5632, vocabulary=32000, positions=2048)
MODELS: Mapping[str, tuple[Callable[[Config], onnx.ModelProto], Config]] = {
    "llama": (llama, LLAMA),
    "llama_4bit": (llama_4bit, LLAMA),
    "gpt2": (gpt2, Config(width=768, heads=12, inner=3072, vocabulary=50257, positions=2048)),
}


def cells(
    program: Program, peer: Callable[[Mapping[str, np.ndarray]], object], length: int, seconds: float
) -> list[str]:
    """Measure steps behind so many tokens: the bound program's, those of plain calls, and the peer's."""
    random, bound = np.random.default_rng(0), program.bind()
    for begin in range(0, length, CHUNK):
        bound(random.integers(0, 1000, (1, min(CHUNK, length - begin))))
    token = np.array([[7]], np.int64)
    feeds = {"ids": token, **{name: np.ascontiguousarray(array) for name, array in bound.state.items()}}
    runs: dict[str, Run] = {
        "bound": lambda: bound(token), "plain": lambda: program.run(feeds), "onnxruntime": lambda: peer(feeds),
    }  # fmt: skip
    rows = {row.name: row for row in measure(runs, seconds)}
    times = [f"{row.median_ms:.2f}" for row in rows.values()]
    return [str(length), *times, f"{rows['onnxruntime'].ratio:.2f}", f"{rows['plain'].ratio:.2f}"]


def line(cells: list[str], markdown: bool) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cells) + " |" if markdown else " ".join(f"{cell:>14}" for cell in cells)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument(
        "--lengths", default=[128, 512, 1024], type=lambda text: [int(part) for part in text.split(",")]
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    print(machine(["onnxruntime"]), end="\n\n")
    names = ["model", "length", "bound ms", "plain ms", "onnxruntime ms", "of peer", "of plain"]
    print(line(names, options.markdown), *(["|---" * len(names) + "|"] if options.markdown else []), sep="\n")
    for name in options.models:
        make, config = MODELS[name]
        proto = make(Config(**{**vars(config), "layers": options.layers}))
        program = graft.compile(proto, ["llvm", "reference"], threads=options.threads, cache=False)
        peer = onnxruntime_call(proto, options.threads)
        for length in options.lengths:
            print(line([name, *cells(program, peer, length, options.seconds)], options.markdown), flush=True)


if __name__ == "__main__":
    sys.exit(main())
