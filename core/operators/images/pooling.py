"""Pools: reductions over sliding windows and over all positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.cost import elements, per_input, traffic
from graft.core.operators.definition.table import Cost, LowerFunction, Lowering, Trait, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.images import pool_derivatives as derivative
from graft.core.operators.images import shapes
from graft.core.operators.images.checks import WINDOWS
from graft.core.operators.images.windows import Begins, count, open_begins, padding_of, positions, windows_of
from graft.core.operators.reductions.reduction import Map, mean_of, rows, trailing
from graft.core.tensor_ir.anchors import Pooling, Windows
from graft.core.tensor_ir.ir import BinaryOperator, Buffer, Expression, Stage

POOLING = frozenset({Trait.POOLING})
REDUCTION = frozenset({Trait.REDUCTION})
QUANTIZABLE = frozenset({Trait.QUANTIZABLE, Trait.HOMOGENEOUS})
Indices = Sequence[Expression]


def _windows(lowering: Lowering) -> tuple[Windows, Begins, Pooling | None]:
    """Return the windows, and what is padded in front where it follows from extents that vary: no structure says so."""
    node, kernel = lowering.node, lowering.node.attribute("kernel_shape")
    target = next(buffer for buffer in map(lowering.optional_output, range(2)) if buffer is not None)
    extents = b.extents(lowering.input(0))[2:], b.extents(target)[2:]
    w = windows_of(node, extents[0], kernel, extents[1])
    begins = open_begins(node, w, *extents)
    return w, begins, None if begins else Pooling(w)


def _element(source: Buffer, w: Windows, begins: Begins, axes: Indices, k: Indices, outside: Expression) -> Expression:
    """The element that window ``axes`` sees at ``k``, or ``outside`` where it leaves the input."""
    places, conditions = positions(w, axes[2:], k, b.extents(source)[2:], begins)
    value = b.masked_load(source, [axes[0], axes[1], *places], conditions)
    mask = b.all_of(conditions)
    return value if mask is None else b.select(mask, value, outside)


def _lower_max_pool(lowering: Lowering) -> tuple[Stage, ...]:
    source, (w, begins, structure) = lowering.input(0), _windows(lowering)
    target, indices = lowering.optional_output(0), lowering.optional_output(1)
    lowest = b.lowest(source.dtype)
    best = target if target is not None else lowering.temporary(source.dtype, b.extents(lowering.output(1)))
    stage = b.reduce(best, "max", w.kernel, lambda i, k: _element(source, w, begins, i, k, lowest), structure=structure)
    return (stage,) if indices is None else (stage, _max_positions(lowering, best, indices))


def _max_positions(lowering: Lowering, best: Buffer, indices: Buffer) -> Stage:
    """The least flat position in the input, over all dimensions, that holds a window's maximum."""
    source, (w, begins, structure) = lowering.input(0), _windows(lowering)
    shape, by_column = b.extents(source), bool(lowering.node.attribute("storage_order", 0))
    order = list(range(w.rank))
    if by_column:
        order.reverse()
    known = [extent for extent in shape[2:] if isinstance(extent, int)]
    kind = "int32" if len(known) == w.rank and math.prod(known) < 1 << 31 else "int64"
    none, axes = b.highest(kind), list[Expression]()

    def flat(first: Expression, places: Indices) -> Expression:
        for d in order:
            first = b.add(b.multiply(first, shape[2 + d]), places[d])
        return first

    def candidate(i: Indices, k: Indices) -> Expression:
        """What lies between the first place of the window and one that holds its maximum."""
        axes[:] = i
        places, conditions = positions(w, i[2:], k, shape[2:], begins)
        value = b.masked_load(source, [i[0], i[1], *places], conditions)
        offset = flat(b.index(0), [b.multiply(one, w.dilations[d]) for d, one in enumerate(k)])
        matches = b.same(value, b.load(best, *i))
        mask = b.all_of(conditions)
        return b.select(matches if mask is None else b.both(mask, matches), b.cast(offset, kind), none)

    def position(offset: Expression) -> Expression:
        first = [b.subtract(b.multiply(axis, w.strides[d]), (begins or w.begins)[d]) for d, axis in enumerate(axes[2:])]
        return b.add(flat(b.add(b.multiply(axes[0], shape[1]), axes[1]), first), b.cast(offset, "int64"))

    return b.reduce(indices, "min", w.kernel, candidate, epilogue=position, structure=structure)


def _lower_average_pool(lowering: Lowering) -> tuple[Stage, ...]:
    source, target, (w, begins, structure) = lowering.input(0), lowering.output(), _windows(lowering)
    kind, counts_padding = b.wide(source.dtype), lowering.node.attribute("count_include_pad", 0)
    padding = padding_of(lowering.node, w) if counts_padding else None
    extents = b.extents(source)[2:]

    def value(axes: Indices, k: Indices) -> Expression:
        places, conditions = positions(w, axes[2:], k, b.extents(source)[2:], begins)
        return b.cast(b.masked_load(source, [axes[0], axes[1], *places], conditions), kind)

    if isinstance(total := count(w, [b.index(0)] * w.rank, extents, padding, begins), int):
        return (b.reduce(target, "add", w.kernel, value, epilogue=mean_of(total), structure=structure),)
    sums, counts = lowering.temporary(kind, b.extents(target)), lowering.temporary(kind, b.extents(target)[2:])

    def number(place: Indices) -> Expression:
        of = count(w, place, extents, padding, begins)
        return b.constant(float(of), kind) if isinstance(of, int) else b.cast(of, kind)

    def mean(i: Indices) -> Expression:
        return b.divide(b.load(sums, *i), b.load(counts, *i[2:]))

    summing = b.reduce(sums, "add", w.kernel, value, structure=structure)
    return (b.compute(counts, number), summing, b.compute(target, mean))


def _powered(p: int) -> Map:
    def function(x: Expression) -> Expression:
        size = b.unary("abs", x)
        return size if p == 1 else b.multiply(x, x) if p == 2 else b.intrinsic("pow", size, float(p))

    return function


def _rooted(p: int) -> Map:
    def function(total: Expression) -> Expression:
        return total if p == 1 else b.unary("sqrt", total) if p == 2 else b.intrinsic("pow", total, 1.0 / p)

    return function


def _lower_lp_pool(lowering: Lowering) -> tuple[Stage, ...]:
    source, (w, begins, structure) = lowering.input(0), _windows(lowering)
    p = lowering.node.attribute("p", 2)
    kind = b.wide(source.dtype)

    def value(axes: Indices, k: Indices) -> Expression:
        places, conditions = positions(w, axes[2:], k, b.extents(source)[2:], begins)
        return _powered(p)(b.cast(b.masked_load(source, [axes[0], axes[1], *places], conditions), kind))

    return (b.reduce(lowering.output(), "add", w.kernel, value, epilogue=_rooted(p), structure=structure),)


def _window_cost(node: NodeView) -> Cost:
    return Cost(elements(node.outputs[0]) * math.prod(node.attribute("kernel_shape")), traffic(node))


_pool = partial(
    define, traits=POOLING, cost=_window_cost, varies=anything, shapes=shapes.pool, bounds=shapes.pool_bounds,
    attributes=WINDOWS,
)  # fmt: skip
_pool(
    "MaxPool", traits=POOLING | {Trait.SELECTING, Trait.HOMOGENEOUS}, lower=_lower_max_pool,
    attributes=(*WINDOWS, check.one_of("storage_order", 0, 1)), vjp=derivative.maximum,
)  # fmt: skip
_pool("AveragePool", traits=POOLING | QUANTIZABLE, lower=_lower_average_pool, vjp=derivative.average)
_pool(
    "LpPool", lower=_lower_lp_pool, attributes=(*WINDOWS, check.at_least(1, "p")),
    vjp=through(derivative.norm_of_windows),
)  # fmt: skip

# ---- Over all positions -------------------------------------------------------------------------------------------


def _lower_global(
    operator: BinaryOperator, before: Callable[[NodeView], Map], after: Callable[[NodeView, int | Expression], Map]
) -> LowerFunction:
    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        source = lowering.input(0)
        axes = trailing(b.extents(source), 2)
        prepare, finish = before(lowering.node), after(lowering.node, axes.count)

        def value(place: Indices) -> Expression:
            return prepare(b.cast(b.load(source, *place), b.wide(source.dtype)))

        return (rows(lowering.output(), operator, axes, value, finish),)

    return lower


def _same(x: Expression) -> Expression:
    return x


_MEAN = _lower_global("add", lambda node: _same, lambda node, count: mean_of(count))
_MAX = _lower_global("max", lambda node: _same, lambda node, count: _same)
_NORM = _lower_global(
    "add", lambda node: _powered(node.attribute("p", 2)), lambda node, count: _rooted(node.attribute("p", 2))
)
_global = partial(define, traits=REDUCTION, cost=per_input(1), varies=anything, shapes=shapes.global_pool)
_global("GlobalAveragePool", lower=_MEAN, traits=REDUCTION | QUANTIZABLE, vjp=through(derivative.mean_over_image))
_global("GlobalMaxPool", lower=_MAX, traits=REDUCTION | {Trait.HOMOGENEOUS}, vjp=through(derivative.largest_of_image))
_global(
    "GlobalLpPool", lower=_NORM, cost=per_input(2), attributes=(check.at_least(1, "p"),),
    vjp=through(derivative.norm_over_image),
)  # fmt: skip
