"""Networks whose training is measured, batch 8: images, language, sequences, in small versions of the field's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.families.builder import Net

INT64 = onnx.TensorProto.INT64
BATCH = 8


def _normed(net: Net, x: str, channels: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
    pads = [kernel // 2] * 4
    return net.normed(net.conv(x, channels, kernel, stride, group=group, pads=pads, bias=False))


def _classified(net: Net, x: str, classes: int) -> onnx.ModelProto:
    return net.model(net.dense(net.Flatten(net.GlobalAveragePool(x)), classes))


def _residual(net: Net, batch: int, size: int, stages: tuple[int, ...], bottleneck: bool) -> onnx.ModelProto:
    """Build a ResNet (arXiv 1512.03385) of stages of so many blocks."""
    x = net.Relu(_normed(net, net.input("image", batch, 3, size, size), 64, 7, 2))
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, count in enumerate(stages):
        inner = 64 << stage
        outer = inner * 4 if bottleneck else inner
        for place in range(count):
            stride = 2 if stage and not place else 1
            if bottleneck:
                y = net.Relu(_normed(net, net.Relu(_normed(net, x, inner, 1)), inner, 3, stride))
                y = _normed(net, y, outer, 1)
            else:
                y = _normed(net, net.Relu(_normed(net, x, inner, 3, stride)), outer)
            if stride > 1 or net.shape(x)[1] != outer:
                x = _normed(net, x, outer, 1, stride)
            x = net.Relu(net.Add(x, y))
    return _classified(net, x, 1000)


def resnet18(batch: int = BATCH, size: int = 112) -> onnx.ModelProto:
    """Build ResNet-18 on images of ``size x size``."""
    return _residual(Net(), batch, size, (2, 2, 2, 2), bottleneck=False)


def resnet50(size: int = 112) -> onnx.ModelProto:
    """Build ResNet-50 on images of ``size x size``."""
    return _residual(Net(), BATCH, size, (3, 4, 6, 3), bottleneck=True)


def mobilenet_v2() -> onnx.ModelProto:
    """Build MobileNetV2 (arXiv 1801.04381) on images of 112 x 112."""
    net = Net()

    def relu6(x: str) -> str:
        return net.Clip(x, net.constant(0), net.constant(6))

    x = relu6(_normed(net, net.input("image", BATCH, 3, 112, 112), 32, 3, 2))
    for wider, channels, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for place in range(count):
            stride, inner = 1 if place else first, net.shape(x)[1] * wider
            y = relu6(_normed(net, x, inner, 1)) if wider > 1 else x
            y = _normed(net, relu6(_normed(net, y, inner, 3, stride, group=inner)), channels, 1)
            x = net.Add(x, y) if net.shape(y) == net.shape(x) else y
    return _classified(net, relu6(_normed(net, x, 1280, 1)), 1000)


def _embedded(net: Net, length: int, features: int, words: int, batch: int = BATCH) -> str:
    x = net.Gather(net.weights(words, features, terms=1), net.input("words", batch, length, dtype=INT64), axis=0)
    return net.Add(x, net.weights(length, features, terms=1))


def bert_mini(batch: int = BATCH) -> onnx.ModelProto:
    """Build BERT-mini (arXiv 1908.08962): 4 layers of 256 features, 4 heads, 128 words, two classes."""
    net = Net()
    x = net.normed(_embedded(net, 128, 256, 30522, batch), "layer")
    for _ in range(4):
        x = net.normed(net.Add(x, net.attention(x, 4)), "layer")
        x = net.normed(net.Add(x, net.dense(net.gelu(net.dense(x, 1024)), 256)), "layer")
    first = net.Squeeze(net.Slice(x, net.integers(0), net.integers(1), net.integers(1)), net.integers(1))
    return net.model(net.dense(net.Tanh(net.dense(first, 256)), 2))


def gpt(layers: int, features: int, heads: int, length: int, words: int, batch: int = BATCH) -> onnx.ModelProto:
    """Build a GPT that predicts each word of ``[batch, length]`` from those before it."""
    net = Net()
    x = _embedded(net, length, features, words, batch)
    future = net.constant(np.triu(np.full((length, length), -np.inf), 1))
    for _ in range(layers):
        x = net.block(x, heads, bias=future)
    return net.model(net.Transpose(net.dense(net.normed(x, "layer"), words, bias=False), perm=[0, 2, 1]))


def gpt_mini() -> onnx.ModelProto:
    """Build a small GPT (minGPT's gpt-mini): 6 layers of 192 features, 6 heads, 128 characters, each predicted."""
    return gpt(6, 192, 6, 128, 256)


def lstm() -> onnx.ModelProto:
    """Build a tagger: two layers of LSTM of 256 over 64 words, a class for each."""
    net = Net()
    x = net.Transpose(_embedded(net, 64, 128, 1000), perm=[1, 0, 2])
    for _ in range(2):
        shapes = (1, 1024, net.shape(x)[-1]), (1, 1024, 256)
        w, r = (net.weights(*shape, terms=256) for shape in shapes)
        x = net.Squeeze(net.LSTM(x, w, r, net.weights(1, 2048, terms=256), hidden_size=256), net.integers(1))
    return net.model(net.Transpose(net.dense(x, 32), perm=[1, 2, 0]))


def unet() -> onnx.ModelProto:
    """Build a U-Net (arXiv 1505.04597) of 16 to 128 channels on images of 64 x 64, two classes for each pixel."""
    net = Net()

    def twice(x: str, channels: int) -> str:
        return net.Relu(_normed(net, net.Relu(_normed(net, x, channels)), channels))

    kept, x = [], twice(net.input("image", BATCH, 3, 64, 64), 16)
    for channels in (32, 64, 128):
        kept.append(x)
        x = twice(net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2]), channels)
    for channels in (64, 32, 16):
        x = twice(net.Concat(net.transposed(x, channels, 2, 2), kept.pop(), axis=1), channels)
    return net.model(net.conv(x, 2, 1))


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build for build in (resnet18, mobilenet_v2, bert_mini, gpt_mini, lstm, unet)
}
