"""Networks of bytes in QDQ form, built node by node with seeded weights; every scale is a power of two.

So floats compute what integers do, to the last bit, and any two implementations must agree in every output. Scales are
chosen so that results fill the range of bytes: a sum of n products of spread a and b has the spread a * b * sqrt(n).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPREAD = 36.0
"""The standard deviation that results are scaled to, in steps of a byte."""
WEIGHTS = 40.0
"""That of weights."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of bytes by name, with shape, scale and zero point, and its readers' DequantizeLinear."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    numbers: str


class Network:
    """A graph under construction."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self.random = np.random.default_rng(seed)
        self._inputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        """Add an initialiser and return its name."""
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{len(self._constants)}"))
        return self._constants[-1].name

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Append a node and return its output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def input(self, *shape: int, name: str = "input") -> Tensor:
        """Add an input of floats, and quantise it."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.quantized(name, shape, 2.0**-5, 0)

    def quantized(self, x: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
        """Quantise floats, and dequantise them for all readers."""
        factor, point = self.constant(np.float32(scale)), self.constant(np.int8(zero))
        name = self.add("QuantizeLinear", x, factor, point)
        return Tensor(name, shape, scale, zero, self.add("DequantizeLinear", name, factor, point))

    def scaled(self, x: str, shape: tuple[int, ...], spread: float, relu: bool = False) -> Tensor:
        """Quantise floats of a known spread; what Relu leaves has the lowest byte as its zero."""
        scale = 2.0 ** round(math.log2(spread / SPREAD))
        if relu:
            return self.quantized(self.add("Relu", x), shape, scale / 2 if spread / SPREAD > scale else scale, -128)
        return self.quantized(x, shape, scale, int(self.random.integers(-8, 8)))

    def _weights(self, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray]:
        array = np.clip(np.rint(WEIGHTS * self.random.standard_normal(shape)), -127, 127).astype(np.int8)
        scales = (2.0 ** self.random.integers(-9, -7, shape[axis])).astype(np.float32)
        zeros = self.constant(np.zeros(shape[axis], np.int8))
        return self.add("DequantizeLinear", self.constant(array), self.constant(scales), zeros, axis=axis), scales

    def _bias(self, scales: np.ndarray, terms: int) -> str:
        steps = np.rint(WEIGHTS * SPREAD * terms**0.5 / 8 * self.random.standard_normal(len(scales))).astype(np.int32)
        zeros = self.constant(np.zeros(len(scales), np.int32))
        return self.add("DequantizeLinear", self.constant(steps), self.constant(scales), zeros, axis=0)

    def conv(self, x: Tensor, channels: int, kernel: int | tuple[int, int], stride: int = 1, *, groups: int = 1,
             relu: bool = True, pads: tuple[int, int, int, int] | None = None) -> Tensor:  # fmt: skip
        """Convolve, padded so that only the stride makes the image smaller."""
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = pads or (rows // 2, columns // 2, rows // 2, columns // 2)
        w, scales = self._weights((channels, x.shape[1] // groups, rows, columns), 0)
        terms = x.shape[1] // groups * rows * columns
        y = self.add(
            "Conv", x.numbers, w, self._bias(np.float32(x.scale) * scales, terms), kernel_shape=[rows, columns],
            strides=[stride, stride], pads=pads, group=groups,
        )  # fmt: skip
        height = (x.shape[2] + pads[0] + pads[2] - rows) // stride + 1
        width = (x.shape[3] + pads[1] + pads[3] - columns) // stride + 1
        spread = x.scale * SPREAD * WEIGHTS * float(scales.mean()) * terms**0.5
        return self.scaled(y, (x.shape[0], channels, height, width), spread, relu)

    def dense(self, x: Tensor, features: int) -> Tensor:
        """Multiply the last axis by a matrix and add a bias."""
        w, scales = self._weights((x.shape[-1], features), 1)
        y = self.add("MatMul", x.numbers, w)
        y = self.add("Add", y, self._bias(np.float32(x.scale) * scales, x.shape[-1]))
        spread = x.scale * SPREAD * WEIGHTS * float(scales.mean()) * x.shape[-1] ** 0.5
        return self.scaled(y, (*x.shape[:-1], features), spread)

    def plus(self, a: Tensor, b: Tensor, relu: bool = False) -> Tensor:
        """Add two tensors."""
        return self.scaled(self.add("Add", a.numbers, b.numbers), a.shape, (a.scale + b.scale) * SPREAD * 0.7, relu)

    def classified(self, x: Tensor, classes: int) -> onnx.ModelProto:
        """End in a mean over the image and a dense layer; the output is dequantised."""
        mean = self.add("GlobalAveragePool", x.numbers)
        pooled = self.quantized(mean, (*x.shape[:2], 1, 1), x.scale / 4, x.zero)
        flat = self.add("Flatten", pooled.numbers)
        w, scales = self._weights((classes, x.shape[1]), 0)
        y = self.add("Gemm", flat, w, self._bias(np.float32(pooled.scale) * scales, x.shape[1]), transB=1)
        spread = pooled.scale * SPREAD * WEIGHTS * float(scales.mean()) * x.shape[1] ** 0.5
        return self.model(self.scaled(y, (x.shape[0], classes), spread))

    def model(self, result: Tensor) -> onnx.ModelProto:
        """Return the model of one output."""
        assert self._nodes[-1].output[0] == result.numbers
        self._nodes[-1].output[0] = "output"
        output = helper.make_tensor_value_info("output", TensorProto.FLOAT, result.shape)
        graph = helper.make_graph(self._nodes, self._name, self._inputs, [output], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _pooled(net: Network, x: Tensor) -> Tensor:
    y = net.add("MaxPool", x.numbers, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    shape = (*x.shape[:2], (x.shape[2] - 1) // 2 + 1, (x.shape[3] - 1) // 2 + 1)
    return net.quantized(y, shape, x.scale, x.zero)


def resnet18(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """ResNet-18 (He et al., arXiv:1512.03385)."""
    net = Network("resnet18", seed)
    x = _pooled(net, net.conv(net.input(1, 3, size, size), 64, 7, 2))
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = net.conv(net.conv(x, channels, 3, stride), channels, 3, relu=False)
        same = stride == 1 and x.shape[1] == channels
        x = net.plus(y, x if same else net.conv(x, channels, 1, stride, relu=False), relu=True)
    return net.classified(x, 1000)


def resnet50(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """ResNet-50, version 1.5: the strides are in the middle."""
    net = Network("resnet50", seed)
    x = _pooled(net, net.conv(net.input(1, 3, size, size), 64, 7, 2))
    for channels, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            step = stride if block == 0 else 1
            y = net.conv(net.conv(net.conv(x, channels, 1), channels, 3, step), 4 * channels, 1, relu=False)
            x = net.plus(y, net.conv(x, 4 * channels, 1, step, relu=False) if block == 0 else x, relu=True)
    return net.classified(x, 1000)


def mobilenet_v2(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al., arXiv:1801.04381)."""
    net = Network("mobilenet_v2", seed)
    x = net.conv(net.input(1, 3, size, size), 32, 3, 2)
    for expansion, channels, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(count):
            step, wide = stride if block == 0 else 1, expansion * x.shape[1]
            y = net.conv(x, wide, 1) if expansion > 1 else x
            y = net.conv(net.conv(y, wide, 3, step, groups=wide), channels, 1, relu=False)
            x = net.plus(x, y) if step == 1 and x.shape[1] == channels else y
    return net.classified(net.conv(x, 1280, 1), 1000)


def ds_cnn(seed: int = 0) -> onnx.ModelProto:
    """The keyword spotter of MLPerf Tiny (Banbury et al., arXiv:2106.07597)."""
    net = Network("ds_cnn", seed)
    x = net.conv(net.input(1, 1, 49, 10), 64, (10, 4), 2, pads=(4, 1, 5, 1))
    for _ in range(4):
        x = net.conv(net.conv(x, 64, 3, groups=64), 64, 1)
    return net.classified(x, 12)


def _normalized(net: Network, x: Tensor) -> Tensor:
    ones, zeros = net.constant(np.ones(x.shape[-1], np.float32)), net.constant(np.zeros(x.shape[-1], np.float32))
    return net.quantized(net.add("LayerNormalization", x.numbers, ones, zeros, axis=-1), x.shape, 2.0**-5, 0)


def _heads(net: Network, x: Tensor, heads: int, order: list[int]) -> Tensor:
    batch, rows, features = x.shape
    shape = (batch, rows, heads, features // heads)
    y = net.quantized(net.add("Reshape", x.numbers, net.constant(np.array(shape))), shape, x.scale, x.zero)
    moved = tuple(shape[axis] for axis in order)
    return net.quantized(net.add("Transpose", y.numbers, perm=order), moved, x.scale, x.zero)


def bert_tiny(seed: int = 0, rows: int = 64) -> onnx.ModelProto:
    """The encoder of BERT-tiny (Turc et al., arXiv:1908.08962): 2 layers of 128 features and 2 heads.

    Products are of bytes; softmax, normalisation and GELU are of floats.
    """
    net, features, heads = Network("bert_tiny", seed), 128, 2
    x = net.input(1, rows, features)
    for _ in range(2):
        q, k, v = (
            _heads(net, net.dense(x, features), heads, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = net.add("MatMul", q.numbers, k.numbers)
        width = features // heads
        scores_q = net.scaled(scores, (1, heads, rows, rows), q.scale * k.scale * SPREAD**2 * width**0.5)
        shares = net.add("Softmax", net.add("Mul", scores_q.numbers, net.constant(np.float32(width**-0.5))), axis=-1)
        shares_q = net.quantized(shares, (1, heads, rows, rows), 2.0**-8, -128)
        mixed = net.scaled(net.add("MatMul", shares_q.numbers, v.numbers), (1, heads, rows, width), v.scale * SPREAD)
        moved = net.quantized(
            net.add("Transpose", mixed.numbers, perm=[0, 2, 1, 3]), (1, rows, heads, width), mixed.scale, mixed.zero
        )
        joined = net.quantized(
            net.add("Reshape", moved.numbers, net.constant(np.array([1, rows, features]))), (1, rows, features),
            mixed.scale, mixed.zero,
        )  # fmt: skip
        x = _normalized(net, net.plus(x, net.dense(joined, features)))
        hidden = net.dense(x, 4 * features)
        active = net.quantized(net.add("Gelu", hidden.numbers), hidden.shape, 2.0**-5, 0)
        x = _normalized(net, net.plus(x, net.dense(active, features)))
    return net.model(x)


QUANTIZED: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "ds_cnn": ds_cnn,
    "bert_tiny": bert_tiny,
}
