"""Classifiers of images: grouped and wide depthwise convolutions, mixers, standardised weights, windows."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net


def head(net: Net, x: str, classes: int = 100) -> onnx.ModelProto:
    """Return the model that ends in means over the image and a product."""
    return net.model(net.dense(net.mean(x, 2, 3, keep=False), classes))


def excited(net: Net, x: str, ratio: int = 4) -> str:
    """Return channels weighted by a squeeze and excitation."""
    channels = net.shape(x)[1]
    inner = net.Relu(net.conv(net.GlobalAveragePool(x), channels // ratio, 1))
    return net.Mul(x, net.Sigmoid(net.conv(inner, channels, 1)))


def regnet() -> onnx.ModelProto:
    """Build RegNetY: grouped convolutions of 3x3 with squeeze and excitation."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 128, 128), 32, 3, 2)))
    for channels, blocks in ((48, 1), (104, 3), (208, 4)):
        for number in range(blocks):
            stride = 1 if number else 2
            short = net.normed(net.conv(x, channels, 1, stride, pads=[0] * 4)) if stride == 2 else x
            y = net.Relu(net.normed(net.conv(x, channels, 1)))
            y = net.Relu(net.normed(net.conv(y, channels, 3, stride, group=channels // 8, pads=[1] * 4)))
            x = net.Relu(net.Add(short, net.normed(net.conv(excited(net, y), channels, 1))))
    return head(net, x)


def resnext() -> onnx.ModelProto:
    """Build ResNeXt: 32 groups."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 128, 128), 64, 7, 2, pads=[3] * 4)))
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for channels, blocks in ((128, 2), (256, 2), (512, 2)):
        for number in range(blocks):
            stride = 2 if not number and channels > 128 else 1
            short = x if number else net.normed(net.conv(x, channels, 1, stride, pads=[0] * 4))
            y = net.Relu(net.normed(net.conv(x, channels, 1)))
            y = net.Relu(net.normed(net.conv(y, channels, 3, stride, group=32, pads=[1] * 4)))
            x = net.Relu(net.Add(short, net.normed(net.conv(y, channels, 1))))
    return head(net, x)


def efficientnet() -> onnx.ModelProto:
    """Build EfficientNet: inverted residuals with Swish and squeeze and excitation."""
    net = Net()
    x = net.swish(net.normed(net.conv(net.input("x", 1, 3, 128, 128), 32, 3, 2)))
    for channels, kernel, stride in (
        (16, 3, 1),
        (24, 3, 2),
        (24, 3, 1),
        (40, 5, 2),
        (40, 5, 1),
        (80, 3, 2),
        (112, 5, 1),
    ):
        inside = net.shape(x)[1] * 6
        y = net.swish(net.normed(net.conv(x, inside, 1)))
        y = net.swish(net.normed(net.conv(y, inside, kernel, stride, group=inside, pads=[kernel // 2] * 4)))
        y = net.normed(net.conv(excited(net, y, 24), channels, 1))
        x = net.Add(x, y) if net.shape(x) == net.shape(y) else y
    return head(net, net.swish(net.conv(x, 320, 1)))


def ghostnet() -> onnx.ModelProto:
    """Build GhostNet: half of the channels by cheap depthwise convolutions."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 128, 128), 16, 3, 2))
    for channels, stride in ((16, 1), (24, 2), (40, 2), (80, 2), (112, 1)):
        y = x
        for wide, act in ((channels * 3, True), (channels, False)):
            first = net.conv(y, wide // 2, 1)
            first = net.Relu(first) if act else first
            y = net.Concat(first, net.conv(first, wide // 2, 3, group=wide // 2), axis=1)
            if act and stride == 2:
                y = net.conv(y, wide, 3, 2, group=wide, pads=[1] * 4)
        x = net.Add(x, y) if net.shape(x) == net.shape(y) else y
    return head(net, x)


def mixer() -> onnx.ModelProto:
    """Build MLP-Mixer: products along places and along channels."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 112, 112), 192, 8, 8, pads=[0] * 4)
    x = net.Transpose(net.reshape(x, 1, 192, 196), perm=[0, 2, 1])
    for _ in range(3):
        y = net.Transpose(net.normed(x, "layer"), perm=[0, 2, 1])
        y = net.Transpose(net.dense(net.gelu(net.dense(y, 96)), 196), perm=[0, 2, 1])
        x = net.Add(x, y)
        x = net.Add(x, net.dense(net.gelu(net.dense(net.normed(x, "layer"), 768)), 192))
    return net.model(net.dense(net.mean(x, 1, keep=False), 100))


def convmixer() -> onnx.ModelProto:
    """Build ConvMixer: depthwise convolutions of 9x9 and products."""
    net = Net()
    x = net.normed(net.gelu(net.conv(net.input("x", 1, 3, 112, 112), 192, 7, 7, pads=[0] * 4)))
    for _ in range(3):
        x = net.Add(x, net.normed(net.gelu(net.conv(x, 192, 9, group=192))))
        x = net.normed(net.gelu(net.conv(x, 192, 1)))
    return head(net, x)


def large_kernels() -> onnx.ModelProto:
    """Build RepLKNet: depthwise convolutions of 7x7 and 13x13 between pointwise ones."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 112, 112), 64, 4, 4, pads=[0] * 4)))
    for kernel in (7, 13):
        y = net.Relu(net.normed(net.conv(x, 64, 1)))
        y = net.Relu(net.normed(net.conv(y, 64, kernel, group=64)))
        x = net.Add(x, net.conv(y, 64, 1))
    x = net.normed(net.conv(x, 128, 3, 2, pads=[1] * 4))
    for kernel in (7, 13):
        x = net.Add(x, net.conv(net.Relu(net.normed(net.conv(x, 128, kernel, group=128))), 128, 1))
    return head(net, x)


def standardised(net: Net, channels: int, inputs: int, kernel: int) -> str:
    """Return weights of mean 0 and variance 1, computed in the graph."""
    weights = net.weights(channels, inputs, kernel, kernel)
    centred = net.Sub(weights, net.mean(weights, 1, 2, 3))
    variance = net.mean(net.Mul(centred, centred), 1, 2, 3)
    scale = net.constant(np.full((channels, 1, 1, 1), (inputs * kernel * kernel) ** -0.5))
    return net.Mul(net.Div(centred, net.Sqrt(net.Add(variance, net.constant(1e-6)))), scale)


def nfnet() -> onnx.ModelProto:
    """Build NFNet and BiT: standardised weights, group normalisation."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 112, 112), 64, 7, 2, pads=[3] * 4))
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for _ in range(3):
        y = net.Relu(net.normed(x, "group", 16))
        y = net.Conv(y, standardised(net, 64, 64, 3), pads=[1] * 4)
        y = net.Conv(net.Relu(net.normed(y, "group", 16)), standardised(net, 64, 64, 1))
        x = net.Add(x, y)
    return head(net, x)


def poolformer() -> onnx.ModelProto:
    """Build PoolFormer: average pooling in the place of attention."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 128, 128), 64, 7, 4, pads=[2, 2, 3, 3])
    for _ in range(4):
        y = net.normed(x, "group", 1)
        pooled = net.AveragePool(y, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0)
        x = net.Add(x, net.Mul(net.Sub(pooled, y), net.constant(np.full((64, 1, 1), 0.3))))
        x = net.Add(x, net.conv(net.gelu(net.conv(net.normed(x, "group", 1), 256, 1)), 64, 1))
    return head(net, x)


def maxvit() -> onnx.ModelProto:
    """Build MaxViT: attention in windows, then in a grid, with biases of relative positions."""
    net = Net()
    x = net.Transpose(net.conv(net.input("x", 1, 3, 112, 112), 96, 4, 4, pads=[0] * 4), perm=[0, 2, 3, 1])
    places = np.stack(np.meshgrid(np.arange(7), np.arange(7), indexing="ij"), -1).reshape(49, 2)
    differences = places[:, None] - places[None] + 6
    index = net.constant((differences[..., 0] * 13 + differences[..., 1]).reshape(-1), np.int64)  # type: ignore[arg-type]
    rounds = (((1, 4, 7, 4, 7, 96), [0, 1, 3, 2, 4, 5]), ((1, 7, 4, 7, 4, 96), [0, 2, 4, 1, 3, 5]))
    for shape, order in rounds:  # windows of 7x7 places side by side, then 7x7 places of a grid
        windows = net.reshape(net.Transpose(net.reshape(x, *shape), perm=order), 16, 49, 96)
        table = net.Gather(net.weights(169, 3, terms=4), index, axis=0)
        bias = net.Transpose(net.reshape(table, 1, 49, 49, 3), perm=[0, 3, 1, 2])
        split = net.reshape(net.block(windows, 3, bias=bias), *(shape[axis] for axis in order))
        x = net.reshape(net.Transpose(split, perm=[int(axis) for axis in np.argsort(order)]), 1, 28, 28, 96)
    return net.model(net.dense(net.mean(x, 1, 2, keep=False), 100))


def cvt() -> onnx.ModelProto:
    """Build CvT: depthwise convolutions make queries, keys and values."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 112, 112), 64, 7, 4, pads=[2, 2, 3, 3])
    for _ in range(2):
        sides = []
        for stride in (1, 2, 2):
            y = net.conv(net.normed(net.conv(x, 64, 3, stride, group=64, pads=[1] * 4)), 64, 1)
            sides.append(net.Transpose(net.reshape(y, 1, 64, -1), perm=[0, 2, 1]))
        q, k, v = sides
        shares = net.Softmax(net.MatMul(q, net.Transpose(k, perm=[0, 2, 1])), axis=-1)
        y = net.Transpose(net.dense(net.MatMul(shares, v), 64), perm=[0, 2, 1])
        x = net.Add(x, net.reshape(y, *net.shape(x)))
        x = net.Add(x, net.conv(net.gelu(net.conv(x, 256, 1)), 64, 1))
    return head(net, x)


def resnet_batch() -> onnx.ModelProto:
    """Build a ResNet of bottlenecks for sixteen images."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 16, 3, 64, 64), 64, 7, 2, pads=[3] * 4)))
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1)):
        short = x if net.shape(x)[1] == 4 * channels else net.normed(net.conv(x, 4 * channels, 1, stride, pads=[0] * 4))
        y = net.Relu(net.normed(net.conv(x, channels, 1)))
        y = net.Relu(net.normed(net.conv(y, channels, 3, stride, pads=[1] * 4)))
        x = net.Relu(net.Add(short, net.normed(net.conv(y, 4 * channels, 1))))
    return head(net, x)


IMAGES = (
    regnet, resnext, efficientnet, ghostnet, mixer, convmixer, large_kernels, nfnet, poolformer, maxvit, cvt,
    resnet_batch,
)  # fmt: skip
