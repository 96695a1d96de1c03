"""The gradient of an operator beside the operator, in turns, and then PyTorch's beside PyTorch's, in one run.

    python -m benchmarks.training.backward [OPERATOR ...] [--threads 1,2] [--seconds 2]

``backward`` computes the gradients of all inputs of numbers from that of the result, with as much of the operator as it
needs again, in memory that is there; PyTorch's is the backward pass of a graph that is kept. Ratios are by the forward
pass. PyTorch has turns of its own, for its threads spin for a while after each, on the cores that others wait for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch.nn import functional

import graft
from graft.measure.latency import Run, measure
from graft.runtime.program import Program

Case = tuple[Sequence[Sequence[int]], str, Callable[..., Any]]
IMAGE = (8, 64, 56, 56)
CASES: dict[str, Case] = {
    "Conv 3x3": (
        [IMAGE, (64, 64, 3, 3)], "Conv <pads = [1, 1, 1, 1]> (a, b)", lambda a, b: functional.conv2d(a, b, padding=1),
    ),
    "Conv 1x1": ([IMAGE, (128, 64, 1, 1)], "Conv (a, b)", functional.conv2d),
    "depthwise": (
        [IMAGE, (64, 1, 3, 3)], "Conv <group = 64, pads = [1, 1, 1, 1]> (a, b)",
        lambda a, b: functional.conv2d(a, b, padding=1, groups=64),
    ),
    "MatMul": ([(512, 768), (768, 768)], "MatMul (a, b)", torch.matmul),
    "LayerNorm": (
        [(512, 768), (768,), (768,)], "LayerNormalization (a, b, c)",
        lambda a, b, c: functional.layer_norm(a, (768,), b, c),
    ),
    "Softmax": ([(4096, 512)], "Softmax (a)", lambda a: functional.softmax(a, -1)),
    "Attention": ([(4, 8, 256, 64)] * 3, "Attention (a, b, c)", functional.scaled_dot_product_attention),
    "MaxPool": (
        [IMAGE], "MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)", lambda a: functional.max_pool2d(a, 2),
    ),
    "AveragePool": (
        [IMAGE], "AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)", lambda a: functional.avg_pool2d(a, 2),
    ),
}  # fmt: skip


def in_place(program: Program, feeds: Mapping[str, np.ndarray]) -> Run:
    """Return a run that writes its results where those of the run before it are, as a trainer's step does."""
    results = dict(program.run(feeds))
    return lambda: program.run(feeds, into=results)


def row(name: str, threads: int, seconds: float) -> str:
    """Return what an operator and its gradient take."""
    torch.set_num_threads(threads)
    shapes, text, function = CASES[name]
    rng, names = np.random.default_rng(0), "abc"[: len(shapes)]
    feeds = {one: rng.normal(size=shape).astype(np.float32) for one, shape in zip(names, shapes, strict=True)}
    given = ", ".join(f"float{list(shape)} {one}" for one, shape in zip(names, shapes, strict=True))
    tensors = [torch.from_numpy(array).requires_grad_() for array in feeds.values()]
    result = function(*tensors)
    upstream = torch.from_numpy(rng.normal(size=result.shape).astype(np.float32))
    kind = f"float{list(result.shape)}"
    model = onnx.parser.parse_model(
        f"""<ir_version: 11, opset_import: ["" : 23]> g ({given}, {kind} g) => (float loss, {kind} y) {{
            y = {text} p = Mul (y, g) loss = ReduceSum <keepdims = 0> (p) }}"""
    )
    gradients = graft.compile(graft.grad(model, wrt=list(names), outputs=[]), threads=threads)
    del model.graph.output[0], model.graph.node[1:], model.graph.input[-1]
    forward = graft.compile(model, threads=threads)
    whole = {**feeds, "g": upstream.numpy()}
    ours: dict[str, Run] = {"forward": in_place(forward, feeds), "backward": in_place(gradients, whole)}
    peers: dict[str, Run] = {
        "PyTorch forward": lambda: function(*tensors),
        "PyTorch backward": lambda: torch.autograd.grad(result, tensors, upstream, retain_graph=True),
    }
    own, back, theirs, their_back = (one.median_ms for runs in (ours, peers) for one in measure(runs, seconds))
    return (
        f"| {name} | {threads} | {own:.3f} | {back:.3f} | {back / own:.2f} | {theirs:.3f} | {their_back:.3f} | "
        f"{their_back / theirs:.2f} | {back / their_back:.2f} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", default=list(CASES))
    parser.add_argument("--threads", default=[1, 2], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    heads = ("operator", "threads", "forward, ms", "backward, ms", "ratio", "PyTorch's, ms", "backward, ms", "ratio")
    print(f"| {' | '.join(heads)} | of PyTorch's |\n|{'---|' * 9}")
    for threads in options.threads:
        for name in options.operators:
            print(row(name, threads, options.seconds), flush=True)


if __name__ == "__main__":
    main()
