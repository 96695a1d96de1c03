"""Graphs, sets, tables and recommendations: indices that are read and written, pairs, many small products."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.families.builder import Net

INT64 = onnx.TensorProto.INT64
NODES, EDGES = 500, 4000


def edges(net: Net) -> tuple[str, str]:
    """Return where edges begin and end, as they stand in a graph of random edges."""
    return net.integers(*net.random.integers(0, NODES, EDGES)), net.integers(*net.random.integers(0, NODES, EDGES))


def graph_convolution() -> onnx.ModelProto:
    """Build GCN: a dense adjacency times features."""
    net = Net()
    near = net.input("adjacency", NODES, NODES)
    x = net.input("x", NODES, 128)
    for features in (64, 64, 16):
        x = net.Relu(net.MatMul(near, net.dense(x, features)))
    return net.model(net.LogSoftmax(x, axis=-1))


def graph_attention() -> onnx.ModelProto:
    """Build GAT: scores along edges, their softmax by scattered maxima and sums."""
    net = Net()
    x, (source, target) = net.input("x", NODES, 64), edges(net)
    rows = net.Unsqueeze(target, net.integers(1))
    for _ in range(2):
        x = net.dense(x, 64, bias=False)
        scores = net.Add(net.Gather(net.dense(x, 4), source, axis=0), net.Gather(net.dense(x, 4), target, axis=0))
        scores = net.Exp(net.LeakyRelu(scores, alpha=0.2))
        sums = net.ScatterND(net.constant(np.full((NODES, 4), 1e-9)), rows, scores, reduction="add")
        shares = net.Div(scores, net.Gather(sums, target, axis=0))
        sent = net.Mul(net.reshape(net.Gather(x, source, axis=0), EDGES, 4, 16), net.reshape(shares, EDGES, 4, 1))
        x = net.ScatterND(net.constant(np.zeros((NODES, 64))), rows, net.reshape(sent, EDGES, 64), reduction="add")
        x = net.Elu(x)
    return net.model(x)


def messages() -> onnx.ModelProto:
    """Build GraphSAGE and SchNet: filters of distances, messages added by ScatterElements."""
    net = Net()
    x, (source, target) = net.input("x", NODES, 64), edges(net)
    distance = net.input("distance", EDGES, 1)
    centres = net.Sub(distance, net.constant(np.linspace(0, 5, 32)))
    radial = net.Exp(net.Mul(net.Mul(centres, centres), net.constant(-0.5)))
    index = net.Expand(net.Unsqueeze(target, net.integers(1)), net.integers(EDGES, 64))
    for _ in range(2):
        filters = net.dense(net.Softplus(net.dense(radial, 64)), 64)
        sent = net.Mul(net.Gather(net.dense(x, 64), source, axis=0), filters)
        summed = net.ScatterElements(net.constant(np.zeros((NODES, 64))), index, sent, axis=0, reduction="add")
        mean = net.Mul(summed, net.constant(NODES / EDGES))
        x = net.Add(x, net.dense(net.Softplus(net.dense(mean, 64)), 64))
    return net.model(net.ReduceSum(net.dense(x, 1), net.integers(0)))


def point_cloud() -> onnx.ModelProto:
    """Build PointNet++: the nearest points by TopK, gathered, convolved, and their maxima."""
    net = Net()
    points = net.input("points", 1, 256, 3)
    square = net.ReduceSum(net.Mul(points, points), net.integers(2), keepdims=1)
    product = net.MatMul(points, net.Transpose(points, perm=[0, 2, 1]))
    far = net.Sub(net.Add(square, net.Transpose(square, perm=[0, 2, 1])), net.Mul(net.constant(2), product))
    _near, index = net.TopK(far, net.integers(16), outputs=2, axis=-1, largest=0)
    chosen = net.Gather(net.reshape(points, 256, 3), net.reshape(index, 256, 16), axis=0)
    x = net.Transpose(net.Unsqueeze(chosen, net.integers(0)), perm=[0, 3, 1, 2])
    for channels in (64, 64, 128):
        x = net.Relu(net.normed(net.conv(x, channels, 1)))
    x = net.ReduceMax(x, net.integers(3), keepdims=0)
    x = net.Relu(net.conv(x, 256, 1))
    return net.model(net.dense(net.ReduceMax(x, net.integers(2), keepdims=0), 40))


def interactions() -> onnx.ModelProto:
    """Build DLRM: embeddings, all pairs of vectors, the upper triangle gathered."""
    net = Net()
    dense, words = net.input("dense", 64, 13), net.input("words", 64, 8, dtype=INT64)
    x = net.Relu(net.dense(net.Relu(net.dense(dense, 128)), 32))
    parts = [net.Unsqueeze(x, net.integers(1))]
    for column in net.Split(words, outputs=8, axis=1, num_outputs=8):
        parts.append(net.Gather(net.weights(1000, 32), column, axis=0))
    vectors = net.Concat(*parts, axis=1)
    pairs = net.MatMul(vectors, net.Transpose(vectors, perm=[0, 2, 1]))
    rows, columns = np.triu_indices(9, 1)
    flat = net.Gather(net.reshape(pairs, 64, 81), net.integers(*(rows * 9 + columns)), axis=1)
    x = net.Concat(x, flat, axis=1)
    for features in (256, 128):
        x = net.Relu(net.dense(x, features))
    return net.model(net.Sigmoid(net.dense(x, 1)))


def factorisation() -> onnx.ModelProto:
    """Build DeepFM: squares of sums less sums of squares, beside a perceptron."""
    net = Net()
    words = net.input("words", 128, 20, dtype=INT64)
    vectors = net.Gather(net.weights(5000, 16), words, axis=0)
    total = net.ReduceSum(vectors, net.integers(1), keepdims=0)
    squares = net.ReduceSum(net.Mul(vectors, vectors), net.integers(1), keepdims=0)
    pairs = net.ReduceSum(net.Sub(net.Mul(total, total), squares), net.integers(1), keepdims=1)
    x = net.reshape(vectors, 128, 320)
    for features in (256, 128):
        x = net.Relu(net.normed(net.dense(x, features)))
    return net.model(net.Sigmoid(net.Add(net.dense(x, 1), pairs)))


def interest() -> onnx.ModelProto:
    """Build DIN: a history weighted by a perceptron of it and the candidate."""
    net = Net()
    table = net.weights(2000, 32)
    history = net.Gather(table, net.input("history", 32, 50, dtype=INT64), axis=0)
    item = net.Expand(net.Gather(table, net.input("item", 32, 1, dtype=INT64), axis=0), net.integers(32, 50, 32))
    both = net.Concat(history, item, net.Sub(history, item), net.Mul(history, item), axis=2)
    score = net.dense(net.Sigmoid(net.dense(net.Sigmoid(net.dense(both, 64)), 32)), 1)
    pooled = net.ReduceSum(net.Mul(score, history), net.integers(1), keepdims=0)
    return net.model(net.Softmax(net.dense(net.Relu(net.dense(pooled, 80)), 2), axis=-1))


def table_transformer() -> onnx.ModelProto:
    """Build FT-Transformer: every column a token, by Einsum and broadcasting, for 32 rows."""
    net = Net()
    columns = net.input("x", 32, 20)
    x = net.Add(net.Einsum(columns, net.weights(20, 64), equation="bc,cd->bcd"), net.weights(20, 64))
    for _ in range(2):
        x = net.block(x, 4, wide=2)
    return net.model(net.dense(net.ReduceMean(x, net.integers(1), keepdims=0), 3))


def forecast() -> onnx.ModelProto:
    """Build N-BEATS: perceptrons whose results are taken from what the next ones see."""
    net = Net()
    x, total = net.input("x", 64, 96), ""
    for _ in range(3):
        y = x
        for _ in range(3):
            y = net.Relu(net.dense(y, 256))
        back, forward = net.Split(net.dense(y, 120), net.integers(96, 24), outputs=2, axis=1)
        x = net.Sub(x, back)
        total = net.Add(total, forward) if total else forward
    return net.model(total)


def triangles() -> onnx.ModelProto:
    """Build an Evoformer's update of pairs: products along triangles by Einsum."""
    net = Net()
    x = net.input("pairs", 48, 48, 64)
    for equation in ("ikc,jkc->ijc", "kic,kjc->ijc"):
        y = net.normed(x, "layer")
        left, right = (net.Mul(net.Sigmoid(net.dense(y, 64)), net.dense(y, 64)) for _ in range(2))
        mixed = net.normed(net.Einsum(left, right, equation=equation), "layer")
        x = net.Add(x, net.Mul(net.Sigmoid(net.dense(y, 64)), net.dense(mixed, 64)))
    return net.model(x)


STRUCTURED = (
    graph_convolution, graph_attention, messages, point_cloud, interactions, factorisation, interest,
    table_transformer, forecast, triangles,
)  # fmt: skip
