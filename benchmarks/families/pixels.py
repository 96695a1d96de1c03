"""Models whose result is an image again: segmentation, detection, depth, super-resolution, style."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net


def pair(net: Net, x: str, channels: int, kind: str = "batch") -> str:
    """Return two convolutions of 3x3, each normalised and rectified."""
    for _ in range(2):
        x = net.Relu(net.normed(net.conv(x, channels, 3), kind))
    return x


def unet() -> onnx.ModelProto:
    """Build U-Net: transposed convolutions of 2x2, skipped sides concatenated."""
    net = Net()
    x, sides = net.input("x", 1, 3, 128, 128), []
    for channels in (16, 32, 64):
        sides.append(pair(net, x, channels))
        x = net.MaxPool(sides[-1], kernel_shape=[2, 2], strides=[2, 2])
    x = pair(net, x, 128)
    for side in reversed(sides):
        channels = net.shape(side)[1]
        x = pair(net, net.Concat(side, net.transposed(x, channels, 2, 2), axis=1), channels)
    return net.model(net.conv(x, 4, 1))


def deeplab() -> onnx.ModelProto:
    """Build DeepLab: dilated convolutions side by side, the result made eight times as large."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 128, 128), 32, 7, 4, pads=[2, 2, 3, 3]))
    x = net.Relu(net.normed(net.conv(x, 96, 3, 2, pads=[1] * 4)))
    sides = [net.Relu(net.normed(net.conv(x, 48, 1)))]
    sides += [net.Relu(net.normed(net.conv(x, 48, 3, dilation=rate))) for rate in (2, 4, 6)]
    pooled = net.Relu(net.conv(net.GlobalAveragePool(x), 48, 1))
    sides.append(net.Resize(pooled, "", "", net.integers(1, 48, 16, 16), mode="linear"))
    x = net.conv(net.Relu(net.conv(net.Concat(*sides, axis=1), 64, 1)), 21, 1)
    return net.model(net.ArgMax(net.resized(x, 8), axis=1, keepdims=0), net.resized(x, 8))


def segformer() -> onnx.ModelProto:
    """Build SegFormer: attention over fewer keys, products, linear Resize of all levels."""
    net = Net()
    x, levels = net.input("x", 1, 3, 128, 128), []
    for channels, stride, kernel, heads in ((32, 4, 7, 1), (64, 2, 3, 2), (160, 2, 3, 5)):
        x = net.conv(x, channels, kernel, stride, pads=[kernel // 2] * 4)
        _, _, height, width = net.shape(x)
        tokens = net.Transpose(net.reshape(x, 1, channels, -1), perm=[0, 2, 1])
        fewer = net.conv(x, channels, 4, 4, pads=[0] * 4) if height > 8 else x
        memory = net.normed(net.Transpose(net.reshape(fewer, 1, channels, -1), perm=[0, 2, 1]), "layer")
        tokens = net.block(tokens, heads, memory=memory)
        x = net.reshape(net.Transpose(tokens, perm=[0, 2, 1]), 1, channels, height, width)
        levels.append(net.resized(net.conv(x, 64, 1), 32 // height) if height < 32 else net.conv(x, 64, 1))
    x = net.Relu(net.normed(net.conv(net.Concat(*levels, axis=1), 64, 1)))
    return net.model(net.resized(net.conv(x, 19, 1), 4))


def pspnet() -> onnx.ModelProto:
    """Build PSPNet: means over parts of the image, made large again with aligned corners."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 96, 96), 64, 3, 4, pads=[1] * 4))
    x = net.Relu(net.conv(x, 128, 3))
    sides = [x]
    for parts in (1, 2, 3, 6):
        size = 24 // parts
        y = net.AveragePool(x, kernel_shape=[size, size], strides=[size, size])
        y = net.Relu(net.conv(y, 32, 1))
        sides.append(net.resized(y, size, coordinate_transformation_mode="align_corners"))
    return net.model(net.resized(net.conv(net.Concat(*sides, axis=1), 19, 3), 4))


def yolo() -> onnx.ModelProto:
    """Build YOLO: Swish, parts split and concatenated, pooling of 5x5, boxes decoded."""
    net = Net()

    def conv(x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
        return net.swish(net.normed(net.conv(x, channels, kernel, stride, pads=[kernel // 2] * 4)))

    def parts(x: str, channels: int) -> str:
        first, second = net.Split(conv(x, channels, 1), outputs=2, axis=1, num_outputs=2)
        third = net.Add(second, conv(conv(second, channels // 2), channels // 2))
        return conv(net.Concat(first, second, third, axis=1), channels, 1)

    x = conv(conv(net.input("x", 1, 3, 160, 160), 16, 3, 2), 32, 3, 2)
    p3 = parts(conv(parts(x, 32), 64, 3, 2), 64)
    p4 = parts(conv(p3, 128, 3, 2), 128)
    y, pools = conv(p4, 64, 1), []
    for _ in range(3):
        pools.append(y)
        y = net.MaxPool(y, kernel_shape=[5, 5], pads=[2] * 4)
    p4 = conv(net.Concat(*pools, y, axis=1), 128, 1)
    p3 = parts(net.Concat(net.resized(p4, 2, "nearest"), p3, axis=1), 64)
    rows = []
    for level in (p3, p4):
        boxes = net.reshape(net.conv(conv(level, 64), 64, 1), 1, 4, 16, -1)
        shares = net.Softmax(net.Transpose(boxes, perm=[0, 2, 1, 3]), axis=1)
        sides = net.Conv(shares, net.constant(np.arange(16).reshape(1, 16, 1, 1)))
        scores = net.Sigmoid(net.reshape(net.conv(conv(level, 64), 80, 1), 1, 80, -1))
        rows.append(net.Concat(net.reshape(sides, 1, 4, -1), scores, axis=1))
    return net.model(net.Concat(*rows, axis=2))


def ssd() -> onnx.ModelProto:
    """Build SSD: depthwise convolutions, heads at several sizes, rows concatenated."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 160, 160), 32, 3, 2, pads=[1] * 4))
    rows = []
    for channels in (64, 128, 256, 256):
        before = net.shape(x)[1]
        x = net.Clip(net.conv(x, before, 3, 2, group=before, pads=[1] * 4), net.constant(0), net.constant(6))
        x = net.Clip(net.conv(x, channels, 1), net.constant(0), net.constant(6))
        if channels > 64:
            y = net.conv(net.conv(x, channels, 3, group=channels), 6 * 25, 1)
            rows.append(net.reshape(net.Transpose(y, perm=[0, 2, 3, 1]), 1, -1, 25))
    boxes, classes = net.Split(net.Concat(*rows, axis=1), net.integers(4, 21), outputs=2, axis=2)
    return net.model(net.Exp(boxes), net.Softmax(classes, axis=-1))


def detr() -> onnx.ModelProto:
    """Build DETR: convolutions, an encoder, and a decoder of a hundred queries."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 160, 160), 64, 7, 4, pads=[2, 2, 3, 3]))
    x = net.conv(net.Relu(net.conv(x, 128, 3, 2, pads=[1] * 4)), 128, 3, 2, pads=[1] * 4)
    memory = net.Transpose(net.reshape(x, 1, 128, 100), perm=[0, 2, 1])
    memory = net.block(net.Add(memory, net.weights(1, 100, 128)), 4)
    queries = net.weights(1, 100, 128)
    for _ in range(2):
        queries = net.block(net.block(queries, 4), 4, memory=memory)
    return net.model(net.dense(queries, 92), net.Sigmoid(net.dense(net.Relu(net.dense(queries, 128)), 4)))


def depth_decoder() -> onnx.ModelProto:
    """Build DPT: tokens as images of four sizes by transposed convolutions, fused with aligned corners."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 192, 192), 128, 16, 16, pads=[0] * 4)
    x = net.Transpose(net.reshape(x, 1, 128, 144), perm=[0, 2, 1])
    levels = []
    for size in (4, 2, 1):
        x = net.block(x, 4)
        image = net.reshape(net.Transpose(x, perm=[0, 2, 1]), 1, 128, 12, 12)
        image = net.conv(image, 64, 1)
        levels.append(net.conv(net.transposed(image, 64, size, size) if size > 1 else image, 64, 3))
    y = levels[-1]
    for level in (*reversed(levels[:-1]), ""):
        y = net.Add(y, net.conv(net.Relu(net.conv(net.Relu(y), 64, 3)), 64, 3))
        y = net.conv(net.resized(y, 2, coordinate_transformation_mode="align_corners"), 64, 1)
        y = net.Add(y, level) if level else y
    return net.model(net.Relu(net.conv(net.resized(net.conv(y, 32, 3), 2), 1, 3)))


def monodepth() -> onnx.ModelProto:
    """Build Monodepth: Elu, edges mirrored, nearest Resize."""
    net = Net()
    x, sides = net.input("x", 1, 3, 96, 160), []
    for channels in (32, 64, 128):
        x = net.Relu(net.normed(net.conv(x, channels, 3, 2, pads=[1] * 4)))
        sides.append(x)

    def conv(y: str, channels: int) -> str:
        padded = net.Pad(y, net.integers(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")
        return net.Elu(net.conv(padded, channels, 3, pads=[0] * 4))

    for channels, side in ((64, sides[1]), (32, sides[0]), (16, "")):
        x = net.resized(conv(x, channels), 2, "nearest")
        x = conv(net.Concat(x, side, axis=1) if side else x, channels)
    return net.model(net.Sigmoid(conv(x, 1)))


def espcn() -> onnx.ModelProto:
    """Build ESPCN and EDSR: residual convolutions, then depth to space."""
    net = Net()
    x = first = net.conv(net.input("x", 1, 3, 96, 96), 32, 5)
    for _ in range(3):
        y = net.PRelu(net.conv(x, 32, 3), net.constant(np.full((32, 1, 1), 0.25)))
        x = net.Add(x, net.conv(y, 32, 3))
    x = net.conv(net.Add(x, first), 3 * 9, 3)
    return net.model(net.DepthToSpace(x, blocksize=3, mode="CRD"))


def fsrcnn() -> onnx.ModelProto:
    """Build FSRCNN: a transposed convolution of 9x9 and stride 3."""
    net = Net()
    x = net.LeakyRelu(net.conv(net.input("x", 1, 1, 96, 96), 56, 5))
    x = net.LeakyRelu(net.conv(x, 12, 1))
    for _ in range(4):
        x = net.LeakyRelu(net.conv(x, 12, 3))
    return net.model(net.transposed(net.LeakyRelu(net.conv(x, 56, 1)), 1, 9, 3, 4, more=2))


def cubic_residual() -> onnx.ModelProto:
    """Build VDSR: cubic Resize, then what is missing in its result."""
    net = Net()
    large = net.resized(net.input("x", 1, 3, 64, 64), 2, "cubic", cubic_coeff_a=-0.5)
    x = net.Relu(net.conv(large, 24, 3))
    for _ in range(3):
        x = net.Relu(net.conv(x, 24, 3))
    return net.model(net.Add(large, net.conv(x, 3, 3)))


def matting() -> onnx.ModelProto:
    """Build background matting: a small antialiased image, refined at full size."""
    net = Net()
    image = net.input("x", 1, 3, 256, 256)
    small = net.resized(image, 0.25, "linear", antialias=1)
    x = net.conv(net.Relu(net.normed(net.conv(small, 32, 3))), 32, 3)
    x = net.Relu(net.conv(net.resized(net.Relu(x), 4), 8, 1))
    return net.model(net.Sigmoid(net.conv(net.Concat(image, x, axis=1), 4, 3)))


def style() -> onnx.ModelProto:
    """Build fast style transfer: edges mirrored, instances normalised, convolutions of 9x9."""
    net = Net()

    def conv(x: str, channels: int, kernel: int, stride: int = 1) -> str:
        pad = kernel // 2
        padded = net.Pad(x, net.integers(0, 0, pad, pad, 0, 0, pad, pad), mode="reflect")
        return net.normed(net.conv(padded, channels, kernel, stride, pads=[0] * 4), "instance")

    x = net.Relu(conv(net.input("x", 1, 3, 128, 128), 16, 9))
    x = net.Relu(conv(net.Relu(conv(x, 32, 3, 2)), 64, 3, 2))
    for _ in range(2):
        x = net.Add(x, conv(net.Relu(conv(x, 64, 3)), 64, 3))
    for channels in (32, 16):
        x = net.Relu(conv(net.resized(x, 2, "nearest"), channels, 3))
    return net.model(net.Tanh(conv(x, 3, 9)))


def hrnet() -> onnx.ModelProto:
    """Build HRNet: branches of several sizes that exchange what they have."""
    net = Net()
    high = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 128, 128), 32, 3, 4, pads=[1] * 4)))
    low = net.Relu(net.normed(net.conv(high, 64, 3, 2, pads=[1] * 4)))
    for _ in range(2):
        high, low = pair(net, high, 32), pair(net, low, 64)
        up = net.resized(net.normed(net.conv(low, 32, 1)), 2)
        down = net.normed(net.conv(high, 64, 3, 2, pads=[1] * 4))
        high, low = net.Relu(net.Add(high, up)), net.Relu(net.Add(low, down))
    return net.model(net.conv(net.Concat(high, net.resized(low, 2), axis=1), 17, 1))


def flow() -> onnx.ModelProto:
    """Build optical flow: all pairs of places compared, samples between pixels, a gated update."""
    net = Net()
    images = net.input("x", 2, 3, 96, 96)
    x = net.Relu(net.normed(net.conv(images, 32, 7, 2, pads=[3] * 4), "instance"))
    x = net.conv(net.Relu(net.conv(x, 64, 3, 2, pads=[1] * 4)), 64, 3)
    first, second = net.Split(x, outputs=2, axis=0, num_outputs=2)
    left = net.Transpose(net.reshape(first, 64, 576), perm=[1, 0])
    costs = net.reshape(net.MatMul(left, net.reshape(second, 64, 576)), 576, 1, 24, 24)
    grid = net.constant(net.random.uniform(-1, 1, (576, 3, 3, 2)))
    hidden = net.reshape(net.Tanh(first), 1, 64, 24, 24)
    for _ in range(2):
        seen = net.GridSample(costs, grid, mode="linear", align_corners=1)
        seen = net.Transpose(net.reshape(seen, 576, 9), perm=[1, 0])
        both = net.Concat(hidden, net.reshape(seen, 1, 9, 24, 24), axis=1)
        gate = net.Sigmoid(net.conv(both, 64, 3))
        new = net.Tanh(net.conv(both, 64, 3))
        hidden = net.Add(net.Mul(gate, new), net.Mul(net.Sub(net.constant(1), gate), hidden))
    return net.model(net.conv(hidden, 2, 3))


PIXELS = (
    unet, deeplab, segformer, pspnet, yolo, ssd, detr, depth_decoder, monodepth, espcn, fsrcnn, cubic_residual,
    matting, style, hrnet, flow,
)  # fmt: skip
