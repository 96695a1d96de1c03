"""Rows of losses, and of operators that ONNX had late: caches, linear attention, gated units, bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from graft.testkit.models.draw import Draw
from graft.testkit.models.rows import Row, a_float, an_axis


def loss(draw: Draw) -> None:
    """Negative log-likelihood, or cross entropy with its logarithms or without; some targets may be ignored."""
    classes, sizes = draw.one_of((2, 5)), [draw.integer(1, 4) for _ in range(draw.integer(0, 2))]
    scores = draw.input(draw.floats((draw.integer(1, 4), classes, *sizes)))
    targets = draw.rng.integers(0, classes, (scores.array.shape[0], *sizes))
    more: dict[str, Any] = {"reduction": draw.one_of(("none", "sum", "mean"))}
    if draw.chance(0.4):
        # Not -1, which onnx.reference takes for none where there are no weights.
        ignored = more["ignore_index"] = draw.one_of((0, -100))
        if ignored == -100 and targets.size > 1:
            targets.reshape(-1)[0] = ignored
    labels = draw.operand(np.asarray(targets, draw.one_of((np.int64, np.int32))))
    weights = draw.constant(draw.floats((classes,), 0.5, 1.5)) if draw.chance(0.5) else None
    if draw.chance(0.5):
        draw.SoftmaxCrossEntropyLoss(scores, labels, weights, outputs=draw.integer(1, 2), **more)
    else:
        logs = draw.LogSoftmax(scores, axis=1)
        draw.NegativeLogLikelihoodLoss(logs, labels, weights, **more)


def cache_update(draw: Draw) -> None:
    """New keys or values in a cache of fixed length; a circular one goes round."""
    batch, length, width, new = draw.one_of((1, 2)), draw.integer(3, 8), draw.one_of((1, 4)), draw.integer(1, 3)
    axis = draw.one_of((1, 2, -2))
    shape, part = [batch, 2, 2, width], [batch, 2, 2, width]
    shape[axis], part[axis] = length, new
    cache, update = draw.input(draw.floats(shape)), draw.operand(draw.floats(part))
    mode = draw.one_of(("linear", "circular"))
    last = length - 1 if mode == "circular" else length - new
    places = draw.operand(draw.rng.integers(0, last + 1, (batch,))) if draw.chance(0.7) else None
    draw.TensorScatter(cache, update, places, axis=axis, mode=mode, exact=True)


def linear_attention(draw: Draw) -> None:
    """A recurrence over steps with a state per head of keys and values."""
    batch, steps, shared, heads = draw.one_of((1, 2)), draw.integer(1, 4), draw.one_of((1, 2)), draw.one_of((1, 2))
    keys, values = draw.one_of((2, 4)), draw.one_of((2, 3))
    rule = draw.one_of(("linear", "gated", "delta", "gated_delta"))
    q = draw.input(draw.floats((batch, steps, shared * heads * keys), -0.7, 0.7))
    k = draw.operand(draw.floats((batch, steps, heads * keys), -0.7, 0.7))
    v = draw.operand(draw.floats((batch, steps, heads * values)))
    past = draw.operand(draw.floats((batch, heads, keys, values))) if draw.chance(0.5) else None
    each = draw.chance(0.5) and rule != "delta"
    decay = draw.operand(draw.floats((batch, steps, heads * (keys if each else 1)), -1, 0)) if "gated" in rule else None
    beta = draw.operand(draw.floats((batch, steps, heads), 0, 1)) if "delta" in rule else None
    draw.LinearAttention(q, k, v, past, decay, beta, outputs=2, update_rule=rule, kv_num_heads=heads,
              q_num_heads=shared * heads)  # fmt: skip


def causal_convolution(draw: Draw) -> None:
    batch, c, length, k = draw.one_of((1, 2)), draw.one_of((1, 4)), draw.integer(1, 5), draw.integer(1, 4)
    x, weights = draw.input(draw.floats((batch, c, length))), draw.constant(draw.floats((c, 1, k)))
    bias = draw.constant(draw.floats((c,))) if draw.chance(0.5) else None
    past = draw.operand(draw.floats((batch, c, k - 1))) if draw.chance(0.5) else None
    draw.CausalConvWithState(x, weights, bias, past, outputs=2,
              activation=draw.one_of(("none", "silu", "swish")))  # fmt: skip


def gated_unit(draw: Draw) -> None:
    x = a_float(draw, -20, 20)
    draw.SwiGLU(x, draw.operand(draw.floats(x.array.shape)), alpha=draw.one_of((1.0, 1.702)))


def cumulative_product(draw: Draw) -> None:
    x = a_float(draw, -2, 2, rank=(1, 4))
    axis = draw.constant(np.int64(an_axis(draw, x.array)))
    draw.CumProd(x, axis, exclusive=draw.integer(0, 1), reverse=draw.integer(0, 1))


def bits(draw: Draw) -> None:
    x = a_float(draw, exact=True)
    wide = {2: "INT16", 4: "INT32", 8: "INT64"}[x.array.dtype.itemsize]
    draw.BitCast(x, to=onnx.TensorProto.DataType.Value(wide))


RECENT = (
    Row("loss", loss), Row("TensorScatter", cache_update, 0.5), Row("LinearAttention", linear_attention, 0.5),
    Row("CausalConvWithState", causal_convolution, 0.5), Row("SwiGLU", gated_unit, 0.3),
    Row("CumProd", cumulative_product, 0.5), Row("BitCast", bits, 0.3),
)  # fmt: skip
