"""Rows of reductions, normalisations and what else goes along an axis."""

from __future__ import annotations

import numpy as np

from graft.testkit.models.draw import Draw, Unfit
from graft.testkit.models.rows import Row, a_float, an_axis


def reduction(op_type: str, low: float = -np.inf) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, low, 8 if op_type in ("ReduceProd", "ReduceLogSumExp") else np.inf)
        if op_type == "ReduceProd" and x.array.size > 64:  # in another order a product of many may overflow on its way
            raise Unfit
        axes = draw.rng.permutation(x.array.ndim)[: draw.integer(0, x.array.ndim)].tolist()
        given = draw.constant([axis - x.array.ndim * draw.integer(0, 1) for axis in axes]) if axes else None
        draw.call(op_type, x, given, keepdims=draw.integer(0, 1), exact=op_type in ("ReduceMax", "ReduceMin"))

    return Row(op_type, make, 3.0 if op_type == "ReduceMean" else 1.0)


def spatial_mean(draw: Draw) -> None:
    x = a_float(draw, rank=(3, 5))
    draw.ReduceMean(x, draw.constant(list(range(2, x.array.ndim))))


def arg(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 5), exact=True)
        draw.call(op_type, x, axis=an_axis(draw, x.array), keepdims=draw.integer(0, 1),
                  select_last_index=draw.integer(0, 1))  # fmt: skip

    return Row(op_type, make)


def along(op_type: str, *, exact: bool = False, weight: float = 1.0) -> Row:
    """Return a row of an operator along one axis."""

    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 5), exact=exact)
        draw.call(op_type, x, axis=an_axis(draw, x.array), exact=exact or None)

    return Row(op_type, make, weight)


def cumulative(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 4))
        axis = draw.constant(np.int64(an_axis(draw, x.array)))
        draw.call(op_type, x, axis, exclusive=draw.integer(0, 1), reverse=draw.integer(0, 1))

    return Row(op_type, make)


def top_k(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 4), exact=True)
    axis = an_axis(draw, x.array)
    if len(np.unique(x.array)) < x.array.size:
        raise Unfit
    k = draw.integer(1, x.array.shape[axis])
    draw.TopK(x, draw.constant([k]), outputs=2, axis=axis, largest=draw.integer(0, 1), exact=True)


def layer_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 5))
    axis = draw.integer(0, x.array.ndim - 1) if draw.chance(0.3) else x.array.ndim - 1
    shape = x.array.shape[axis:]
    scale = draw.operand(draw.floats(shape, 0.5, 1.5))
    if draw.chance(0.4):
        draw.RMSNormalization(x, scale, axis=axis)
    else:
        draw.LayerNormalization(x, scale, draw.constant(draw.floats(shape)) if draw.chance(0.7) else None,
                  axis=axis - x.array.ndim * draw.integer(0, 1))  # fmt: skip


def channel_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(3, 5))
    channels = x.array.shape[1]
    scale, shift = (draw.constant(draw.floats((channels,), 0.5, 1.5)) for _ in range(2))
    match draw.integer(0, 3):
        case 0:
            draw.InstanceNormalization(x, scale, shift)
        case 1:
            groups = draw.one_of([one for one in (1, 2, 4) if channels % one == 0])
            draw.GroupNormalization(x, scale, shift, num_groups=groups)
        case 2:
            draw.LRN(x, size=draw.one_of((3, 5, 4)), alpha=0.01, beta=0.6, bias=2.0)
        case _:
            mean, variance = draw.constant(draw.floats((channels,))), draw.constant(draw.floats((channels,), 0.3, 2))
            draw.BatchNormalization(x, scale, shift, mean, variance)


def flat_batch_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(2, 2))
    rows = [draw.constant(draw.floats((x.array.shape[1],), 0.3, 2)) for _ in range(4)]
    draw.BatchNormalization(x, *rows)


def mean_variance_normalization(draw: Draw) -> None:
    x = draw.input(draw.floats((draw.one_of((1, 2)), 3, 4, draw.one_of((1, 5)))))
    if x.array.std(axis=(0, 2, 3)).min() < 0.1:
        raise Unfit
    draw.MeanVarianceNormalization(x)


def lp_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 4))
    axis = an_axis(draw, x.array)
    if np.abs(x.array).max(axis=axis).min() < 0.1:
        raise Unfit
    draw.LpNormalization(x, axis=axis, p=draw.integer(1, 2))


REDUCTIONS = (
    *(reduction(name) for name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1",
                                   "ReduceSumSquare", "ReduceLogSumExp")),
    reduction("ReduceL2", 0.1), reduction("ReduceLogSum", 0.1), Row("ReduceMean", spatial_mean),
    arg("ArgMax"), arg("ArgMin"), along("Softmax", weight=3.0), along("LogSoftmax"), along("Hardmax", exact=True),
    cumulative("CumSum"), Row("TopK", top_k), Row("layer_normalization", layer_normalization, 2.0),
    Row("channel_normalization", channel_normalization, 2.0), Row("BatchNormalization", flat_batch_normalization),
    Row("LpNormalization", lp_normalization), Row("MeanVarianceNormalization", mean_variance_normalization),
)  # fmt: skip
