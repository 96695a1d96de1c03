"""The four architectures of MLPerf Tiny (Banbury et al., arXiv:2106.07597), built node by node with seeded weights.

As they are deployed: batch normalisation is folded into weights and biases. Layout NCHW, batch 1, opset 21.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Network:
    """A graph under construction; weights are normal with variance 2 / fan-in (He et al., arXiv:1502.01852)."""

    def __init__(self, name: str, shape: Sequence[int], seed: int) -> None:
        self._name = name
        self._random = np.random.default_rng(seed)
        self._input = helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Append a node and return its output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def _normal(self, shape: Sequence[int], deviation: float) -> str:
        array = (deviation * self._random.standard_normal(shape)).astype(np.float32)
        self._weights.append(numpy_helper.from_array(array, f"weight_{len(self._weights)}"))
        return self._weights[-1].name

    def conv(
        self, x: str, channels: tuple[int, int], kernel: tuple[int, int], stride: int = 1, group: int = 1,
        relu: bool = True,
    ) -> str:  # fmt: skip
        """Convolve ``channels`` (in, out), padded so that only the stride makes the image smaller."""
        fan_in = channels[0] // group * kernel[0] * kernel[1]
        weight = self._normal((channels[1], channels[0] // group, *kernel), (2 / fan_in) ** 0.5)
        y = self.add(
            "Conv", x, weight, self._normal((channels[1],), 0.05), kernel_shape=kernel, strides=[stride, stride],
            group=group, auto_pad="SAME_UPPER",
        )  # fmt: skip
        return self.add("Relu", y) if relu else y

    def separable(self, x: str, channels: tuple[int, int], stride: int = 1) -> str:
        """Convolve each channel by itself, then across channels."""
        depthwise = self.conv(x, (channels[0], channels[0]), (3, 3), stride, group=channels[0])
        return self.conv(depthwise, channels, (1, 1))

    def dense(self, x: str, features: tuple[int, int], relu: bool = False) -> str:
        """Multiply by a matrix of (in, out) features and add a bias."""
        weight = self._normal(features[::-1], (2 / features[0]) ** 0.5)
        y = self.add("Gemm", x, weight, self._normal((features[1],), 0.05), transB=1)
        return self.add("Relu", y) if relu else y

    def classified(self, x: str, features: tuple[int, int]) -> onnx.ModelProto:
        """End in a pool over the image, a dense layer and a softmax."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.model(self.add("Softmax", self.dense(flat, features)), features[1])

    def model(self, result: str, features: int) -> onnx.ModelProto:
        """Return the model whose output ``result`` has so many features."""
        self._nodes[-1].output[0] = "output"
        output = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, features])
        graph = helper.make_graph(self._nodes, self._name, [self._input], [output], self._weights)
        assert result == self._nodes[-1].name
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def resnet8(seed: int = 0) -> onnx.ModelProto:
    """Image classification: CIFAR-10, three residual blocks."""
    net = _Network("resnet8", (1, 3, 32, 32), seed)
    x = net.conv("input", (3, 16), (3, 3))
    for before, after, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        y = net.conv(x, (before, after), (3, 3), stride)
        y = net.conv(y, (after, after), (3, 3), relu=False)
        shortcut = x if before == after else net.conv(x, (before, after), (1, 1), stride, relu=False)
        x = net.add("Relu", net.add("Add", y, shortcut))
    return net.classified(x, (64, 10))


def ds_cnn(seed: int = 0) -> onnx.ModelProto:
    """Keyword spotting: 49 frames of 10 coefficients, depthwise-separable convolutions, 12 words."""
    net = _Network("ds_cnn", (1, 1, 49, 10), seed)
    x = net.conv("input", (1, 64), (10, 4), 2)
    for _ in range(4):
        x = net.separable(x, (64, 64))
    return net.classified(x, (64, 12))


def mobilenet_v1(seed: int = 0) -> onnx.ModelProto:
    """Visual wake words: MobileNetV1 of width 0.25 on 96 x 96 pixels, person or none."""
    net = _Network("mobilenet_v1", (1, 3, 96, 96), seed)
    x, before = net.conv("input", (3, 8), (3, 3), 2), 8
    for after, stride in (
        (16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1),
    ):  # fmt: skip
        x, before = net.separable(x, (before, after), stride), after
    return net.classified(x, (256, 2))


def autoencoder(seed: int = 0) -> onnx.ModelProto:
    """Anomaly detection: 640 spectrogram values through nine hidden layers, the middle one of 8."""
    net = _Network("autoencoder", (1, 640), seed)
    x, before = "input", 640
    for after in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x, before = net.dense(x, (before, after), relu=True), after
    return net.model(net.dense(x, (before, 640)), 640)


TINY: dict[str, Callable[[int], onnx.ModelProto]] = {
    "resnet8": resnet8,
    "ds_cnn": ds_cnn,
    "mobilenet_v1": mobilenet_v1,
    "autoencoder": autoencoder,
}
