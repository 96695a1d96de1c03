"""Families whose images or sequences may have any size beside the same of one size, in turns in one run.

    python -m benchmarks.families.open_extents [NAME ...] [--threads 1] [--seconds 1]

Height and width are symbols where an input is an image, else the longest axis of inputs of two or three axes. Both
programs are untuned and run the size that the family is made with; ``of static`` is the median of their times' ratio,
round by round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import exp, log
from statistics import mean

import onnx

import graft
from benchmarks.families.all import FAMILIES
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.measure.latency import measure, program_run

SHORT = 4
"""An axis of no more elements is none that varies."""


def opened(source: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with symbols for the sizes of its images or the lengths of its sequences; None if it has none."""
    model, symbols = onnx.ModelProto(), dict[int, str]()
    model.CopyFrom(source)
    del model.graph.value_info[:]
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        images = (2, 3) if len(dims) == 4 else ()
        longest = [max(range(1, len(dims)), key=lambda axis: dims[axis].dim_value)] if len(dims) in (2, 3) else []
        for axis in (*images, *longest):
            if (extent := dims[axis].dim_value) > SHORT:
                dims[axis].dim_param = symbols.setdefault(extent, f"n{len(symbols)}")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model if symbols else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of families."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(FAMILIES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args(arguments)
    ratios = []
    print("| family | symbolic ms | static ms | of static |\n|---|---:|---:|---:|")
    for name in options.names:
        source = FAMILIES[name]()
        model = opened(source)
        if model is None:
            continue
        feeds = sample_inputs(graft.load(source))
        try:
            programs = [
                graft.compile(graft.load(one), ["llvm"], threads=options.threads, tuned=False)
                for one in (model, source)
            ]
        except GraftError as error:
            print(f"| {name} | {error.message.splitlines()[0]} | | |", flush=True)
            continue
        runs = dict(zip(("symbolic", "static"), (program_run(one, feeds) for one in programs), strict=True))
        own, static = measure(runs, options.seconds)
        ratios.append(static.ratio)
        print(f"| {name} | {own.median_ms:.3f} | {static.median_ms:.3f} | {static.ratio:.2f} |", flush=True)
    if ratios:
        print(f"\n{len(ratios)} families: {exp(mean(map(log, ratios))):.3f} of static, the worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
