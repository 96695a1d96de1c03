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
        (y,) = draw.call("MatMul", x, draw.constant(draw.floats((width, width), -0.7, 0.7)))
        (y,) = draw.call("Reshape", y, draw.constant([1, steps, heads, size]))
        (y,) = draw.call("Transpose", y, perm=[0, 2, 1, 3])
        parts.append(rms_normalized(draw, y) if draw.chance(0.4) else y)
    q, k, v = (rotated(draw, one) if draw.chance(0.4) else one for one in parts)
    (k,) = draw.call("Transpose", k, perm=[0, 1, 3, 2])
    (scores,) = draw.call("MatMul", q, k)
    (scores,) = draw.call("Mul", scores, draw.constant(draw.real(size**-0.5)))
    (scores,) = draw.call("Add", scores, draw.constant(draw.floats((1, 1, steps, steps))))
    (weights,) = draw.call("Softmax", scores, axis=-1)
    (y,) = draw.call("MatMul", weights, v)
    (y,) = draw.call("Transpose", y, perm=[0, 2, 1, 3])
    (y,) = draw.call("Reshape", y, draw.constant([1, steps, width]))
    draw.call("Add", x, y)


def rms_normalized(draw: Draw, x: Value) -> Value:
    """Return ``x / sqrt(mean(x^2) + epsilon) * scale`` as exporters write it out."""
    (square,) = draw.call("Pow", x, draw.constant(draw.real(2)))
    (mean,) = draw.call("ReduceMean", square, draw.constant([-1]))
    (shifted,) = draw.call("Add", mean, draw.constant(draw.real(0.01)))
    (root,) = draw.call("Sqrt", shifted)
    if draw.chance(0.5):
        (factor,) = draw.call("Reciprocal", root)
        (y,) = draw.call("Mul", x, factor)
    else:
        (y,) = draw.call("Div", x, root)
    shape = (1,) * draw.integer(0, x.array.ndim - 1) + x.array.shape[-1:]
    (y,) = draw.call("Mul", y, draw.constant(draw.floats(shape, 0.5, 1.5)))
    return y


def rotated(draw: Draw, x: Value) -> Value:
    """Return ``x * cos + rotate_half(x) * sin``."""
    size = x.array.shape[-1]
    if size < 2:
        return x
    bounds = [draw.constant([place]) for place in (0, size // 2, 2**31)]
    axes = draw.constant([-1])
    (front,) = draw.call("Slice", x, bounds[0], bounds[1], axes)
    (behind,) = draw.call("Slice", x, bounds[1], bounds[2], axes)
    (behind,) = draw.call("Neg", behind)
    (rotated,) = draw.call("Concat", behind, front, axis=-1)
    cos, sin = (draw.constant(draw.floats((1, 1, x.array.shape[2], size), -1, 1)) for _ in range(2))
    (left,) = draw.call("Mul", x, cos)
    (right,) = draw.call("Mul", rotated, sin)
    return draw.call("Add", left, right)[0]


def normalized(draw: Draw) -> None:
    rms_normalized(draw, a_float(draw, rank=(1, 4)))


def gated(draw: Draw) -> None:
    """Swish as exporters write it, behind a product, or a gate by another branch."""
    x = a_float(draw, rank=(1, 4))
    (gate,) = draw.call("Sigmoid", x)
    (y,) = draw.call("Mul", x, gate)
    if draw.chance(0.5):
        draw.call("Mul", y, a_float(draw, rank=(x.array.ndim, x.array.ndim))) if draw.chance(0.3) else draw.call(
            "Add", y, x
        )


def channel_gate(draw: Draw) -> None:
    """Squeeze-and-excite: channels weighted by what their means say."""
    x = an_image(draw)
    (mean,) = draw.call("GlobalAveragePool", x)
    (gate,) = draw.call("HardSigmoid", mean)
    draw.call("Mul", *((x, gate) if draw.chance(0.5) else (gate, x)))


BLOCKS = (
    Row("split_heads", split_heads, 3.0), Row("rms", normalized, 2.0), Row("gated", gated, 2.0),
    Row("channel_gate", channel_gate),
)  # fmt: skip
