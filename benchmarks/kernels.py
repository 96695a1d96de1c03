"""Single kernels of the built-in compiler against ONNX Runtime: ``python -m benchmarks.kernels [--threads N]``.

Every row is one MatMul or Conv (with bias and Relu) of a known network. Ours and the peer's run in turns in one
process; the best of each counts. The last column compares with what the multiply-add
units of the machine could do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper

import graft
from graft.core.target import host_target
from graft.plugins.llvm.backend import LlvmBackend
from graft.roofline_kernels import peak_flops

ROUNDS, SECONDS = 15, 0.02


@dataclass(frozen=True)
class Case:
    """A one-operator model: its name, inputs that are given at run time, and floating-point operations."""

    name: str
    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    flops: int


def matmul(name: str, left: tuple[int, ...], right: tuple[int, ...], constant: bool = True) -> Case:
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    weights = {"y": right} if constant else {}
    inputs = {"x": left} if constant else {"x": left, "y": right}
    nodes = [helper.make_node("MatMul", ["x", "y"], ["z"])]
    return Case(name, _model(nodes, inputs, weights, shape), inputs, 2 * int(np.prod(shape)) * left[-1])


def conv(name: str, channels: int, size: int, outputs: int, kernel: int, stride: int = 1, group: int = 1) -> Case:
    pad = kernel // 2
    extent = (size + 2 * pad - kernel) // stride + 1
    weights = {"w": (outputs, channels // group, kernel, kernel), "b": (outputs,)}
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": group}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes), helper.make_node("Relu", ["y"], ["z"])]
    inputs, shape = {"x": (1, channels, size, size)}, (1, outputs, extent, extent)
    flops = 2 * int(np.prod(shape)) * int(np.prod(weights["w"][1:]))
    return Case(name, _model(nodes, inputs, weights, shape), inputs, flops)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    weights: dict[str, tuple[int, ...]],
    shape: tuple[int, ...],
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    tensors = [
        onnx.numpy_helper.from_array(random.standard_normal(extents, np.float32), name)
        for name, extents in weights.items()
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in inputs.items()]
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "kernel", given, [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


CASES = (
    matmul("matmul 512", (512, 512), (512, 512)),
    matmul("matmul 512, computed", (512, 512), (512, 512), constant=False),
    matmul("bert dense", (128, 768), (768, 768)),
    matmul("bert up", (128, 768), (768, 3072)),
    matmul("bert down", (128, 3072), (3072, 768)),
    matmul("bert scores", (12, 128, 64), (12, 64, 128), constant=False),
    matmul("matmul 1024", (1024, 1024), (1024, 1024)),
    matmul("vit dense", (197, 768), (768, 768)),
    matmul("gpt2 up", (64, 768), (768, 3072)),
    matmul("matrix-vector 4096", (1, 4096), (4096, 4096)),
    matmul("classifier", (1, 2048), (2048, 1000)),
    conv("resnet first", 3, 224, 64, 7, 2),
    conv("resnet 56 1x1", 64, 56, 256, 1),
    conv("resnet 56 3x3", 64, 56, 64, 3),
    conv("resnet 28 3x3", 128, 28, 128, 3),
    conv("resnet 14 3x3", 256, 14, 256, 3),
    conv("resnet 14 1x1", 256, 14, 1024, 1),
    conv("resnet 7 3x3", 512, 7, 512, 3),
    conv("resnet 7 3x3 strided", 512, 14, 512, 3, 2),
    conv("vgg 112 3x3", 128, 112, 128, 3),
    conv("mobilenet 56 depthwise", 144, 56, 144, 3, 1, 144),
    conv("convnext 28 depthwise", 192, 28, 192, 7, 1, 192),
)


def best_in_turns(calls: list[Callable[[], object]]) -> list[float]:
    """Return the shortest time of each call, in seconds; they take turns, so that all see the same machine."""
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, int(SECONDS / max(time.perf_counter() - start, 1e-7))))
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, (call, count) in enumerate(zip(calls, repeats, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[number] = min(best[number], (time.perf_counter() - start) / count)
    return best


def peer(model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the names of the kernels to run")
    arguments = parser.parse_args()
    threads = arguments.threads
    limit = peak_flops(host_target()) * threads
    print(f"one core's peak: {limit / threads / 1e9:.0f} GFLOP/s; {threads} thread(s)\n")
    print("| kernel | GFLOP/s | ONNX Runtime | ratio of times | of peak |\n|---|---:|---:|---:|---:|")
    for case in CASES:
        if arguments.only not in case.name:
            continue
        random = np.random.default_rng(1)
        inputs = {name: random.standard_normal(shape, np.float32) for name, shape in case.shapes.items()}
        program = graft.compile(case.model, backends=[LlvmBackend()], threads=threads)
        ours, theirs = best_in_turns([partial(program.run, inputs), peer(case.model, inputs, threads)])
        print(
            f"| {case.name} | {case.flops / ours / 1e9:.1f} | {case.flops / theirs / 1e9:.1f} | {ours / theirs:.2f} "
            f"| {case.flops / ours / limit:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
