"""Normalisations as functions of plain operators: what they are differentiated through.

Statistics of 16-bit floats are taken in float32. Here is nothing that a derivative would not be taken of: a statistic
that is an output has a gradient, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import TensorProto

from graft.core.operators.definition.adjoint import NARROW, Adjoint, Vjp
from graft.core.operators.definition.function_body import Body, Function


def _wide(f: Body, value: str) -> str:
    return f.cast(value, TensorProto.FLOAT) if f.dtype(value) in NARROW else value


def _mean(f: Body, value: str, axes: Sequence[int]) -> str:
    return f("ReduceMean", value, f.ints(*axes), keepdims=1)


def _scaled_back(f: Body, value: str, scale: str, bias: str = "") -> str:
    """Return a value times a scale plus a bias, in the type of the node's first input."""
    value = f.cast(value, f.dtype(f.input(0)))
    value = f("Mul", value, scale) if scale else value
    return f("Add", value, bias) if bias else value


def _centred(f: Body, value: str, axes: Sequence[int]) -> tuple[str, str]:
    mean = _mean(f, value, axes)
    return mean, f("Sub", value, mean)


def _deviation(f: Body, centred: str, axes: Sequence[int]) -> str:
    """Return the root of the mean of squares, plus ``epsilon`` under it, by operators that integers have, too."""
    variance = _mean(f, f("Mul", centred, centred), axes)
    return f("Sqrt", f("Add", variance, f.like(f.attribute("epsilon", 1e-5), variance)))


def _spread(f: Body, centred: str, axes: Sequence[int]) -> tuple[str, str, str]:
    """Return the number of elements, the mean of their squares, and `_deviation`, in fewer passes."""
    squares = f("ReduceSumSquare", centred, f.ints(*axes), keepdims=1)
    sizes = (f.cast(f("Size", one), f.dtype(centred)) for one in (centred, squares))
    count = f("Div", *sizes)
    variance = f("Div", squares, count)
    return count, variance, f("Sqrt", f("Add", variance, f.like(f.attribute("epsilon", 1e-5), variance)))


def _per_channel(f: Body, value: str, rank: int) -> str:
    return f.unsqueezed(value, *range(1, rank - 1)) if rank > 2 else value


def layer(f: Body) -> None:
    """Rows from ``axis`` on, with mean and inverse deviation as outputs."""
    x, rank = _wide(f, f.input(0)), f.rank(f.input(0))
    axes = range(f.attribute("axis", -1) % rank, rank)
    mean, centred = _centred(f, x, axes)
    deviation = _deviation(f, centred, axes)
    f.give(0, _scaled_back(f, f("Div", centred, deviation), f.input(1), f.input(2)))
    stated = f.attribute("stash_type", TensorProto.FLOAT)
    f.give(1, f.cast(mean, stated))
    if f.wants(2):
        f.give(2, f.cast(f("Reciprocal", deviation), stated))


def root_mean_square(f: Body) -> None:
    """Rows from ``axis`` on, which keep their mean."""
    x, rank = _wide(f, f.input(0)), f.rank(f.input(0))
    axes = range(f.attribute("axis", -1) % rank, rank)
    f.give(0, _scaled_back(f, f("Div", x, _deviation(f, x, axes)), f.input(1)))


def of_rows(function: Function, *, centres: bool) -> Vjp:
    """Return the derivative of a function of rows with a scale, in as few passes over them as its two means allow.

    Mean and inverse deviation are those that the node has computed, where these are of the type that they are needed
    in. Where a statistic has a gradient, too, the function is differentiated.
    """

    def vjp(f: Adjoint) -> Sequence[str]:
        if f.has_gradient(1) or f.has_gradient(2):
            return f.through(function)
        x, rank = _wide(f, f.input(0)), f.rank(f.input(0))
        axes = range(f.attribute("axis", -1) % rank, rank)
        if centres and f.dtype(x) == f.attribute("stash_type", TensorProto.FLOAT):
            mean, inverse = f.result(1), f.result(2)
        else:
            mean, centred = _centred(f, x, axes) if centres else ("", x)
            inverse = f("Reciprocal", _spread(f, centred, axes)[2])

        def normal(write: Callable[..., str]) -> str:
            return write("Mul", write("Sub", x, mean) if centres else x, inverse)

        upstream, found = _wide(f, f.gradient), ["", "", ""]
        if f.wanted(0):
            inner, own = f("Mul", upstream, _wide(f, f.input(1))), normal(f)
            rest = f("Sub", inner, f("Mul", own, _mean(f, f("Mul", inner, own), axes)))
            rest = f("Sub", rest, _mean(f, inner, axes)) if centres else rest
            found[0] = f.cast(f("Mul", rest, inverse), f.dtype(f.input(0)))
        for number, one in ((1, f("Mul", upstream, normal(f.anew))), (2, upstream)):
            if f.wanted(number):
                found[number] = f.cast(f.summed(one, f.input(number)), f.dtype(f.input(number)))
        return found

    return vjp


def instance(f: Body) -> None:
    """Each channel of each image."""
    x, rank = _wide(f, f.input(0)), f.rank(f.input(0))
    axes = range(2, rank)
    centred = _centred(f, x, axes)[1]
    scale, bias = (_per_channel(f, f.input(number), rank) for number in (1, 2))
    f.give(0, _scaled_back(f, f("Div", centred, _deviation(f, centred, axes)), scale, bias))


def group(f: Body) -> None:
    """Groups of channels of each image; scale and bias are of channels."""
    x, rank = _wide(f, f.input(0)), f.rank(f.input(0))
    rows = f.reshaped(x, 0, f.attribute("num_groups"), -1)
    centred = _centred(f, rows, (2,))[1]
    normal = f("Reshape", f("Div", centred, _deviation(f, centred, (2,))), f("Shape", x))
    f.types[normal] = f.types[x]
    scale, bias = (_per_channel(f, f.input(number), rank) for number in (1, 2))
    f.give(0, _scaled_back(f, normal, scale, bias))


def mean_variance(f: Body) -> None:
    """Along ``axes``; ONNX adds 1e-9 to the deviation."""
    x = f.input(0)
    axes = f.attribute("axes", [0, 2, 3])
    centred = _centred(f, x, axes)[1]
    deviation = f("Sqrt", _mean(f, f("Mul", centred, centred), axes))
    f.give(0, f("Div", centred, f("Add", deviation, f.like(1e-9, x))))


def norm(f: Body) -> None:
    """Rows along an axis divided by their norm."""
    x = f.input(0)
    operator = "ReduceL1" if f.attribute("p", 2) == 1 else "ReduceL2"
    f.give(0, f("Div", x, f(operator, x, f.ints(f.attribute("axis", -1)), keepdims=1)))


def batch(f: Body) -> None:
    """Channels over the batch: by statistics that are given or, in training, its own."""
    if f.attribute("training_mode", 0):
        trained_batch(f)
        return
    x, scale, bias, mean, variance = f.inputs
    rank = f.rank(x)
    variance = _per_channel(f, variance, rank)
    centred = f("Sub", x, _per_channel(f, mean, rank))
    deviation = f("Sqrt", f("Add", variance, f.like(f.attribute("epsilon", 1e-5), variance)))
    normal = f("Div", centred, deviation)
    f.give(0, _scaled_back(f, normal, _per_channel(f, scale, rank), _per_channel(f, bias, rank)))


@dataclass(frozen=True, slots=True)
class Batch:
    """What the statistics of a batch leave: an image without its mean, and numbers of each channel."""

    centred: str
    count: str
    deviation: str
    factor: str
    """By which ``centred`` is multiplied: the scale by the deviation."""


def trained_batch(f: Body) -> Batch:
    """Channels by mean and variance of the batch, of which those that run along take a share.

    What is divided by the deviation is the scale, not the image: derivatives of this have fewer passes over the image.
    """
    x, scale, bias, *running = f.inputs
    wide, rank = _wide(f, x), f.rank(x)
    axes = [0, *range(2, rank)]
    mean, centred = _centred(f, wide, axes)
    count, variance, deviation = _spread(f, centred, axes)
    scale, bias = (_per_channel(f, f.cast(one, f.dtype(wide)), rank) for one in (scale, bias))
    factor = f("Div", scale, deviation)
    f.give(0, f.cast(f("Add", f("Mul", centred, factor), bias), f.dtype(x)))
    kept = f.attribute("momentum", 0.9)
    for number, (old, own) in enumerate(zip(running, (mean, variance), strict=True), 1):
        share = f.scaled(f.cast(f.reshaped(own, -1), f.dtype(old)), 1 - kept)
        f.give(number, f("Add", f.scaled(old, kept), share))
    return Batch(centred, count, deviation, factor)


def of_trained_batch(f: Adjoint) -> Sequence[str]:
    """Return the gradients of `trained_batch` in two sums over the image and one pass behind them.

    Where a statistic has a gradient, too, the function is differentiated.
    """
    parts: list[Batch] = []

    def function(body: Body) -> None:
        parts.append(trained_batch(body))

    if f.has_gradient(1) or f.has_gradient(2):
        return f.through(function, instead=True)
    upstream, kind = _wide(f, f.gradient), f.dtype(f.input(0))
    f.written(function, instead=True)
    (found,) = parts
    axes = f.ints(0, *range(2, f.rank(upstream)))
    total = f("ReduceSum", upstream, axes, keepdims=1)
    product = f("Div", f("ReduceSum", f("Mul", upstream, found.centred), axes, keepdims=1), found.deviation)
    sums = enumerate((product, total), 1)
    gradients = ["", *(f.cast(f.reshaped(one, -1), f.dtype(f.input(number))) for number, one in sums)]
    if f.wanted(0):
        slope = f("Div", product, f("Mul", found.count, found.deviation))
        rest = f("Sub", f("Sub", upstream, f("Div", total, found.count)), f("Mul", found.centred, slope))
        gradients[0] = f.cast(f("Mul", rest, found.factor), kind)
    return gradients


def local_response(f: Body) -> None:
    """``x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta``."""
    x, size = f.input(0), f.attribute("size")
    before = (size - 1) // 2
    pads = [0] * (2 * f.rank(x))
    pads[1], pads[1 + f.rank(x)] = before, size - 1 - before
    squares = f("Pad", f("Mul", x, x), f.ints(*pads))
    count = f.extent(x, 1)
    parts = [f.sliced(squares, 1, place, f("Add", count, f.ints(place))) for place in range(size)]
    for part in parts:
        f.types[part] = f.types[x]
    total = f.scaled(f("Sum", *parts), f.attribute("alpha", 0.0001) / size)
    root = f("Pow", f("Add", total, f.like(f.attribute("bias", 1.0), x)), f.like(f.attribute("beta", 0.75), x))
    f.give(0, f("Div", x, root))
