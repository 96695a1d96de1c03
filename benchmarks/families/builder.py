"""A graph under construction, as short as the code of a framework: operators with their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graft.testkit.models import net


class Net(net.Net):
    """An ONNX graph with the layers that networks are made of.

    Weights are normal numbers over the root of how many of them make a sum, from a generator with a seed.
    """

    def weights(self, *shape: int, terms: int | None = None) -> str:
        """Return random weights, as large as keeps the size of a sum of ``terms`` (all but the first axis)."""
        scale = 1 / np.sqrt(terms or max(1, int(np.prod(shape[1:]))))
        return self.constant(self.random.standard_normal(shape) * scale)

    def positive(self, *shape: int) -> str:
        """Return weights around one, such as the scales of a normalisation."""
        return self.constant(self.random.uniform(0.5, 1.5, shape))

    def conv(
        self, x: str, channels: int, kernel: int | Sequence[int] = 3, stride: int = 1, *, group: int = 1,
        dilation: int = 1, pads: Sequence[int] | None = None, bias: bool = True,
    ) -> str:  # fmt: skip
        """Return a convolution over all axes behind the second; it keeps the size unless ``pads`` say otherwise."""
        shape = self.shape(x)
        rank = len(shape) - 2
        sizes = [kernel] * rank if isinstance(kernel, int) else list(kernel)
        reach = [(size - 1) * dilation for size in sizes]
        pads = [*(one // 2 for one in reach), *(one - one // 2 for one in reach)] if pads is None else pads
        inputs = [x, self.weights(channels, shape[1] // group, *sizes)]
        if bias:
            inputs.append(self.weights(channels))
        return self.Conv(*inputs, strides=[stride] * rank, dilations=[dilation] * rank, group=group, pads=pads)

    def transposed(
        self, x: str, channels: int, kernel: int, stride: int, pad: int = 0, *, group: int = 1, more: int = 0
    ) -> str:
        """Return a transposed convolution; ``more`` is its output padding."""
        shape = self.shape(x)
        rank = len(shape) - 2
        terms = max(1, shape[1] * kernel**rank // (stride**rank * group))
        inputs = [x, self.weights(shape[1], channels // group, *[kernel] * rank, terms=terms), self.weights(channels)]
        settings = {"strides": [stride] * rank, "pads": [pad] * 2 * rank, "output_padding": [more] * rank}
        return self.ConvTranspose(*inputs, group=group, **settings)

    def dense(self, x: str, features: int, *, bias: bool = True) -> str:
        """Return a product over the last axis, and a bias."""
        product: str = self.MatMul(x, self.weights(self.shape(x)[-1], features, terms=self.shape(x)[-1]))
        return self.Add(product, self.weights(features)) if bias else product

    def normed(self, x: str, kind: str = "batch", groups: int = 8) -> str:
        """Return a value normalised as a ``batch``, ``instance``, ``group``, ``layer`` or by ``rms``."""
        shape = self.shape(x)
        channels = shape[-1] if kind in ("layer", "rms") else shape[1]
        scale, bias = self.positive(channels), self.weights(channels)
        if kind == "batch":
            return self.BatchNormalization(x, scale, bias, self.weights(channels), self.positive(channels))
        if kind == "instance":
            return self.InstanceNormalization(x, scale, bias)
        if kind == "group":  # as exporters write it, by instances
            flat = self.reshape(x, 0, groups, -1)
            ones = self.constant(np.ones(groups)), self.constant(np.zeros(groups))
            split = self.Reshape(self.InstanceNormalization(flat, *ones), self.integers(*shape))
            per = (channels, *(1,) * (len(shape) - 2))
            return self.Add(self.Mul(split, self.reshape(scale, *per)), self.reshape(bias, *per))
        if kind == "layer":
            return self.LayerNormalization(x, scale, bias, axis=-1)
        assert kind == "rms", kind
        mean = self.ReduceMean(self.Mul(x, x), self.integers(-1), keepdims=1)
        root = self.Sqrt(self.Add(mean, self.constant(1e-6)))
        return self.Mul(self.Div(x, root), scale)

    def swish(self, x: str) -> str:
        """Return ``x * sigmoid(x)`` as exporters write it."""
        return self.Mul(x, self.Sigmoid(x))

    def gelu(self, x: str) -> str:
        """Return Gelu in pieces, as exporters write it."""
        inner = self.Add(self.Erf(self.Div(x, self.constant(np.sqrt(2)))), self.constant(1))
        return self.Mul(self.Mul(x, inner), self.constant(0.5))

    def resized(self, x: str, scale: float, mode: str = "linear", **attributes: Any) -> str:
        """Return images of another size."""
        rank = len(self.shape(x))
        scales = self.constant([1.0, 1.0] + [scale] * (rank - 2))
        if mode == "nearest":
            attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.Resize(x, "", scales, mode=mode, **attributes)

    def reshape(self, x: str, *shape: int) -> str:
        """Return a value in another shape."""
        return self.Reshape(x, self.integers(*shape))

    def mean(self, x: str, *axes: int, keep: bool = True) -> str:
        """Return means along axes."""
        return self.ReduceMean(x, self.integers(*axes), keepdims=int(keep))

    def attention(self, x: str, heads: int, *, memory: str = "", bias: str = "", is_masked: bool = False) -> str:
        """Return multi-head attention over ``[batch, length, features]``, without what it is added to.

        ``bias`` is added to the scores. With ``is_masked`` rows without any number are zeros, as PyTorch writes it.
        """
        batch, length, features = self.shape(x)
        size = features // heads
        source = memory or x
        count = self.shape(source)[1]
        q = self.Transpose(self.reshape(self.dense(x, features), batch, length, heads, size), perm=[0, 2, 1, 3])
        k = self.Transpose(self.reshape(self.dense(source, features), batch, count, heads, size), perm=[0, 2, 3, 1])
        v = self.Transpose(self.reshape(self.dense(source, features), batch, count, heads, size), perm=[0, 2, 1, 3])
        scores = self.Mul(self.MatMul(q, k), self.constant(1 / np.sqrt(size)))
        if bias:
            scores = self.Add(scores, bias)
        shares = self.Softmax(scores, axis=-1)
        if is_masked:
            shares = self.Where(self.IsNaN(shares), self.constant(0), shares)
        joined = self.Transpose(self.MatMul(shares, v), perm=[0, 2, 1, 3])
        return self.dense(self.reshape(joined, batch, length, features), features)

    def block(self, x: str, heads: int, wide: int = 4, **settings: Any) -> str:
        """Return a layer of a Transformer, normalised before its parts."""
        x = self.Add(x, self.attention(self.normed(x, "layer"), heads, **settings))
        features = self.shape(x)[-1]
        return self.Add(x, self.dense(self.gelu(self.dense(self.normed(x, "layer"), wide * features)), features))
