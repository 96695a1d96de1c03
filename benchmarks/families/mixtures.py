"""Networks that mix kinds: convolutions with attention, recurrence over images, points on a canvas, codebooks."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.families.builder import Net
from benchmarks.families.images import head


def cross_covariance() -> onnx.ModelProto:
    """Build XCiT: attention between channels, of queries and keys of unit length, and depthwise convolutions."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 112, 112), 64, 3, 2)))
    x = net.conv(net.Relu(net.normed(net.conv(x, 128, 3, 2))), 192, 3, 2)
    _, features, high, wide = net.shape(x)
    x = net.Transpose(net.reshape(x, 1, features, high * wide), perm=[0, 2, 1])
    for _ in range(3):
        parts = net.reshape(net.dense(net.normed(x, "layer"), 3 * features), 1, high * wide, 3, 6, features // 6)
        q, k, v = (net.Squeeze(one, net.integers(0)) for one in _thirds(net, parts))
        q, k = (net.Div(one, net.ReduceL2(one, net.integers(-1), keepdims=1)) for one in (q, k))
        scores = net.Mul(net.MatMul(q, net.Transpose(k, perm=[0, 1, 3, 2])), net.positive(6, 1, 1))
        mixed = net.Transpose(net.MatMul(net.Softmax(scores, axis=-1), v), perm=[0, 3, 1, 2])
        x = net.Add(x, net.dense(net.reshape(mixed, 1, high * wide, features), features))
        image = net.reshape(net.Transpose(net.normed(x, "layer"), perm=[0, 2, 1]), 1, features, high, wide)
        image = net.conv(
            net.normed(net.gelu(net.conv(image, features, 3, group=features))), features, 3, group=features
        )
        x = net.Add(x, net.Transpose(net.reshape(image, 1, features, high * wide), perm=[0, 2, 1]))
        x = net.Add(x, net.dense(net.gelu(net.dense(net.normed(x, "layer"), 4 * features)), features))
    return net.model(net.dense(net.mean(x, 1, keep=False), 100))


def _thirds(net: Net, parts: str) -> tuple[str, ...]:
    """Return queries, keys and values ``[1, 1, heads, size, length]`` of a joint product."""
    transposed = net.Transpose(parts, perm=[2, 0, 3, 4, 1])
    return tuple(net.Split(transposed, outputs=3, axis=0, num_outputs=3))


def spatial_gates() -> onnx.ModelProto:
    """Build gMLP: half of the features gate the others by a product along the positions."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 112, 112), 128, 8, 8, pads=[0] * 4)
    x = net.Transpose(net.reshape(x, 1, 128, 196), perm=[0, 2, 1])
    for _ in range(4):
        wide = net.gelu(net.dense(net.normed(x, "layer"), 768))
        kept, gate = net.Split(wide, outputs=2, axis=-1, num_outputs=2)
        gate = net.Add(net.MatMul(net.weights(196, 196), net.normed(gate, "layer")), net.positive(196, 1))
        x = net.Add(x, net.dense(net.Mul(kept, gate), 128))
    return net.model(net.dense(net.mean(net.normed(x, "layer"), 1, keep=False), 100))


def mobile_vit() -> onnx.ModelProto:
    """Build MobileViT: inverted residuals, and Transformers over the pixels of patches that are folded apart."""
    net = Net()
    x = net.swish(net.normed(net.conv(net.input("x", 1, 3, 128, 128), 16, 3, 2)))
    for channels, stride in ((32, 2), (48, 2)):
        wide = net.swish(net.normed(net.conv(x, 4 * net.shape(x)[1], 1)))
        wide = net.swish(net.normed(net.conv(wide, net.shape(wide)[1], 3, stride, group=net.shape(wide)[1])))
        x = net.normed(net.conv(wide, channels, 1))
    for features in (64, 80):
        local = net.conv(net.swish(net.normed(net.conv(x, net.shape(x)[1]))), features, 1)
        _, _, high, wide = net.shape(local)
        folded = net.reshape(local, features, high // 2, 2, wide // 2, 2)
        tokens = net.reshape(net.Transpose(folded, perm=[2, 4, 1, 3, 0]), 4, high * wide // 4, features)
        for _ in range(2):
            tokens = net.block(tokens, 4, wide=2)
        folded = net.reshape(tokens, 2, 2, high // 2, wide // 2, features)
        image = net.reshape(net.Transpose(folded, perm=[4, 2, 0, 3, 1]), 1, features, high, wide)
        image = net.swish(net.normed(net.conv(image, net.shape(x)[1], 1)))
        x = net.swish(net.normed(net.conv(net.Concat(x, image, axis=1), net.shape(x)[1])))
    return head(net, net.swish(net.normed(net.conv(x, 320, 1))))


def text_lines() -> onnx.ModelProto:
    """Build CRNN: a line of text as an image, convolutions down to one row, and LSTMs in both directions."""
    net = Net()
    x = net.input("x", 1, 1, 32, 160)
    for channels, pool in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1))):
        x = net.Relu(net.normed(net.conv(x, channels)))
        x = net.MaxPool(x, kernel_shape=pool, strides=pool)
    x = net.Relu(net.conv(x, 128, (2, 1), pads=[0] * 4))
    x = net.Transpose(net.Squeeze(x, net.integers(2)), perm=[2, 0, 1])
    for _ in range(2):
        length, batch, features = net.shape(x)
        weights = net.weights(2, 512, features), net.weights(2, 512, 128), net.weights(2, 1024)
        steps, *_ = net.LSTM(x, *weights, outputs=3, direction="bidirectional", hidden_size=128)
        x = net.reshape(net.Transpose(steps, perm=[0, 2, 1, 3]), length, batch, 256)
    return net.model(net.LogSoftmax(net.dense(x, 96), axis=-1))


def dense_residuals() -> onnx.ModelProto:
    """Build ESRGAN: dense blocks that grow by Concats, scaled residuals, and nearest neighbours twice as large."""
    net = Net()
    x = first = net.conv(net.input("x", 1, 3, 48, 48), 32)
    for _ in range(3):
        grown = [x]
        for _ in range(4):
            joined = net.Concat(*grown, axis=1) if len(grown) > 1 else x
            grown.append(net.LeakyRelu(net.conv(joined, 16), alpha=0.2))
        scaled = net.Mul(net.conv(net.Concat(*grown, axis=1), 32), net.constant(0.2))
        x = net.Add(x, scaled)
    x = net.Add(first, net.conv(x, 32))
    for _ in range(2):
        x = net.LeakyRelu(net.conv(net.resized(x, 2, "nearest"), 32), alpha=0.2)
    return net.model(net.conv(x, 3))


def keypoints() -> onnx.ModelProto:
    """Build SuperPoint: a heat map from cells by DepthToSpace, its maxima, and descriptors sampled where they are."""
    net = Net()
    x = net.input("x", 1, 1, 96, 128)
    for channels in (32, 32, 64):
        x = net.Relu(net.conv(net.Relu(net.conv(x, channels)), channels))
        x = net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])
    cells = net.Softmax(net.conv(net.Relu(net.conv(x, 128)), 65, 1), axis=1)
    cells = net.Slice(cells, net.integers(0), net.integers(64), net.integers(1))
    heat = net.DepthToSpace(cells, blocksize=8)
    largest = net.MaxPool(heat, kernel_shape=[9, 9], pads=[4] * 4, strides=[1, 1])
    kept = net.Where(net.Equal(heat, largest), heat, net.constant(0))
    scores, index = net.TopK(net.reshape(kept, 1, -1), net.integers(100), outputs=2, axis=-1)
    row, column = net.Div(index, net.integers(128)), net.Mod(index, net.integers(128))
    places = [
        net.Sub(net.Div(net.Cast(one, to=TensorProto.FLOAT), net.constant(half)), net.constant(1))
        for one, half in ((column, 63.5), (row, 47.5))
    ]
    grid = net.Unsqueeze(net.Concat(*(net.Unsqueeze(one, net.integers(-1)) for one in places), axis=-1),
               net.integers(1))  # fmt: skip
    descriptors = net.conv(net.Relu(net.conv(x, 128)), 128, 1)
    sampled = net.GridSample(descriptors, grid, mode="linear", align_corners=1)
    return net.model(scores, net.LpNormalization(net.Squeeze(sampled, net.integers(2)), axis=1, p=2))


def regions() -> onnx.ModelProto:
    """Build Mask R-CNN's heads: RoiAlign of an image's features, products for classes, ConvTranspose for masks."""
    net = Net()
    x = net.Relu(net.normed(net.conv(net.input("x", 1, 3, 96, 96), 32, 7, 2)))
    x = net.Relu(net.conv(net.Relu(net.conv(x, 64, 3, 2)), 64))
    corner = net.random.uniform(0, 48, (24, 2))
    boxes = net.constant(np.concatenate([corner, corner + net.random.uniform(8, 48, (24, 2))], 1))
    settings = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.25}
    crops = net.RoiAlign(x, boxes, net.constant(np.zeros(24), np.int64), **settings)  # type: ignore[arg-type]
    flat = net.Relu(net.dense(net.reshape(crops, 24, -1), 256))
    masks = net.Relu(net.conv(net.Relu(net.conv(crops, 64)), 64))
    masks = net.Sigmoid(net.conv(net.Relu(net.transposed(masks, 64, 2, 2)), 10, 1))
    return net.model(net.Softmax(net.dense(flat, 11), axis=-1), net.dense(flat, 40), masks)


def codebooks() -> onnx.ModelProto:
    """Build SoundStream's quantiser: the nearest of many vectors, again for what is left, between convolutions."""
    net = Net()
    x = net.conv(net.input("x", 1, 1, 3200), 16, 7)
    for channels in (32, 64, 128):
        x = net.Elu(net.conv(net.Elu(net.conv(x, net.shape(x)[1])), channels, 8, 4, pads=[2, 2]))
    rest, summed = net.Transpose(net.Squeeze(x, net.integers(0)), perm=[1, 0]), ""
    for _ in range(4):
        book = net.random.standard_normal((512, 128)) * 0.3
        far = net.Sub(net.constant((book**2).sum(1)), net.MatMul(rest, net.constant(2 * book.T)))
        chosen = net.Gather(net.constant(book), net.ArgMin(far, axis=-1, keepdims=0), axis=0)
        rest = net.Sub(rest, chosen)
        summed = net.Add(summed, chosen) if summed else chosen
    x = net.Unsqueeze(net.Transpose(summed, perm=[1, 0]), net.integers(0))
    for channels in (64, 32, 16):
        x = net.Elu(net.conv(net.Elu(net.transposed(x, channels, 8, 4, 2)), channels))
    return net.model(net.Tanh(net.conv(x, 1, 7)))


def linear_recurrence() -> onnx.ModelProto:
    """Build RWKV: shifts in time, and a weighted mean whose exponents do not overflow, step by step in a Scan."""
    net = Net()
    x = net.input("x", 64, 128)
    for _ in range(2):
        normed = net.normed(x, "layer")
        last = net.Concat(net.constant(np.zeros((1, 128))), _first(net, normed, 63), axis=0)
        r, k, v = (
            net.dense(net.Add(normed, net.Mul(net.Sub(last, normed), net.weights(128, terms=4))), 128, bias=False)
            for _ in range(3)
        )
        states = [net.constant(np.zeros(128)), net.constant(np.zeros(128)), net.constant(np.full(128, -1e30))]
        *_, mixed = net.Scan(*states, k, v, outputs=4, num_scan_inputs=2, body=_weighted_mean())
        x = net.Add(x, net.dense(net.Mul(net.Sigmoid(r), mixed), 128))
        inner = net.Relu(net.dense(net.normed(x, "layer"), 512))
        x = net.Add(x, net.dense(net.Mul(inner, inner), 128))
    return net.model(net.dense(net.normed(x, "layer"), 256))


def _first(net: Net, x: str, count: int) -> str:
    return str(net.Slice(x, net.integers(0), net.integers(count), net.integers(0)))


def _weighted_mean() -> onnx.GraphProto:
    """Return a step: sums of exp(k) v and exp(k), divided by the exponential of their largest exponent."""
    generator = np.random.default_rng(1)
    decay, bonus = (generator.uniform(-1, 0, 128).astype(np.float32) for _ in range(2))
    text = """step (float[128] a, float[128] b, float[128] p, float[128] k, float[128] v)
      => (float[128] a2, float[128] b2, float[128] p2, float[128] y) {
      kb = Add(k, bonus) q = Max(p, kb) e1 = Exp(pq) e2 = Exp(kq)
      n1 = Mul(e1, a) n2 = Mul(e2, v) n = Add(n1, n2) d1 = Mul(e1, b) d = Add(d1, e2) y = Div(n, d)
      pd = Add(p, decay) p2 = Max(pd, k) f1 = Exp(pp) f2 = Exp(kp)
      m1 = Mul(f1, a) m2 = Mul(f2, v) a2 = Add(m1, m2) o1 = Mul(f1, b) b2 = Add(o1, f2) }"""
    text = text.replace("e1 = Exp(pq)", "pq = Sub(p, q) kq = Sub(kb, q) e1 = Exp(pq)")
    text = text.replace("f1 = Exp(pp)", "pp = Sub(pd, p2) kp = Sub(k, p2) f1 = Exp(pp)")
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(
        helper.make_tensor(name, TensorProto.FLOAT, [128], array)
        for name, array in (("decay", decay), ("bonus", bonus))
    )
    return graph


def pillars() -> onnx.ModelProto:
    """Build PointPillars: products per point, their maxima, written to a canvas, and a convolutional backbone."""
    net = Net()
    points = net.input("points", 400, 16, 9)
    x = net.ReduceMax(net.Relu(net.dense(points, 32)), net.integers(1), keepdims=0)
    places = np.stack([net.random.permutation(48 * 48)[:400]], 1)
    canvas = net.ScatterND(net.constant(np.zeros((48 * 48, 32))), net.constant(places, np.int64), x)  # type: ignore[arg-type]
    x = net.reshape(net.Transpose(canvas, perm=[1, 0]), 1, 32, 48, 48)
    levels = []
    for channels, scale in ((32, 1), (64, 2), (96, 4)):
        x = net.Relu(net.normed(net.conv(x, channels, 3, 1 if scale == 1 else 2)))
        x = net.Relu(net.normed(net.conv(x, channels)))
        levels.append(net.Relu(net.normed(net.transposed(x, 48, scale, scale) if scale > 1 else net.conv(x, 48, 1))))
    joined = net.Concat(*levels, axis=1)
    return net.model(net.Sigmoid(net.conv(joined, 6, 1)), net.conv(joined, 14, 1))


def capsules() -> onnx.ModelProto:
    """Build CapsNet: predictions of every capsule for every class, and three rounds of routing by agreement."""
    net = Net()
    x = net.Relu(net.conv(net.input("x", 1, 1, 28, 28), 64, 9, pads=[0] * 4))
    x = net.conv(x, 64, 9, 2, pads=[0] * 4)
    parts = _squashed(net, net.reshape(net.Transpose(net.reshape(x, 8, 8, 36), perm=[1, 2, 0]), 288, 1, 8, 1), 2)
    votes = net.Squeeze(net.MatMul(net.weights(288, 10, 16, 8, terms=8), parts), net.integers(3))
    logits, out = net.constant(np.zeros((288, 10, 1))), ""
    for turn in range(3):
        out = _squashed(net, net.ReduceSum(net.Mul(net.Softmax(logits, axis=1), votes), net.integers(0)), 2)
        if turn < 2:
            logits = net.Add(logits, net.ReduceSum(net.Mul(votes, out), net.integers(2)))
    return net.model(net.ReduceL2(out, net.integers(2), keepdims=0))


def _squashed(net: Net, x: str, axis: int) -> str:
    square = net.ReduceSum(net.Mul(x, x), net.integers(axis))
    factor = net.Div(net.Sqrt(net.Add(square, net.constant(1e-9))), net.Add(square, net.constant(1)))
    return str(net.Mul(x, factor))


def compression() -> onnx.ModelProto:
    """Build a learned codec of images: normalisation by weighted sums of squares, divisive and its inverse."""
    net = Net()
    x = net.input("x", 1, 3, 96, 96)
    for _ in range(3):
        x = _divided(net, net.conv(x, 48, 5, 2), inverse=False)
    x = net.Round(net.conv(x, 64, 5, 2))
    for _ in range(3):
        x = _divided(net, net.transposed(x, 48, 5, 2, 2, more=1), inverse=True)
    return net.model(net.Clip(net.transposed(x, 3, 5, 2, 2, more=1), net.constant(0), net.constant(1)))


def _divided(net: Net, x: str, *, inverse: bool) -> str:
    channels = net.shape(x)[1]
    gamma = net.constant(np.abs(net.random.standard_normal((channels, channels, 1, 1))) / channels)
    norm = net.Sqrt(net.Conv(net.Mul(x, x), gamma, net.positive(channels), kernel_shape=[1, 1]))
    return str((net.Mul if inverse else net.Div)(x, norm))


MIXTURES = (
    cross_covariance, spatial_gates, mobile_vit, text_lines, dense_residuals, keypoints, regions, codebooks,
    linear_recurrence, pillars, capsules, compression,
)  # fmt: skip
