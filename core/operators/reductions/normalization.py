"""Softmax and the normalisations: several dependent reductions over the same axes.

A row is what one reduction sees. Temporaries of one value per row have the shape of the other dimensions; sums of
16-bit floats are taken in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.adjoint import nowhere, through
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import LIKE_FIRST, like
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.definition.varying import anything, fixed
from graft.core.operators.elementwise.arithmetic import ELEMENTWISE
from graft.core.operators.reductions import derivatives as derivative
from graft.core.operators.reductions import plain_normalization as plain
from graft.core.operators.reductions.reduction import Axes, mean_of, rows, square, trailing
from graft.core.operators.reductions.shapes import statistics
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage

ROW_WISE = frozenset({Trait.ROW_WISE})
Indices = Sequence[Expression]
Source = Callable[[Indices], Expression]


def loaded(buffer: Buffer, kind: str | None = None) -> Source:
    """Return the function that loads an element in the type ``kind``, by default the type sums are taken in."""
    wanted = kind if kind is not None else b.wide(buffer.dtype)
    return lambda position: b.cast(b.load(buffer, *position), wanted)


def _one_axis(lowering: Lowering, default: int) -> Axes:
    shape = b.extents(lowering.input(0))
    return Axes(shape, frozenset({normal_axis(lowering.node.attribute("axis", default), len(shape))}))


# ---- Softmax ------------------------------------------------------------------------------------------------------


def exp_of_nonpositive(difference: Expression) -> Expression:
    """Return ``exp`` of a number of at most 0; 0 instead of denormal numbers, which processors are slow at.

    The sum of a row is at least 1: what is lost is far below its rounding.
    """
    cheaper = difference.type.dtype in ("float32", "float64")
    return b.intrinsic("exp_nonpositive" if cheaper else "exp", difference)


def _exponentials(lowering: Lowering, axes: Axes) -> tuple[list[Stage], Source, Buffer]:
    """Stages for the row's maximum and the sum of ``exp(x - maximum)``, the difference, and the sum's buffer."""
    x = loaded(lowering.input(0))
    kind = b.wide(lowering.input(0).dtype)
    top, total = lowering.temporary(kind, axes.kept), lowering.temporary(kind, axes.kept)

    def difference(position: Indices) -> Expression:
        return b.subtract(x(position), b.load(top, *axes.row(position)))

    stages = [
        rows(top, "max", axes, x),
        rows(total, "add", axes, lambda place: exp_of_nonpositive(difference(place))),
    ]
    return stages, difference, total


def _over_the_row(share: Callable[[Expression, Expression], Expression]) -> LowerFunction:
    """Lower to ``share(x - maximum, sum of exponentials)`` of each element."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        axes = _one_axis(lowering, -1)
        stages, difference, total = _exponentials(lowering, axes)
        result = b.compute(lowering.output(), lambda i: share(difference(i), b.load(total, *axes.row(i))))
        return (*stages, result)

    return lower


def _lower_hardmax(lowering: Lowering) -> tuple[Stage, ...]:
    source, target, axes = lowering.input(0), lowering.output(), _one_axis(lowering, -1)
    (axis,) = axes.reduced
    top, first = lowering.temporary(source.dtype, axes.kept), lowering.temporary("int64", axes.kept)
    none = axes.positions

    def candidate(place: list[Expression]) -> Expression:
        return b.select(b.same(b.load(source, *place), b.load(top, *axes.row(place))), place[axis], none)

    def value(position: Indices) -> Expression:
        hot = b.equal(position[axis], b.load(first, *axes.row(position)))
        return b.select(hot, b.constant(1, target.dtype), 0)

    return (
        rows(top, "max", axes, lambda place: b.load(source, *place)),
        rows(first, "min", axes, candidate),
        b.compute(target, value),
    )


_softmax = partial(
    define, traits=ROW_WISE, cost=per_output(20), varies=anything, shapes=LIKE_FIRST, attributes=(check.AXIS,),
)  # fmt: skip
_softmax(
    "Softmax",
    traits=ROW_WISE | {Trait.DISTRIBUTION},
    lower=_over_the_row(lambda difference, total: b.divide(exp_of_nonpositive(difference), total)),
    vjp=derivative.softmax,
)
_softmax(
    "LogSoftmax",
    lower=_over_the_row(lambda difference, total: b.subtract(difference, b.intrinsic("log", total))),
    vjp=derivative.log_softmax,
)
_softmax("Hardmax", lower=_lower_hardmax, cost=per_output(3), vjp=nowhere)

# ---- Mean and variance --------------------------------------------------------------------------------------------


def inverse_deviation(epsilon: float, count: b.Extent | Expression) -> Callable[[Expression], Expression]:
    """Return ``1 / sqrt(total / count + epsilon)`` as a function of the sum of squares ``total``."""

    def finish(total: Expression) -> Expression:
        return b.divide(1.0, b.unary("sqrt", b.add(mean_of(count)(total), epsilon)))

    return finish


def _moments(
    lowering: Lowering, axes: Axes, x: Source, kind: str, epsilon: float, into: tuple[Buffer | None, Buffer | None]
) -> tuple[list[Stage], Source]:
    """Stages for mean and ``1 / sqrt(variance + epsilon)``, and the normalised element.

    The two statistics are also spread ``into`` the given buffers, which keep the reduced dimensions.
    """
    mean = lowering.temporary(kind, axes.kept)
    scale = lowering.temporary(kind, axes.kept)

    def centred(place: Indices) -> Expression:
        return b.subtract(x(place), b.load(mean, *axes.row(place)))

    stages = [
        rows(mean, "add", axes, x, mean_of(axes.count)),
        rows(scale, "add", axes, lambda place: square(centred(place)), inverse_deviation(epsilon, axes.count)),
    ]
    for source, target in zip((mean, scale), into, strict=True):
        if target is not None:
            stages.append(_spread(source, target, axes))
    return stages, lambda place: b.multiply(centred(place), b.load(scale, *axes.row(place)))


def _spread(source: Buffer, target: Buffer, axes: Axes) -> Stage:
    return b.compute(target, lambda i: b.load(source, *axes.row(i)))


def _scaled(lowering: Lowering, value: Expression, position: Indices, dtype: str) -> Expression:
    """``value * scale + bias`` with the optional inputs 1 and 2, broadcast."""
    scale, bias, shape = lowering.optional(1), lowering.optional(2), b.extents(lowering.output())
    wide = b.wide(dtype)
    result = b.cast(b.cast(value, dtype), wide)
    if scale is not None:
        result = b.multiply(result, b.cast(b.broadcast(scale, position, shape), wide))
    return result if bias is None else b.add(result, b.cast(b.broadcast(bias, position, shape), wide))


def _stash_type(lowering: Lowering) -> str:
    """The type in which the statistics are computed: float32 unless the input is float64."""
    return "float64" if lowering.input(0).dtype == "float64" else "float32"


def _lower_layer_norm(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()
    axes = trailing(b.extents(source), lowering.node.attribute("axis", -1))
    kind, epsilon = _stash_type(lowering), lowering.node.attribute("epsilon", 1e-5)
    into = lowering.optional_output(1), lowering.optional_output(2)
    stages, normal = _moments(lowering, axes, loaded(source, kind), kind, epsilon, into)
    return (*stages, b.compute(target, lambda i: _scaled(lowering, normal(i), i, target.dtype)))


def _lower_rms_norm(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()
    axes = trailing(b.extents(source), lowering.node.attribute("axis", -1))
    kind = _stash_type(lowering)
    x, scale = loaded(source, kind), lowering.temporary(kind, axes.kept)
    finish = inverse_deviation(lowering.node.attribute("epsilon", 1e-5), axes.count)

    def value(i: Indices) -> Expression:
        normal = b.multiply(x(i), b.load(scale, *axes.row(i)))
        return _scaled(lowering, normal, i, target.dtype)

    return (rows(scale, "add", axes, lambda place: square(x(place)), finish), b.compute(target, value))


def _lower_instance_norm(lowering: Lowering) -> tuple[Stage, ...]:
    source, scale, bias = lowering.input(0), lowering.input(1), lowering.input(2)
    axes, kind = trailing(b.extents(source), 2), b.wide(source.dtype)
    epsilon = lowering.node.attribute("epsilon", 1e-5)
    stages, normal = _moments(lowering, axes, loaded(source), kind, epsilon, (None, None))

    def value(i: Indices) -> Expression:
        return b.add(b.multiply(normal(i), loaded(scale)([i[1]])), loaded(bias)([i[1]]))

    return (*stages, b.compute(lowering.output(), value))


def _lower_group_norm(lowering: Lowering) -> tuple[Stage, ...]:
    """The channels are split as ``c = group * size + within``; a temporary has one value per batch and group."""
    source, scale, bias = lowering.input(0), lowering.input(1), lowering.input(2)
    shape, kind, groups = b.extents(source), b.wide(source.dtype), lowering.node.attribute("num_groups")
    size = b.numbers(source, 1, 2)[0] // groups
    axes = trailing((shape[0], groups, size, *shape[2:]), 2)
    x = loaded(source)

    def split(place: Indices) -> Expression:
        return x([place[0], b.add(b.multiply(place[1], size), place[2]), *place[3:]])

    epsilon = lowering.node.attribute("epsilon", 1e-5)
    stages, normal = _moments(lowering, axes, split, kind, epsilon, (None, None))

    def value(i: Indices) -> Expression:
        place = [i[0], b.divide(i[1], size), b.modulo(i[1], size), *i[2:]]
        return b.add(b.multiply(normal(place), loaded(scale)([i[1]])), loaded(bias)([i[1]]))

    return (*stages, b.compute(lowering.output(), value))


def _lower_mean_variance(lowering: Lowering) -> tuple[Stage, ...]:
    """``(x - mean) / (sqrt(variance) + 1e-9)`` as the operator's function body has it."""
    source = lowering.input(0)
    shape, kind, x = b.extents(source), b.wide(source.dtype), loaded(source)
    chosen = lowering.node.attribute("axes", [0, 2, 3])
    axes = Axes(shape, frozenset(normal_axis(axis, len(shape)) for axis in chosen))
    mean, deviation = lowering.temporary(kind, axes.kept), lowering.temporary(kind, axes.kept)

    def centred(place: Indices) -> Expression:
        return b.subtract(x(place), b.load(mean, *axes.row(place)))

    def finish(total: Expression) -> Expression:
        return b.add(b.unary("sqrt", mean_of(axes.count)(total)), 1e-9)

    return (
        rows(mean, "add", axes, x, mean_of(axes.count)),
        rows(deviation, "add", axes, lambda place: square(centred(place)), finish),
        b.compute(lowering.output(), lambda i: b.divide(centred(i), b.load(deviation, *axes.row(i)))),
    )


def _lower_lp_norm(lowering: Lowering) -> tuple[Stage, ...]:
    source, axes = lowering.input(0), _one_axis(lowering, -1)
    x, kind = loaded(source), b.wide(source.dtype)
    norm = lowering.temporary(kind, axes.kept)
    if lowering.node.attribute("p", 2) == 1:
        stage = rows(norm, "add", axes, lambda place: b.unary("abs", x(place)))
    else:
        stage = rows(norm, "add", axes, lambda place: square(x(place)), lambda total: b.unary("sqrt", total))

    def value(i: Indices) -> Expression:
        length = b.load(norm, *axes.row(i))
        return b.select(b.equal(length, 0), b.constant(0, kind), b.divide(x(i), length))

    return (stage, b.compute(lowering.output(), value))


_normalise = partial(define, traits=ROW_WISE, cost=per_output(8), varies=anything, shapes=LIKE_FIRST)
_by_channel = partial(_normalise, varies=fixed(1), demands=demand.vectors(1, 2, of=0, axis=1), asked_when_loaded=True)
_normalise(
    "LayerNormalization", lower=_lower_layer_norm, shapes=statistics, attributes=(check.AXIS, check.EPSILON),
    demands=demand.all_of(demand.expanding(1, 0), demand.expanding(2, 0)), vjp=plain.of_rows(plain.layer, centres=True),
    function=plain.layer,
)  # fmt: skip
_normalise(
    "RMSNormalization", lower=_lower_rms_norm, shapes=statistics, attributes=(check.AXIS, check.EPSILON),
    demands=demand.expanding(1, 0), vjp=plain.of_rows(plain.root_mean_square, centres=False),
    function=plain.root_mean_square,
)  # fmt: skip
_by_channel(
    "InstanceNormalization", lower=_lower_instance_norm, attributes=(check.EPSILON,), vjp=through(plain.instance)
)
_by_channel(
    "GroupNormalization", lower=_lower_group_norm, attributes=(check.divides("num_groups", 1), check.EPSILON),
    vjp=through(plain.group),
)  # fmt: skip
_normalise(
    "MeanVarianceNormalization", lower=_lower_mean_variance, attributes=(check.axes("axes"),),
    vjp=through(plain.mean_variance),
)  # fmt: skip
_normalise(
    "LpNormalization", lower=_lower_lp_norm, attributes=(check.AXIS, check.one_of("p", 1, 2)), vjp=through(plain.norm)
)

# ---- Batch and local response normalisation -----------------------------------------------------------------------


def _lower_batch_norm(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()
    scale, bias, mean, variance = (lowering.input(number) for number in range(1, 5))
    epsilon, kind = lowering.node.attribute("epsilon", 1e-5), b.wide(source.dtype)

    def value(i: Indices) -> Expression:
        channel = i[1] if len(i) > 1 else b.index(0)
        of = [b.cast(b.load(buffer, channel), kind) for buffer in (scale, bias, mean, variance)]
        factor = b.divide(of[0], b.unary("sqrt", b.add(of[3], epsilon)))
        return b.add(b.multiply(b.subtract(b.cast(b.load(source, *i), kind), of[2]), factor), of[1])

    return (b.compute(target, value),)


def _accept_batch_norm(node: NodeView) -> Reject | None:
    if node.attribute("training_mode", 0):
        return Reject("attribute", "BatchNormalization in training mode updates its statistics")
    return None


def _lower_lrn(lowering: Lowering) -> tuple[Stage, ...]:
    """``x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta``."""
    source = lowering.input(0)
    shape, kind = b.extents(source), b.wide(source.dtype)
    size, beta = lowering.node.attribute("size"), lowering.node.attribute("beta", 0.75)
    bias, alpha = lowering.node.attribute("bias", 1.0), lowering.node.attribute("alpha", 1e-4)
    before = (size - 1) // 2
    squares = lowering.temporary(kind, shape)

    def neighbour(i: Indices, k: Indices) -> Expression:
        channel = b.subtract(b.add(i[1], k[0]), before)
        place = [i[0], channel, *i[2:]]
        return square(b.cast(b.masked_load(source, place, b.inside(channel, shape[1])), kind))

    def value(i: Indices) -> Expression:
        base = b.add(b.multiply(b.load(squares, *i), alpha / size), bias)
        return b.divide(b.cast(b.load(source, *i), kind), power(base, beta))

    return (b.reduce(squares, "add", [size], neighbour), b.compute(lowering.output(), value))


def power(base: Expression, exponent: float) -> Expression:
    """Return ``base ** exponent`` of a positive base; quarters by square roots."""
    if exponent == 0.75:
        half = b.unary("sqrt", base)
        return b.multiply(half, b.unary("sqrt", half))
    if exponent == 0.5:
        return b.unary("sqrt", base)
    return base if math.isclose(exponent, 1.0) else b.intrinsic("pow", base, exponent)


define(
    "BatchNormalization", ELEMENTWISE, _lower_batch_norm, per_output(4), _accept_batch_norm, varies=anything,
    demands=demand.vectors(1, 2, 3, 4, of=0, axis=1), shapes=like(0, 3, 4), attributes=(check.EPSILON,),
    vjp=through(plain.batch),
)  # fmt: skip
define(
    "LRN", frozenset({Trait.POOLING}), _lower_lrn, per_output(16), varies=anything, shapes=LIKE_FIRST,
    attributes=(check.at_least(1, "size"),), vjp=through(plain.local_response),
)  # fmt: skip
