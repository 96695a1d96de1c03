"""Single kernels of the built-in compiler against ONNX Runtime: ``python -m benchmarks.kernels [--threads N]``.

Every row is one MatMul or Conv (with bias and Relu) of a known network, in float32, in bfloat16 (the peer, ONNX
Runtime, stays in float32), or of bytes (QLinearConv, MatMulInteger). Ours and the peer's run in turns in one
process; the best of each counts. The last column compares with what the multiply-add
units of the machine could do.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
import onnx
from onnx import TensorProto

import graft
from benchmarks.peers import best_turns
from graft.core.machine.instructions import DOTS
from graft.core.machine.target import host_target
from graft.measure.peers.runtimes import onnxruntime_call
from graft.measure.roofline_kernels import peak_flops
from graft.plugins.llvm.backend import LlvmBackend
from graft.testkit.models.net import Net


@dataclass(frozen=True)
class Case:
    """A one-operator model: its name, inputs that are given at run time, and floating-point operations."""

    name: str
    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    flops: int
    dot: str = ""
    """The dot product that it is made of, "" in float32."""

    def inputs(self) -> dict[str, np.ndarray]:
        """Return seeded inputs."""
        random = np.random.default_rng(1)
        if self.dot == "dot4_u8s8":
            return {name: random.integers(0, 256, shape).astype(np.uint8) for name, shape in self.shapes.items()}
        return {name: random.standard_normal(shape, np.float32) for name, shape in self.shapes.items()}


def matmul(name: str, left: tuple[int, ...], right: tuple[int, ...], constant: bool = True) -> Case:
    net, inputs = Net(), {"x": left} if constant else {"x": left, "y": right}
    x = net.input("x", *left)
    product = net.MatMul(x, _normal(net, *right) if constant else net.input("y", *right))
    return Case(name, net.model(product), inputs, 2 * prod(net.shape(product)) * left[-1])


def conv(name: str, channels: int, size: int, outputs: int, kernel: int, stride: int = 1, group: int = 1) -> Case:
    net, extents = Net(), (outputs, channels // group, kernel, kernel)
    weights = _normal(net, *extents), _normal(net, outputs)
    x = net.input("x", 1, channels, size, size)
    made = net.Conv(x, *weights, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)
    flops = 2 * prod(net.shape(made)) * prod(extents[1:])
    return Case(name, net.model(net.Relu(made)), {x: net.shape(x)}, flops)


def in_bfloat16(case: Case) -> Case:
    """Return a float32 case with its products in bfloat16."""
    return replace(case, name=f"{case.name}, bf16", dot="dot2_bf16")


def matmul_bytes(name: str, m: int, k: int, n: int) -> Case:
    """Return a MatMulInteger with constant weights."""
    net = Net()
    x = net.input("x", m, k, dtype=TensorProto.UINT8)
    product = net.MatMulInteger(x, _bytes(net, k, n), net.constant(3, np.uint8))
    return Case(name, net.model(product), {x: (m, k)}, 2 * m * k * n, "dot4_u8s8")


def conv_bytes(name: str, channels: int, size: int, outputs: int, kernel: int, stride: int = 1) -> Case:
    """Return a QLinearConv with a scale for each channel."""
    net, extents = Net(), (outputs, channels, kernel, kernel)
    x = net.input("x", 1, channels, size, size, dtype=TensorProto.UINT8)
    scales = net.constant(np.linspace(0.001, 0.002, outputs, dtype=np.float32))
    made = net.QLinearConv(
        x, net.constant(0.02), net.constant(3, np.uint8), _bytes(net, *extents), scales, net.constant(0, np.int8),
        net.constant(0.5), net.constant(120, np.uint8), net.constant(np.arange(outputs), np.int32),
        strides=[stride] * 2, pads=[kernel // 2] * 4,
    )  # fmt: skip
    flops = 2 * prod(net.shape(made)) * prod(extents[1:])
    return Case(name, net.model(made), {x: net.shape(x)}, flops, "dot4_u8s8")


def _normal(net: Net, *shape: int) -> str:
    return net.constant(net.random.standard_normal(shape, np.float32))


def _bytes(net: Net, *shape: int) -> str:
    return net.constant(net.random.integers(-127, 128, shape), np.int8)


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
    in_bfloat16(matmul("matmul 512", (512, 512), (512, 512))),
    in_bfloat16(matmul("matmul 512, computed", (512, 512), (512, 512), constant=False)),
    in_bfloat16(matmul("bert up", (128, 768), (768, 3072))),
    in_bfloat16(conv("resnet 28 3x3", 128, 28, 128, 3)),
    in_bfloat16(conv("resnet 14 1x1", 256, 14, 1024, 1)),
    matmul_bytes("matmul 512, int8", 512, 512, 512),
    matmul_bytes("bert up, int8", 128, 768, 3072),
    conv_bytes("resnet 56 1x1, int8", 64, 56, 256, 1),
    conv_bytes("resnet 28 3x3, int8", 128, 28, 128, 3),
    conv_bytes("resnet 14 1x1, int8", 256, 14, 1024, 1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the names of the kernels to run")
    arguments = parser.parse_args()
    threads = arguments.threads
    limits = {dot: peak_flops(host_target(), dot) * threads for dot in ("", *DOTS)}
    peaks = ", ".join(f"{dot or 'float32'} {limit / threads / 1e9:.0f}" for dot, limit in limits.items())
    print(f"one core's peaks in G operations/s: {peaks}; {threads} thread(s)\n")
    print("| kernel | G operations/s | ONNX Runtime | ratio of times | of peak |\n|---|---:|---:|---:|---:|")
    for case in CASES:
        if arguments.only not in case.name:
            continue
        inputs, limit = case.inputs(), limits[case.dot]
        precision = "bf16" if case.dot == "dot2_bf16" else "float32"
        program = graft.compile(case.model, backends=[LlvmBackend()], threads=threads, precision=precision)
        ours, theirs = best_turns(
            [partial(program.run, inputs), partial(onnxruntime_call(case.model, threads), inputs)]
        )
        print(
            f"| {case.name} | {case.flops / ours / 1e9:.1f} | {case.flops / theirs / 1e9:.1f} | {ours / theirs:.2f} "
            f"| {case.flops / ours / limit:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
