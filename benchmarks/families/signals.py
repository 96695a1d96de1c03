"""Speech, audio and time series: long one-dimensional convolutions, codecs, vocoders, recurrences, spectra."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net


def wav2vec() -> onnx.ModelProto:
    """Build wav2vec 2.0: strided convolutions of the signal, and a grouped one of normalised weights."""
    net = Net()
    x = net.input("x", 1, 1, 8000)
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (2, 2)):
        x = net.conv(x, 96, kernel, stride, pads=[0, 0], bias=False)
        x = net.gelu(net.normed(x, "instance") if kernel == 10 else x)
    x = net.dense(net.normed(net.Transpose(x, perm=[0, 2, 1]), "layer"), 128)
    direction, size = net.weights(128, 16, 33), net.positive(1, 1, 33)
    norm = net.ReduceL2(direction, net.integers(0, 1), keepdims=1)
    weights = net.Mul(net.Div(direction, norm), size)
    places = net.Conv(net.Transpose(x, perm=[0, 2, 1]), weights, group=8, pads=[16, 16])
    x = net.Add(x, net.Transpose(net.gelu(places), perm=[0, 2, 1]))
    for _ in range(2):
        x = net.block(x, 4)
    return net.model(net.dense(x, 32))


def conformer() -> onnx.ModelProto:
    """Build Conformer: attention with shifted relative positions, gated depthwise convolutions in time."""
    net = Net()
    x = net.dense(net.input("x", 1, 100, 80), 144)
    for _ in range(2):
        x = net.Add(x, net.dense(net.swish(net.dense(net.normed(x, "layer"), 576)), 144))
        q = net.Transpose(net.reshape(net.dense(x, 144), 1, 100, 4, 36), perm=[0, 2, 1, 3])
        places = net.MatMul(q, net.weights(1, 4, 36, 199, terms=36))
        padded = net.Pad(places, net.integers(0, 0, 0, 1, 0, 0, 0, 0))
        frames = net.reshape(padded, 1, 4, 200, 100)
        rows = net.Slice(frames, net.integers(1), net.integers(200), net.integers(2))
        shifted = net.Slice(net.reshape(rows, 1, 4, 100, 199), net.integers(0), net.integers(100), net.integers(3))
        x = net.Add(x, net.attention(net.normed(x, "layer"), 4, bias=shifted))
        y = net.conv(net.Transpose(net.normed(x, "layer"), perm=[0, 2, 1]), 288, 1)
        left, right = net.Split(y, outputs=2, axis=1, num_outputs=2)
        y = net.conv(net.Mul(left, net.Sigmoid(right)), 144, 31, group=144)
        y = net.conv(net.swish(net.normed(y)), 144, 1)
        x = net.Add(x, net.Transpose(y, perm=[0, 2, 1]))
    return net.model(net.LogSoftmax(net.dense(x, 128), axis=-1))


def recurrent_speech() -> onnx.ModelProto:
    """Build Deep Speech 2: convolutions of the spectrum and bidirectional GRUs."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 1, 64, 100), 16, (11, 5), 2, pads=[5, 2, 5, 2]))
    x = net.reshape(net.Transpose(x, perm=[3, 0, 1, 2]), 50, 1, 512)
    for _ in range(2):
        size = net.shape(x)[-1]
        weights = net.weights(2, 384, size, terms=size), net.weights(2, 384, 128, terms=128), net.weights(2, 768)
        y, _last = net.GRU(x, *weights, outputs=2, hidden_size=128, direction="bidirectional", linear_before_reset=1)
        x = net.reshape(net.Transpose(y, perm=[0, 2, 1, 3]), 50, 1, 256)
    return net.model(net.Softmax(net.dense(x, 29), axis=-1))


def speaker() -> onnx.ModelProto:
    """Build ECAPA-TDNN: dilated convolutions in time, means and deviations weighted by attention."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 80, 200), 128, 5))
    for dilation in (2, 3, 4):
        y = net.normed(net.Relu(net.conv(x, 128, 1)))
        first, *others = net.Split(y, outputs=4, axis=1, num_outputs=4)
        parts, last = [first], ""
        for part in others:
            last = net.Relu(net.conv(net.Add(part, last) if last else part, 32, 3, dilation=dilation))
            parts.append(last)
        y = net.conv(net.Concat(*parts, axis=1), 128, 1)
        gate = net.Sigmoid(net.conv(net.Relu(net.conv(net.mean(y, 2), 32, 1)), 128, 1))
        x = net.Add(x, net.Mul(y, gate))
    shares = net.Softmax(net.conv(net.Tanh(net.conv(x, 64, 1)), 128, 1), axis=2)
    mean = net.ReduceSum(net.Mul(shares, x), net.integers(2), keepdims=1)
    square = net.ReduceSum(net.Mul(shares, net.Mul(x, x)), net.integers(2), keepdims=1)
    spread = net.Sqrt(net.Clip(net.Sub(square, net.Mul(mean, mean)), net.constant(1e-6)))
    return net.model(net.conv(net.Concat(mean, spread, axis=1), 96, 1))


def codec() -> onnx.ModelProto:
    """Build a neural codec: a signal made shorter and, by transposed convolutions of twice the stride, longer again."""
    net = Net()
    x = net.conv(net.input("x", 1, 1, 8000), 16, 7)
    for stride in (2, 4, 5):
        channels = net.shape(x)[1]
        y = net.conv(net.Elu(net.conv(net.Elu(x), channels // 2, 3)), channels, 1)
        pad = (stride + 1) // 2
        x = net.conv(net.Elu(net.Add(x, y)), 2 * channels, 2 * stride, stride, pads=[pad, stride - pad])
    x = net.conv(net.Elu(x), 64, 7)
    for stride in (5, 4, 2):
        channels = net.shape(x)[1] // 2
        x = net.transposed(net.Elu(x), channels, 2 * stride, stride, stride // 2, more=stride % 2)
        y = net.conv(net.Elu(net.conv(net.Elu(x), channels, 3)), channels, 1)
        x = net.Add(x, y)
    return net.model(net.conv(net.Elu(x), 1, 7))


def vocoder() -> onnx.ModelProto:
    """Build HiFi-GAN: transposed convolutions of kernel 16 and stride 8, residual blocks of many dilations."""
    net = Net()
    x = net.conv(net.input("x", 1, 80, 40), 128, 7)
    for kernel, stride in ((16, 8), (8, 4), (4, 2)):
        channels = net.shape(x)[1] // 2
        x = net.transposed(net.LeakyRelu(x, alpha=0.1), channels, kernel, stride, (kernel - stride) // 2)
        sums = ""
        for size, dilation in ((3, 1), (7, 3)):
            y = net.conv(net.LeakyRelu(x, alpha=0.1), channels, size, dilation=dilation)
            y = net.Add(x, net.conv(net.LeakyRelu(y, alpha=0.1), channels, size))
            sums = net.Add(sums, y) if sums else y
        x = net.Mul(sums, net.constant(0.5))
    return net.model(net.Tanh(net.conv(net.LeakyRelu(x), 1, 7)))


def source_separation() -> onnx.ModelProto:
    """Build Conv-TasNet: a learned basis, dilated depthwise convolutions, masks, and the basis back."""
    net = Net()
    code = net.Relu(net.conv(net.input("x", 1, 1, 8000), 128, 16, 8, pads=[0, 0], bias=False))
    x = net.conv(net.normed(code, "group", 1), 64, 1)
    for dilation in (1, 2, 4, 8):
        y = net.normed(net.PRelu(net.conv(x, 128, 1), net.constant([[0.25]])), "group", 1)
        y = net.conv(y, 128, 3, group=128, dilation=dilation)
        y = net.normed(net.PRelu(y, net.constant([[0.25]])), "group", 1)
        x = net.Add(x, net.conv(y, 64, 1))
    masks = net.Sigmoid(net.conv(x, 256, 1))
    parts = net.Mul(net.reshape(masks, 2, 128, -1), code)
    return net.model(net.transposed(parts, 1, 16, 8))


def wavenet() -> onnx.ModelProto:
    """Build WaveNet: gated convolutions of dilations that double."""
    net = Net()
    x, skips = net.conv(net.input("x", 1, 1, 4000), 32, 1), ""
    for layer in range(6):
        y = net.conv(x, 64, 2, dilation=2**layer, pads=[2**layer, 0])
        left, right = net.Split(y, outputs=2, axis=1, num_outputs=2)
        y = net.Mul(net.Tanh(left), net.Sigmoid(right))
        x, skip = net.Add(x, net.conv(y, 32, 1)), net.conv(y, 64, 1)
        skips = net.Add(skips, skip) if skips else skip
    return net.model(net.conv(net.Relu(net.conv(net.Relu(skips), 64, 1)), 256, 1))


def spectrum() -> onnx.ModelProto:
    """Build a keyword spotter: windows of the signal times a Fourier matrix, mel bands, separable convolutions."""
    net = Net()
    x = net.input("x", 1, 1, 8000)
    window, angle = np.hanning(400), 2 * np.pi * np.outer(np.arange(201), np.arange(400)) / 400
    basis = np.concatenate((np.cos(angle), -np.sin(angle))) * window
    waves = net.Conv(x, net.constant(basis[:, None]), strides=[160])
    real, imaginary = net.Split(waves, outputs=2, axis=1, num_outputs=2)
    power = net.Add(net.Mul(real, real), net.Mul(imaginary, imaginary))
    bands = net.MatMul(net.constant(np.abs(net.random.standard_normal((40, 201)))), power)
    x = net.Log(net.Add(bands, net.constant(1e-6)))
    for _ in range(3):
        x = net.Relu(net.normed(net.conv(net.conv(x, net.shape(x)[1], 9, group=net.shape(x)[1]), 64, 1)))
    return net.model(net.dense(net.mean(x, 2, keep=False), 12))


def temporal() -> onnx.ModelProto:
    """Build a TCN: causal dilated convolutions of 32 series."""
    net = Net()
    x = net.input("x", 32, 8, 128)
    for layer in range(4):
        y = x
        for _ in range(2):
            y = net.Relu(net.conv(y, 32, 3, dilation=2**layer, pads=[2 ** (layer + 1), 0]))
        x = net.Relu(net.Add(y, x if net.shape(x)[1] == 32 else net.conv(x, 32, 1)))
    last = net.Slice(x, net.integers(127), net.integers(128), net.integers(2))
    return net.model(net.dense(net.reshape(last, 32, 32), 4))


def patches() -> onnx.ModelProto:
    """Build PatchTST: series normalised, cut in patches that overlap, and a Transformer over them."""
    net = Net()
    series = net.input("x", 8, 256, 4)
    mean = net.mean(series, 1)
    centred = net.Sub(series, mean)
    spread = net.Sqrt(net.Add(net.mean(net.Mul(centred, centred), 1), net.constant(1e-5)))
    x = net.reshape(net.Transpose(net.Div(centred, spread), perm=[0, 2, 1]), 32, 256)
    index = (np.arange(31)[:, None] * 8 + np.arange(16)).reshape(-1)
    x = net.dense(net.reshape(net.Gather(x, net.integers(*index), axis=1), 32, 31, 16), 64)
    for _ in range(2):
        x = net.block(net.Add(x, net.weights(31, 64)), 4)
    y = net.Transpose(net.reshape(net.dense(net.reshape(x, 32, 31 * 64), 24), 8, 4, 24), perm=[0, 2, 1])
    return net.model(net.Add(net.Mul(y, spread), mean))


def tagger() -> onnx.ModelProto:
    """Build a tagger: two bidirectional LSTMs over embedded words."""
    net = Net()
    x = net.Gather(net.weights(1000, 100), net.input("words", 40, 1, dtype=onnx.TensorProto.INT64), axis=0)
    for _ in range(2):
        size = net.shape(x)[-1]
        weights = net.weights(2, 512, size, terms=size), net.weights(2, 512, 128, terms=128), net.weights(2, 1024)
        y, _h, _c = net.LSTM(x, *weights, outputs=3, hidden_size=128, direction="bidirectional")
        x = net.reshape(net.Transpose(y, perm=[0, 2, 1, 3]), 40, 1, 256)
    return net.model(net.dense(x, 20))


SIGNALS = (
    wav2vec, conformer, recurrent_speech, speaker, codec, vocoder, source_separation, wavenet, spectrum, temporal,
    patches, tagger,
)  # fmt: skip
