"""Rows of several operators, as exporters write them: heads apart for one decoding step, RMS normalisation, gates."""

from __future__ import annotations

from graft.testkit.models.draw import Draw, Value
from graft.testkit.models.products import an_image
from graft.testkit.models.rows import Row, a_float


def split_heads(draw: Draw) -> None:
    """Projection, heads apart, scores, and heads together again; sequences of length 1 mostly."""
    steps, heads, size = draw.one_of((1, 1, 1, 3)), draw.one_of((1, 2)), draw.one_of((1, 4))
    width = heads * size
    x = draw.input(draw.floats((1, steps, width)))
    parts = []
    for _ in range(3):
        y = draw.MatMul(x, draw.constant(draw.floats((width, width), -0.7, 0.7)))
        y = draw.Reshape(y, draw.constant([1, steps, heads, size]))
        y = draw.Transpose(y, perm=[0, 2, 1, 3])
        parts.append(rms_normalized(draw, y) if draw.chance(0.4) else y)
    q, k, v = (rotated(draw, one) if draw.chance(0.4) else one for one in parts)
    k = draw.Transpose(k, perm=[0, 1, 3, 2])
    scores = draw.MatMul(q, k)
    scores = draw.Mul(scores, draw.constant(draw.real(size**-0.5)))
    scores = draw.Add(scores, draw.constant(draw.floats((1, 1, steps, steps))))
    weights = draw.Softmax(scores, axis=-1)
    y = draw.MatMul(weights, v)
    y = draw.Transpose(y, perm=[0, 2, 1, 3])
    y = draw.Reshape(y, draw.constant([1, steps, width]))
    draw.Add(x, y)


def rms_normalized(draw: Draw, x: Value) -> Value:
    """Return ``x / sqrt(mean(x^2) + epsilon) * scale`` as exporters write it out."""
    square = draw.Pow(x, draw.constant(draw.real(2)))
    mean = draw.ReduceMean(square, draw.constant([-1]))
    shifted = draw.Add(mean, draw.constant(draw.real(0.01)))
    root = draw.Sqrt(shifted)
    if draw.chance(0.5):
        factor = draw.Reciprocal(root)
        y = draw.Mul(x, factor)
    else:
        y = draw.Div(x, root)
    shape = (1,) * draw.integer(0, x.array.ndim - 1) + x.array.shape[-1:]
    y = draw.Mul(y, draw.constant(draw.floats(shape, 0.5, 1.5)))
    return y


def rotated(draw: Draw, x: Value) -> Value:
    """Return ``x * cos + rotate_half(x) * sin``."""
    size = x.array.shape[-1]
    if size < 2:
        return x
    bounds = [draw.constant([place]) for place in (0, size // 2, 2**31)]
    axes = draw.constant([-1])
    front = draw.Slice(x, bounds[0], bounds[1], axes)
    behind = draw.Slice(x, bounds[1], bounds[2], axes)
    behind = draw.Neg(behind)
    rotated = draw.Concat(behind, front, axis=-1)
    cos, sin = (draw.constant(draw.floats((1, 1, x.array.shape[2], size), -1, 1)) for _ in range(2))
    left = draw.Mul(x, cos)
    right = draw.Mul(rotated, sin)
    return draw.Add(left, right)


def normalized(draw: Draw) -> None:
    rms_normalized(draw, a_float(draw, rank=(1, 4)))


def gated(draw: Draw) -> None:
    """Swish as exporters write it, behind a product, or a gate by another branch."""
    x = a_float(draw, rank=(1, 4))
    gate = draw.Sigmoid(x)
    y = draw.Mul(x, gate)
    if draw.chance(0.5):
        draw.Mul(y, a_float(draw, rank=(x.array.ndim, x.array.ndim))) if draw.chance(0.3) else draw.Add(y, x)


def channel_gate(draw: Draw) -> None:
    """Squeeze-and-excite: channels weighted by what their means say."""
    x = an_image(draw)
    mean = draw.GlobalAveragePool(x)
    gate = draw.HardSigmoid(mean)
    draw.Mul(*((x, gate) if draw.chance(0.5) else (gate, x)))


BLOCKS = (
    Row("split_heads", split_heads, 3.0), Row("rms", normalized, 2.0), Row("gated", gated, 2.0),
    Row("channel_gate", channel_gate),
)  # fmt: skip
