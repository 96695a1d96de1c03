"""Pools: reductions over sliding windows and over all positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

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
COMPARED = 9
"""Elements of a window whose largest is found by comparing them one after another."""


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
    positions_of = None if indices is None else _MaxPositions(lowering, source, indices, w, begins)
    is_small = positions_of is not None and positions_of.is_small
    best = target if target is not None else lowering.temporary(source.dtype, b.extents(lowering.output(1)))
    stage = b.reduce(best, "max", w.kernel, lambda i, k: _element(source, w, begins, i, k, lowest), structure=structure)
    stages = () if target is None and is_small else (stage,)
    if positions_of is None:
        return stages
    return (*stages, positions_of.compared() if is_small else positions_of.searched(best, structure))


@dataclass(frozen=True, slots=True)
class _MaxPositions:
    """The least flat position in the input, over all dimensions, that holds a window's maximum."""

    lowering: Lowering
    source: Buffer
    indices: Buffer
    w: Windows
    begins: Begins

    @property
    def is_small(self) -> bool:
        """Whether windows are of few elements, all of which are in the input."""
        first, extents = [b.index(0)] * self.w.rank, b.extents(self.source)[2:]
        leaves = bool(positions(self.w, first, first, extents, self.begins)[1])
        return 1 < math.prod(self.w.kernel) <= COMPARED and not leaves

    @property
    def _kind(self) -> str:
        """The type of an offset in a window."""
        known = [extent for extent in b.extents(self.source)[2:] if isinstance(extent, int)]
        return "int32" if len(known) == self.w.rank and math.prod(known) < 1 << 31 else "int64"

    def _flat(self, first: Expression, places: Indices) -> Expression:
        order, shape = list(range(self.w.rank)), b.extents(self.source)
        if self.lowering.node.attribute("storage_order", 0):
            order.reverse()
        for d in order:
            first = b.add(b.multiply(first, shape[2 + d]), places[d])
        return first

    def _in_order(self) -> list[tuple[int, ...]]:
        """Return the places of a window, that of the least position first."""
        by_column = self.lowering.node.attribute("storage_order", 0)
        return sorted(np.ndindex(*self.w.kernel), key=lambda k: k[::-1] if by_column else k)

    def _candidate(self, i: Indices, k: Indices) -> tuple[Expression, Expression, Expression | None]:
        """What lies between the first place of window ``i`` and place ``k``, the element there, and if it is inside."""
        places, conditions = positions(self.w, i[2:], k, b.extents(self.source)[2:], self.begins)
        value = b.masked_load(self.source, [i[0], i[1], *places], conditions)
        offset = self._flat(b.index(0), [b.multiply(one, self.w.dilations[d]) for d, one in enumerate(k)])
        return b.cast(offset, self._kind), value, b.all_of(conditions)

    def _position(self, axes: Indices, offset: Expression) -> Expression:
        w, shape = self.w, b.extents(self.source)
        begins = self.begins or w.begins
        first = [b.subtract(b.multiply(axis, w.strides[d]), begins[d]) for d, axis in enumerate(axes[2:])]
        return b.add(self._flat(b.add(b.multiply(axes[0], shape[1]), axes[1]), first), b.cast(offset, "int64"))

    def searched(self, best: Buffer, structure: Pooling | None) -> Stage:
        """Return the least of the positions at which the window has its maximum, ``best``."""
        none, axes = b.highest(self._kind), list[Expression]()

        def candidate(i: Indices, k: Indices) -> Expression:
            axes[:] = i
            offset, value, mask = self._candidate(i, k)
            matches = _is_largest(value, b.load(best, *i))
            return b.select(matches if mask is None else b.both(mask, matches), offset, none)

        epilogue = partial(self._position, axes)
        return b.reduce(self.indices, "min", self.w.kernel, candidate, epilogue=epilogue, structure=structure)

    def compared(self) -> Stage:
        """Return the position at which a small window has its maximum: elements are compared one after another."""

        def position(i: Indices) -> Expression:
            every = [self._candidate(i, list(map(b.index, k))) for k in self._in_order()]
            largest = reduce(b.maximum, [value for _, value, _ in every])
            *others, (found, _, _) = every
            for offset, value, _ in reversed(others):
                found = b.select(_is_largest(value, largest), offset, found)
            return self._position(i, found)

        return b.compute(self.indices, position)


def _is_largest(value: Expression, largest: Expression) -> Expression:
    """Whether an element is the largest of some, which is NaN where one of them is."""
    is_float = value.type.is_float
    return b.either(b.equal(value, largest), b.is_nan(value)) if is_float else b.same(value, largest)


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
