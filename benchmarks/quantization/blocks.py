"""Products in blocks of scaled types beside float32: `python -m benchmarks.quantization.blocks`.

    [TYPE ...] [--threads 1] [--seconds 2] [--models]

Each shape (rows, terms, columns) is measured in turns with the same product in float32; ``of float32`` is the median of
the ratios round by round. ``reading`` is the least time in which the weights, scales included, are read from the level
of memory that holds so many bytes (`graft.measure.roofline`): no product is faster. ``--models`` measures whole
networks of `benchmarks.zoo` by the first type.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

import graft
from benchmarks.zoo import model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.datatypes import convert_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES
from graft.measure.latency import BenchRow, measure, program_run
from graft.measure.roofline import Roofline, measure_roofline

TYPES = ("mxfp4", "nvfp4", "mxfp6e2m3", "mxfp8e4m3")
SHAPES = ((128, 768, 768), (128, 768, 3072), (1, 768, 3072))
NETWORKS = ("bert_base", "light_resnet50")


def product(rows: int, terms: int, columns: int) -> ir.Model:
    """Return a model of one product with constant weights."""
    text = f"g (float[{rows},{terms}] x) => (float[{rows},{columns}] y) {{ y = MatMul (x, w) }}"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    weights = np.random.default_rng(0).standard_normal((terms, columns)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return graft.load(proto)


def in_turns(source: ir.Model, types: Sequence[str], threads: int, seconds: float) -> list[BenchRow]:
    """Return the times of a model in each type, and of float32 at the end; ratios are those by the first type."""
    feeds = sample_inputs(source)
    forms = {name: convert_scaled(source, name) for name in types} | {"float32": source}
    runs = {name: program_run(graft.compile(form, ["llvm"], threads=threads), feeds) for name, form in forms.items()}
    return measure(runs, seconds)


def print_products(types: Sequence[str], threads: int, seconds: float, roofline: Roofline) -> None:
    """Print a row for each shape and type."""
    print("| shape | type | ms | float32, ms | of float32 | reading, ms |\n|---|---|---:|---:|---:|---:|")
    for shape in SHAPES:
        source = product(*shape)
        for name in types:
            own, plain = in_turns(source, [name], threads, seconds)
            size = shape[1] * shape[2] * SCALED_TYPES[name].bits / 8
            reading = 1e3 * size / roofline.bytes_per_second(int(size)) / threads
            print(
                f"| {shape[0]} x {shape[1]} x {shape[2]} | `{name}` | {own.median_ms:.3f} | {plain.median_ms:.3f} | "
                f"{plain.ratio:.2f} | {reading:.3f} |",
                flush=True,
            )


def print_networks(name: str, threads: int, seconds: float) -> None:
    """Print a row for each network."""
    print(f"| network | `{name}`, s | float32, s | of float32 |\n|---|---:|---:|---:|")
    for network in NETWORKS:
        own, plain = in_turns(model(network), [name], threads, seconds)
        print(
            f"| {network} | {own.median_ms / 1e3:.3f} | {plain.median_ms / 1e3:.3f} | {plain.ratio:.2f} |", flush=True
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", default=TYPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each row")
    parser.add_argument("--models", action="store_true", help="whole networks by the first type, not products")
    given = parser.parse_args()
    if given.models:
        print_networks(given.types[0], given.threads, given.seconds)
    else:
        print_products(given.types, given.threads, given.seconds, measure_roofline())


if __name__ == "__main__":
    main()
