"""Models of language: relative positions, masks, caches, experts, state spaces, linear recurrences, spectra."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net

INT64 = onnx.TensorProto.INT64


def embedded(net: Net, length: int, features: int, words: int = 1000) -> str:
    """Return the embedding of an input of words."""
    return net.Gather(net.weights(words, features), net.input("words", 1, length, dtype=INT64), axis=0)


def t5() -> onnx.ModelProto:
    """Build T5's encoder: biases of relative positions in buckets, root mean squares, no scaling."""
    net = Net()
    x = embedded(net, 96, 256)
    distance = np.arange(96)[:, None] - np.arange(96)
    buckets = np.where(np.abs(distance) < 8, np.abs(distance), 8 + np.log2(np.maximum(1, np.abs(distance)) / 8)) // 1
    table = net.Gather(net.weights(32, 4), net.constant(buckets, np.int64), axis=0)  # type: ignore[arg-type]
    bias = net.Unsqueeze(net.Transpose(table, perm=[2, 0, 1]), net.integers(0))
    for _ in range(2):
        x = net.Add(x, net.attention(net.normed(x, "rms"), 4, bias=bias))
        y = net.normed(x, "rms")
        gated = net.Mul(net.gelu(net.dense(y, 512, bias=False)), net.dense(y, 512, bias=False))
        x = net.Add(x, net.dense(gated, 256, bias=False))
    return net.model(net.normed(x, "rms"))


def deberta() -> onnx.ModelProto:
    """Build DeBERTa: content to position by GatherElements of one score per distance."""
    net = Net()
    x = embedded(net, 64, 192)
    index = np.tile(np.arange(64)[:, None] - np.arange(64) + 63, (1, 3, 1, 1))
    for _ in range(2):
        q = net.Transpose(net.reshape(net.dense(x, 192), 1, 64, 3, 64), perm=[0, 2, 1, 3])
        scores = net.MatMul(q, net.weights(1, 3, 64, 127, terms=64))
        bias = net.GatherElements(scores, net.constant(index, np.int64), axis=3)  # type: ignore[arg-type]
        x = net.normed(net.Add(x, net.attention(x, 3, bias=bias)), "layer")
        x = net.normed(net.Add(x, net.dense(net.gelu(net.dense(x, 768)), 192)), "layer")
    return net.model(x)


def masked_encoder() -> onnx.ModelProto:
    """Build a masked encoder as PyTorch writes it: rows that see nothing become zeros behind Softmax."""
    net = Net()
    x = embedded(net, 128, 256)
    mask = net.input("mask", 1, 128, dtype=INT64)
    seen = net.Cast(net.reshape(mask, 1, 1, 1, 128), to=onnx.TensorProto.BOOL)
    bias = net.Where(seen, net.constant(0), net.constant(-np.inf))
    for _ in range(2):
        x = net.block(x, 4, bias=bias, is_masked=True)
    return net.model(x)


def experts() -> onnx.ModelProto:
    """Build a mixture of experts: the two best of eight, all computed, weighted by what TopK scattered."""
    net = Net()
    x = embedded(net, 64, 128)
    for _ in range(2):
        x = net.Add(x, net.attention(net.normed(x, "layer"), 4))
        y = net.normed(x, "layer")
        best, index = net.TopK(net.dense(y, 8, bias=False), net.integers(2), outputs=2, axis=-1)
        shares = net.Softmax(best, axis=-1)
        gates = net.ScatterElements(net.constant(np.zeros((1, 64, 8))), index, shares, axis=2)
        wide = net.Relu(net.MatMul(net.reshape(y, 1, 64, 128), net.weights(8, 128, 256, terms=128)))
        each = net.MatMul(wide, net.weights(8, 256, 128, terms=256))
        weighted = net.Mul(each, net.Transpose(gates, perm=[2, 1, 0]))
        x = net.Add(x, net.ReduceSum(weighted, net.integers(0), keepdims=1))
    return net.model(net.dense(net.normed(x, "layer"), 500))


def state_space() -> onnx.ModelProto:
    """Build Mamba: a causal convolution, a selective scan of states, gates."""
    net = Net()
    x = embedded(net, 64, 96)
    for _ in range(2):
        y = net.dense(net.normed(x, "rms"), 384)
        inner, gate = net.Split(y, outputs=2, axis=2, num_outputs=2)
        inner = net.Transpose(inner, perm=[0, 2, 1])
        inner = net.swish(net.Transpose(net.conv(inner, 192, 4, group=192, pads=[3, 0]), perm=[0, 2, 1]))
        step = net.Softplus(net.dense(net.dense(inner, 6), 192))
        into, out = net.dense(inner, 8, bias=False), net.dense(inner, 8, bias=False)
        rates = net.constant(-np.tile(np.arange(1, 9), (192, 1)))
        decay = net.Exp(net.Mul(net.reshape(step, 64, 192, 1), rates))
        added = net.Mul(net.reshape(net.Mul(step, inner), 64, 192, 1), net.reshape(into, 64, 1, 8))
        state = net.constant(np.zeros((192, 8)))
        _state, states = net.Scan(state, decay, added, outputs=2, body=_recurrence(), num_scan_inputs=2)
        read = net.ReduceSum(net.Mul(states, net.reshape(out, 64, 1, 8)), net.integers(2), keepdims=0)
        read = net.Add(net.reshape(read, 1, 64, 192), net.Mul(inner, net.weights(192)))
        x = net.Add(x, net.dense(net.Mul(read, net.swish(gate)), 96))
    return net.model(net.normed(x, "rms"))


def _recurrence() -> onnx.GraphProto:
    """Return the body of a scan: ``state * decay + added``."""
    return onnx.parser.parse_graph(
        "body (float[192,8] state, float[192,8] decay, float[192,8] added) => (float[192,8] next, float[192,8] seen) "
        "{ kept = Mul(state, decay) next = Add(kept, added) seen = Identity(next) }"
    )


def retention() -> onnx.ModelProto:
    """Build RetNet and RWKV: scores times powers of a decay, groups normalised, gates, tokens shifted by one."""
    net = Net()
    x = embedded(net, 96, 192)
    distance = np.arange(96)[:, None] - np.arange(96)
    decays = np.stack([np.where(distance >= 0, (1 - 2.0**-power) ** np.abs(distance), 0) for power in (3, 4, 5)])
    for _ in range(2):
        before = net.Slice(
            net.Pad(x, net.integers(0, 1, 0, 0, 0, 0)), net.integers(0), net.integers(96), net.integers(1)
        )
        y = net.normed(net.Add(x, net.Mul(net.Sub(before, x), net.positive(192))), "layer")
        q, k, v = (net.Transpose(net.reshape(net.dense(y, 192), 1, 96, 3, 64), perm=[0, 2, 1, 3]) for _ in range(3))
        scores = net.Mul(net.MatMul(q, net.Transpose(k, perm=[0, 1, 3, 2])), net.constant(decays[None]))
        read = net.Transpose(net.MatMul(scores, v), perm=[0, 2, 1, 3])
        read = net.Reshape(net.normed(read, "layer"), net.integers(1, 96, 192))
        x = net.Add(x, net.dense(net.Mul(read, net.swish(net.dense(y, 192))), 192))
        x = net.Add(x, net.dense(net.Relu(net.dense(net.normed(x, "layer"), 768)), 192))
    return net.model(x)


def cached_decoder() -> onnx.ModelProto:
    """Build a decoder of one token behind 256 in a cache, rotary positions, grouped queries."""
    net = Net()
    x = embedded(net, 1, 256)
    angles = np.outer([256.0], 10000.0 ** (-np.arange(16) / 16))
    cosine, sine = (net.constant(np.concatenate((one, one), -1)) for one in (np.cos(angles), np.sin(angles)))

    def rotated(value: str) -> str:
        left, right = net.Split(value, outputs=2, axis=3, num_outputs=2)
        rotated = net.Concat(net.Neg(right), left, axis=3)
        return net.Add(net.Mul(value, cosine), net.Mul(rotated, sine))

    caches = []
    for layer in range(4):
        y = net.normed(x, "rms")
        q, k, v = (
            net.Transpose(net.reshape(net.dense(y, 32 * heads, bias=False), 1, 1, heads, 32), perm=[0, 2, 1, 3])
            for heads in (8, 2, 2)
        )
        past = [net.input(f"{one}_{layer}", 1, 2, 256, 32) for one in ("keys", "values")]
        keys, values = net.Concat(past[0], rotated(k), axis=2), net.Concat(past[1], v, axis=2)
        caches += [keys, values]
        wide = [
            net.reshape(net.Expand(net.Unsqueeze(one, net.integers(2)), net.integers(1, 2, 4, 257, 32)), 1, 8, 257, 32)
            for one in (keys, values)
        ]
        scores = net.MatMul(rotated(q), net.Transpose(wide[0], perm=[0, 1, 3, 2]))
        shares = net.Softmax(net.Mul(scores, net.constant(32**-0.5)), axis=-1)
        read = net.reshape(net.Transpose(net.MatMul(shares, wide[1]), perm=[0, 2, 1, 3]), 1, 1, 256)
        x = net.Add(x, net.dense(read, 256, bias=False))
        y = net.normed(x, "rms")
        gated = net.Mul(net.swish(net.dense(y, 688, bias=False)), net.dense(y, 688, bias=False))
        x = net.Add(x, net.dense(gated, 256, bias=False))
    return net.model(net.dense(net.normed(x, "rms"), 4000, bias=False), *caches)


def fourier_mixing() -> onnx.ModelProto:
    """Build FNet: Fourier matrices along places and features in the place of attention."""
    net = Net()
    x = embedded(net, 128, 256)
    sides = [np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) / np.sqrt(n) for n in (128, 256)]
    places, features = ((net.constant(one.real), net.constant(one.imag)) for one in sides)
    for _ in range(3):
        real, imaginary = (net.MatMul(x, one) for one in features)
        mixed = net.Sub(net.MatMul(places[0], real), net.MatMul(places[1], imaginary))
        x = net.normed(net.Add(x, mixed), "layer")
        x = net.normed(net.Add(x, net.dense(net.gelu(net.dense(x, 512)), 256)), "layer")
    return net.model(x)


def text_convolutions() -> onnx.ModelProto:
    """Build TextCNN: convolutions of three widths and the largest of each channel."""
    net = Net()
    x = net.Transpose(embedded(net, 200, 128), perm=[0, 2, 1])
    found = [
        net.ReduceMax(net.Relu(net.conv(x, 100, one, pads=[0, 0])), net.integers(2), keepdims=0) for one in (3, 4, 5)
    ]
    return net.model(net.dense(net.Concat(*found, axis=1), 10))


def perceiver() -> onnx.ModelProto:
    """Build Perceiver: 64 latents that look at 1024 inputs."""
    net = Net()
    source = net.normed(net.dense(net.input("x", 1, 1024, 64), 128), "layer")
    x = net.block(net.weights(1, 64, 128), 4, memory=source)
    for _ in range(3):
        x = net.block(x, 4)
    return net.model(net.dense(net.mean(x, 1, keep=False), 50))


def contrastive() -> onnx.ModelProto:
    """Build CLIP: images and texts to vectors of length one, all pairs compared."""
    net = Net()
    image = net.conv(net.input("image", 1, 3, 112, 112), 128, 16, 16, pads=[0] * 4)
    image = net.Transpose(net.reshape(image, 1, 128, 49), perm=[0, 2, 1])
    sides = []
    for tokens in (image, embedded(net, 32, 128)):
        x = net.mean(net.block(net.block(tokens, 4), 4), 1, keep=False)
        sides.append(net.LpNormalization(net.dense(x, 64), axis=-1, p=2))
    return net.model(net.MatMul(sides[0], net.Transpose(sides[1], perm=[1, 0])))


LANGUAGE = (
    t5, deberta, masked_encoder, experts, state_space, retention, cached_decoder, fourier_mixing, text_convolutions,
    perceiver, contrastive,
)  # fmt: skip
