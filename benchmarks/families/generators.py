"""Models that make images and volumes: GANs, decoders of latents, diffusion, 3-D networks, radiance fields."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net
from benchmarks.families.pixels import pair


def dcgan() -> onnx.ModelProto:
    """Build DCGAN's generator: transposed convolutions of 4x4 and stride 2."""
    net = Net()
    x = net.input("z", 1, 100, 1, 1)
    x = net.Relu(net.normed(net.transposed(x, 256, 4, 1)))
    for channels in (128, 64, 32):
        x = net.Relu(net.normed(net.transposed(x, channels, 4, 2, 1)))
    return net.model(net.Tanh(net.transposed(x, 3, 4, 2, 1)))


def pix2pix() -> onnx.ModelProto:
    """Build pix2pix: a U-Net of strided and transposed convolutions, instances normalised."""
    net = Net()
    x, sides = net.input("x", 1, 3, 128, 128), []
    for channels in (32, 64, 128, 128):
        x = net.LeakyRelu(net.normed(net.conv(x, channels, 4, 2, pads=[1] * 4), "instance"), alpha=0.2)
        sides.append(x)
    for channels, side in zip((128, 64, 32), sides[-2::-1], strict=True):
        x = net.Concat(net.Relu(net.normed(net.transposed(x, channels, 4, 2, 1), "instance")), side, axis=1)
    return net.model(net.Tanh(net.transposed(x, 3, 4, 2, 1)))


def style_gan() -> onnx.ModelProto:
    """Build StyleGAN: convolutions whose channels a latent scales, blurred after Resize, noise added."""
    net = Net()
    latent = net.input("z", 1, 64)
    for _ in range(3):
        latent = net.LeakyRelu(net.dense(latent, 64), alpha=0.2)
    x = net.weights(1, 64, 8, 8, terms=1)
    blur = net.constant(np.tile(np.outer([1, 2, 1], [1, 2, 1]) / 16, (64, 1, 1, 1)))
    for size in (16, 32, 64):
        x = net.Conv(net.resized(x, 2, "nearest"), blur, pads=[1] * 4, group=64)
        scales = net.reshape(net.dense(latent, 64), 1, 64, 1, 1)
        x = net.Add(net.conv(net.Mul(x, scales), 64, 3), net.weights(1, 1, size, size))
        x = net.LeakyRelu(net.normed(x, "instance"), alpha=0.2)
    return net.model(net.conv(x, 3, 1))


def latent_decoder() -> onnx.ModelProto:
    """Build the decoder of a VAE: residual blocks of group normalisation and Swish, attention at the lowest size."""
    net = Net()
    x = residual(net, net.conv(net.input("z", 1, 4, 16, 16), 64, 3), 64)
    x = image_attention(net, x)
    for channels in (64, 32):
        x = residual(net, net.conv(net.resized(x, 2, "nearest"), channels, 3), channels)
    return net.model(net.conv(net.swish(net.normed(x, "group")), 3, 3))


def residual(net: Net, x: str, channels: int, time: str = "") -> str:
    """Return a residual block; ``time`` is added between its convolutions."""
    y = net.conv(net.swish(net.normed(x, "group")), channels, 3)
    if time:
        y = net.Add(y, net.reshape(net.dense(net.swish(time), channels), 1, channels, 1, 1))
    y = net.conv(net.swish(net.normed(y, "group")), channels, 3)
    short = x if net.shape(x)[1] == channels else net.conv(x, channels, 1)
    return net.Add(short, y)


def image_attention(net: Net, x: str) -> str:
    """Return an image after attention among its places."""
    shape = net.shape(x)
    tokens = net.Transpose(net.reshape(net.normed(x, "group"), 1, shape[1], -1), perm=[0, 2, 1])
    y = net.Transpose(net.attention(tokens, 4), perm=[0, 2, 1])
    return net.Add(x, net.reshape(y, *shape))


def diffusion() -> onnx.ModelProto:
    """Build the U-Net of a diffusion model: a time embedded, group normalisation, attention."""
    net = Net()
    x, time = net.input("x", 1, 4, 32, 32), net.input("t", 1, 1)
    angles = net.Mul(time, net.constant(np.exp(-np.arange(16) / 2).reshape(1, 16)))
    time = net.dense(net.Concat(net.Sin(angles), net.Cos(angles), axis=1), 128)
    x = net.conv(x, 32, 3)
    sides = [x]
    for channels in (32, 64):
        x = residual(net, x, channels, time)
        sides.append(x)
        x = net.conv(x, channels, 3, 2, pads=[1] * 4)
    x = image_attention(net, residual(net, x, 64, time))
    for channels in (64, 32):
        x = net.conv(net.resized(x, 2, "nearest"), channels, 3)
        x = residual(net, net.Concat(x, sides.pop(), axis=1), channels, time)
    return net.model(net.conv(net.swish(net.normed(x, "group")), 4, 3))


def unet_3d() -> onnx.ModelProto:
    """Build a 3-D U-Net: convolutions of 3x3x3, instances normalised, transposed convolutions of 2x2x2."""
    net = Net()
    x, sides = net.input("x", 1, 1, 32, 48, 48), []
    for channels in (8, 16):
        sides.append(pair(net, x, channels, "instance"))
        x = net.MaxPool(sides[-1], kernel_shape=[2] * 3, strides=[2] * 3)
    x = pair(net, x, 32, "instance")
    for side in reversed(sides):
        channels = net.shape(side)[1]
        x = pair(net, net.Concat(side, net.transposed(x, channels, 2, 2), axis=1), channels, "instance")
    return net.model(net.conv(x, 3, 1))


def video() -> onnx.ModelProto:
    """Build R(2+1)D: convolutions in the image, then in time."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 3, 8, 56, 56), 24, (1, 7, 7), pads=[0, 3, 3, 0, 3, 3]))
    x = net.Relu(net.normed(net.conv(x, 32, (3, 1, 1))))
    x = net.MaxPool(x, kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    for channels in (32, 64):
        y = net.Relu(net.normed(net.conv(x, channels, (1, 3, 3))))
        y = net.normed(net.conv(y, channels, (3, 1, 1)))
        x = net.Relu(net.Add(y, x if net.shape(x)[1] == channels else net.conv(x, channels, 1)))
    x = net.AveragePool(x, kernel_shape=[2] * 3, strides=[2] * 3)
    return net.model(net.dense(net.mean(x, 2, 3, 4, keep=False), 50))


def radiance_field() -> onnx.ModelProto:
    """Build NeRF: positions as sines and cosines, a perceptron, colours summed along rays."""
    net = Net()
    points = net.input("points", 64, 32, 3)
    angles = net.reshape(
        net.Mul(net.Unsqueeze(points, net.integers(-1)), net.constant(2.0 ** np.arange(8))), 64, 32, 24
    )
    encoded = net.Concat(points, net.Sin(angles), net.Cos(angles), axis=-1)
    x = encoded
    for layer in range(4):
        x = net.Relu(net.dense(net.Concat(x, encoded, axis=-1) if layer == 2 else x, 128))
    density, colour = net.Relu(net.dense(x, 1)), net.Sigmoid(net.dense(x, 3))
    alpha = net.Sub(net.constant(1), net.Exp(net.Neg(density)))
    passed = net.CumSum(net.Log(net.Sub(net.constant(1.0001), alpha)), net.constant(1, np.int64), exclusive=1)  # type: ignore[arg-type]
    share = net.Mul(alpha, net.Exp(passed))
    return net.model(net.ReduceSum(net.Mul(share, colour), net.integers(1), keepdims=0))


def autoencoder() -> onnx.ModelProto:
    """Build a vector-quantised autoencoder: the nearest of 256 codes by ArgMin and Gather."""
    net = Net()
    x = net.conv(net.Relu(net.conv(net.input("x", 1, 3, 64, 64), 32, 4, 2, pads=[1] * 4)), 64, 4, 2, pads=[1] * 4)
    rows = net.reshape(net.Transpose(x, perm=[0, 2, 3, 1]), -1, 64)
    codes = net.random.standard_normal((256, 64))
    product = net.MatMul(rows, net.constant(-2 * codes.T))
    nearest = net.ArgMin(net.Add(product, net.constant((codes**2).sum(1))), axis=1, keepdims=0)
    chosen = net.reshape(net.Gather(net.constant(codes), nearest, axis=0), 1, 16, 16, 64)
    y = net.Relu(net.transposed(net.Transpose(chosen, perm=[0, 3, 1, 2]), 32, 4, 2, 1))
    return net.model(net.transposed(y, 3, 4, 2, 1))


GENERATORS = (
    dcgan, pix2pix, style_gan, latent_decoder, diffusion, unet_3d, video, radiance_field, autoencoder,
)  # fmt: skip
