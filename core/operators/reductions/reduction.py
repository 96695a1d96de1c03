"""Reductions over axes: Reduce*, ArgMax, ArgMin, and the parts that normalisations share."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft.core.affine import expressions as extents
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.cost import per_input
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.movement.manipulation import constants_required, integers
from graft.core.operators.reductions import derivatives as derivative
from graft.core.operators.reductions import shapes
from graft.core.reject import Reject
from graft.core.tensor_ir.anchors import RowReduction
from graft.core.tensor_ir.ir import BinaryOperator, Buffer, Expression, Scan, Stage, Variable
from graft.core.types import INTEGERS, UNSIGNED, is_custom

REDUCTION = frozenset({Trait.REDUCTION})
Indices = Sequence[Expression]
Map = Callable[[Expression], Expression]


@dataclass(frozen=True, slots=True)
class Axes:
    """Which dimensions of a shape are reduced. A result may keep them with extent 1, or not have them."""

    shape: tuple[b.Count, ...]
    reduced: frozenset[int]

    @property
    def extents(self) -> list[b.Count]:
        """The extents of the reduced dimensions."""
        return [extent for dimension, extent in enumerate(self.shape) if dimension in self.reduced]

    @property
    def kept(self) -> tuple[b.Count, ...]:
        """The extents of the other dimensions: the shape of a temporary that holds one value per row."""
        return tuple(extent for dimension, extent in enumerate(self.shape) if dimension not in self.reduced)

    @property
    def count(self) -> int | Expression:
        """The number of elements that are reduced to one."""
        return b.product_of(self.extents)

    @property
    def positions(self) -> Expression:
        """The extent of the only dimension that is reduced: the position behind its last element."""
        (extent,) = self.extents
        return b.extent(extent)

    def source(self, axes: Indices, reduced: Indices) -> list[Expression]:
        """Return the index into the source of an index into the result and one into the reduced dimensions."""
        outer, inner = self.row(axes), list(reduced)
        return [inner.pop(0) if d in self.reduced else outer.pop(0) for d in range(len(self.shape))]

    def row(self, axes: Indices) -> list[Expression]:
        """Return the index into a temporary of shape `kept` of element ``axes`` of the source or of a result."""
        if len(axes) != len(self.shape):
            return list(axes)
        return [axis for dimension, axis in enumerate(axes) if dimension not in self.reduced]

    last = end = row
    """Where what a row comes to lies, of an element of the source and of the result: see `ComputedAxes`."""

    def fold(
        self,
        lowering: Lowering,
        operator: BinaryOperator,
        kind: str,
        value: Callable[[list[Expression]], Expression],
        epilogue: Map | None = None,
    ) -> tuple[list[Stage], Callable[[list[Expression]], Expression]]:
        """Return the stage that reduces rows, and what a row comes to at a place of a temporary of shape `kept`."""
        total = lowering.temporary(kind, self.kept)
        return [rows(total, operator, self, value, epilogue)], lambda place: b.load(total, *place)


def trailing(shape: tuple[b.Count, ...], first: int) -> Axes:
    """Return the axes that reduce all dimensions from ``first`` on."""
    return Axes(shape, frozenset(range(normal_axis(first, len(shape)), len(shape))))


def rows(
    target: Buffer, operator: BinaryOperator, axes: Axes, value: Callable[[list[Expression]], Expression],
    epilogue: Map | None = None,
) -> Stage:  # fmt: skip
    """Return the stage that reduces ``value(index into the source)`` into ``target``, one element per row."""
    structure = RowReduction(tuple(sorted(axes.reduced)))

    def element(i: Indices, k: Indices) -> Expression:
        return value(axes.source(i, k))

    return b.reduce(target, operator, axes.extents, element, epilogue=epilogue, structure=structure)


def reduced_axes(lowering: Lowering) -> Axes | None:
    """Return the axes of a Reduce operator, None where it is to do nothing."""
    shape = b.extents(lowering.input(0))
    axes = integers(lowering.constant(1))
    if axes is None and (known := _known_axes(lowering.node)) is not None:
        return Axes(shape, known)
    if not axes:
        if lowering.node.attribute("noop_with_empty_axes", 0):
            return None
        axes = list(range(len(shape)))
    return Axes(shape, frozenset(normal_axis(axis, len(shape)) for axis in axes))


@dataclass(frozen=True, slots=True)
class ComputedAxes:
    """Which dimensions are reduced where only data say it: every axis has a running fold, or none of its own.

    A fold along an axis that is not reduced leaves everything as it is; along another the last position has it all.
    """

    shape: tuple[b.Count, ...]
    is_reduced: tuple[Expression, ...]
    keeps: bool

    @property
    def count(self) -> Expression:
        """The number of elements that are reduced to one."""
        pairs = zip(self.is_reduced, self.shape, strict=True)
        return b.extent(b.product_of([b.select(reduced, b.extent(extent), 1) for reduced, extent in pairs]))

    def last(self, place: Indices) -> list[Expression]:
        """Return where the fold of the row of an element of the source ends."""
        triples = zip(self.is_reduced, self.shape, place, strict=True)
        return [b.select(reduced, b.subtract(b.extent(extent), 1), at) for reduced, extent, at in triples]

    def end(self, place: Indices) -> list[Expression]:
        """Return where the fold of an element of the result ends."""
        if self.keeps:
            return self.last(place)
        chosen: list[Expression] = []
        number: Expression = b.index(0)
        for reduced in self.is_reduced:
            at: Expression = b.index(0)
            for axis, own in enumerate(place):
                at = b.select(b.equal(number, axis), own, at)
            chosen.append(at)
            number = b.add(number, b.cast(b.unary("not", reduced), "int64"))
        return self.last(chosen)

    def fold(
        self,
        lowering: Lowering,
        operator: BinaryOperator,
        kind: str,
        value: Callable[[list[Expression]], Expression],
        epilogue: Map | None = None,
    ) -> tuple[list[Stage], Callable[[list[Expression]], Expression]]:
        """Return the stages, and what they come to at an end: of no elements, what the operator starts from."""
        stages: list[Stage] = []
        current: Buffer | None = None
        start = b.neutral(operator, kind)
        for axis, reduced in enumerate(self.is_reduced):
            axes, total = b.variables(len(self.shape)), lowering.temporary(kind, self.shape)
            scan = Scan(axes[axis], start)
            before = b.load(total, *axes[:axis], scan.previous, *axes[axis + 1 :])
            own = value([*axes]) if current is None else b.load(current, *axes)
            stages.append(Stage(total, axes, b.select(reduced, b.binary(operator, before, own), own), order=scan))
            current = total

        def end(place: list[Expression]) -> Expression:
            if current is None:
                return value(place)
            inside = [one for at, extent in zip(place, self.shape, strict=True) for one in b.inside(at, extent)]
            condition = b.all_of(inside)
            return b.select(condition, b.masked_load(current, place, inside), start) if condition else start

        return stages, end if epilogue is None else lambda place: epilogue(end(place))


def computed_axes(lowering: Lowering) -> ComputedAxes | None:
    """Return the axes of a Reduce operator that come as data and that no shape tells, None for others."""
    given, shape = lowering.optional(1), b.extents(lowering.input(0))
    if given is None or lowering.constant(1) is not None or _known_axes(lowering.node) is not None:
        return None
    (count,) = b.dims(given)
    if count == 0:
        return None
    rank = len(shape)
    axes = [b.cast(b.load(given, number), "int64") for number in range(count)]
    places = [b.modulo(b.add(axis, rank), rank) for axis in axes]
    reduced = tuple(
        functools.reduce(b.either, (b.equal(place, dimension) for place in places)) for dimension in range(rank)
    )
    return ComputedAxes(shape, reduced, bool(lowering.node.attribute("keepdims", 1)))


def _known_axes(node: NodeView) -> frozenset[int] | None:
    """Return which computed axes are reduced where the shapes of operand and result say it, else None."""
    source, axes, result = node.input(0), node.input(1), node.outputs[0]
    if axes is None or source is None or source.shape is None or result.shape is None:
        return None
    if not node.attribute("keepdims", 1):
        return axes_that_go(source.shape, result.shape)
    return None if node.attribute("noop_with_empty_axes", 0) else axes_of_shapes(source.shape, result.shape)


def axes_of_shapes(source: Sequence[object], target: Sequence[object]) -> frozenset[int] | None:
    """Return the axes along which a result of the same rank is reduced, None where its shape does not say them.

    Along an axis of extent 1 it makes no difference, for which such an axis counts as reduced.
    """
    if len(source) != len(target):
        return None
    if any(inner != outer and outer != 1 for inner, outer in zip(source, target, strict=True)):
        return None
    return frozenset(axis for axis, extent in enumerate(target) if extent == 1)


def axes_that_go(source: Sequence[object], target: Sequence[object]) -> frozenset[int] | None:
    """Return the axes without which a shape is that of the result, None where several sets of axes would do.

    Sets that differ by axes of extent 1 are one: it makes no difference which of these go.
    """
    if not len(target) < len(source) <= MOST_AXES:
        return None
    chosen = itertools.combinations(range(len(source)), len(source) - len(target))
    found = [axes for axes in chosen if [e for a, e in enumerate(source) if a not in axes] == list(target)]
    long = {frozenset(axis for axis in axes if source[axis] != 1) for axes in found}
    return frozenset(found[0]) if len(long) == 1 else None


MOST_AXES = 8
"""The rank up to which all sets of axes are tried."""


def _lower_reduce(
    operator: BinaryOperator,
    before: Map | None = None,
    after: Callable[[int | Expression], Map] | None = None,
    integers_in: str | None = None,
) -> LowerFunction:
    """Lower to one stage: ``after(count)`` of the reduction of ``before(x)``.

    Integers are reduced in the type ``integers_in``, where a result that fits its type may come from larger sums.
    """

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        source, target = lowering.input(0), lowering.output()
        kind = b.wide(source.dtype)
        if integers_in is not None and kind in INTEGERS:
            kind = integers_in

        def value(position: Indices) -> Expression:
            x = b.cast(b.load(source, *position), kind)
            return before(x) if before is not None else x

        computed = computed_axes(lowering)
        if computed is not None:
            stages, total = computed.fold(lowering, operator, kind, value)
            finish = after(computed.count) if after is not None else lambda x: x
            return (*stages, b.compute(target, lambda i: finish(total(computed.end(i)))))
        axes = reduced_axes(lowering)
        if axes is None or not axes.reduced:
            finish = after(1) if after is not None else lambda x: x
            return (b.compute(target, lambda i: finish(value(i))),)
        return (rows(target, operator, axes, value, after(axes.count) if after is not None else None),)

    return lower


def mean_of(count: int | Expression) -> Map:
    """Return the division of a sum by ``count``; of integers it is truncated."""

    def mean(total: Expression) -> Expression:
        if isinstance(count, int):
            return b.divide(total, float(count) if total.type.is_float else count)
        return b.divide(total, b.cast(count, total.type.dtype))

    return mean


def square(x: Expression) -> Expression:
    """Return ``x * x``."""
    return b.multiply(x, x)


def root(x: Expression) -> Expression:
    """Return the square root."""
    return b.unary("sqrt", x)


def logarithm(x: Expression) -> Expression:
    """Return the natural logarithm."""
    return b.intrinsic("log", x)


def _absolute(x: Expression) -> Expression:
    return x if x.type.dtype in UNSIGNED else b.unary("abs", x)


def _always(function: Map) -> Callable[[int | Expression], Map]:
    return lambda count: function


def shifted(highest_value: Expression) -> Expression:
    """Return the maximum that is subtracted before ``exp``: 0 where it is infinite, so that no NaN arises."""
    infinite = b.equal(b.unary("abs", highest_value), math.inf)
    return b.select(infinite, b.constant(0.0, highest_value.type.dtype), highest_value)


def _lower_log_sum_exp(lowering: Lowering) -> tuple[Stage, ...]:
    """``m + log(sum(exp(x - m)))`` with m the maximum; of integers in float64."""
    source, target, computed = lowering.input(0), lowering.output(), computed_axes(lowering)
    kind = "float64" if source.dtype in INTEGERS else b.wide(source.dtype)
    axes = computed or reduced_axes(lowering)
    if axes is None:
        return (b.compute(target, lambda i: b.load(source, *i)),)

    def x(place: Indices) -> Expression:
        return b.cast(b.load(source, *place), kind)

    tops, top = axes.fold(lowering, "max", kind, x, shifted)

    def exponential(place: Indices) -> Expression:
        return b.intrinsic("exp", b.subtract(x(place), top(axes.last(place))))

    sums, total = axes.fold(lowering, "add", kind, exponential)

    def value(i: Indices) -> Expression:
        place = axes.end(i)
        return b.add(b.intrinsic("log", total(place)), top(place))

    return (*tops, *sums, b.compute(target, value))


def _accept_axes(node: NodeView) -> Reject | None:
    """Take axes that are constants, that the shapes of operand and result tell, or of a known number."""
    axes = node.input(1)
    if _known_axes(node) is not None or (
        axes is not None and axes.static_shape is not None and len(axes.static_shape) == 1
    ):
        return None
    return constants_required(1)(node)


_add = functools.partial(
    define, traits=REDUCTION, cost=per_input(1), accepts=_accept_axes, varies=anything, shapes=shapes.reduced,
    attributes=(check.axes(1),), stated=Stated(shapes.reduced_extents),
)  # fmt: skip
_fold = functools.partial(_add, identity=lambda facts: facts.keeps_shape)  # each row is one element
_choose = functools.partial(_fold, traits=REDUCTION | {Trait.SELECTING})
_fold("ReduceSum", lower=_lower_reduce("add"), contents=shapes.reduced_contents(extents.add), vjp=derivative.total)
_fold("ReduceMean", lower=_lower_reduce("add", after=mean_of, integers_in="int64"), vjp=derivative.mean)
_fold(
    "ReduceProd", lower=_lower_reduce("mul"), contents=shapes.reduced_contents(extents.multiply), vjp=derivative.product
)
_choose(
    "ReduceMax", lower=_lower_reduce("max"), contents=shapes.reduced_contents(extents.maximum), vjp=derivative.extreme
)
_choose(
    "ReduceMin", lower=_lower_reduce("min"), contents=shapes.reduced_contents(extents.minimum), vjp=derivative.extreme
)
_add("ReduceL1", lower=_lower_reduce("add", _absolute), cost=per_input(2), vjp=derivative.magnitudes)
_add("ReduceL2", lower=_lower_reduce("add", square, _always(root), "float64"), cost=per_input(2), vjp=derivative.norm)
_add("ReduceSumSquare", lower=_lower_reduce("add", square), cost=per_input(2), vjp=derivative.squares)
_add(
    "ReduceLogSum", lower=_lower_reduce("add", after=_always(logarithm), integers_in="float64"), vjp=derivative.log_sum
)
_add(
    "ReduceLogSumExp", traits=frozenset({Trait.ROW_WISE}), lower=_lower_log_sum_exp, cost=per_input(10),
    vjp=derivative.log_sum_exp,
)  # fmt: skip

# ---- ArgMax and ArgMin --------------------------------------------------------------------------------------------


def _lower_arg(operator: BinaryOperator) -> LowerFunction:
    """The extreme value, then the first (or last) position that holds it; NaN is more extreme than any number."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        source, target = lowering.input(0), lowering.output()
        shape = b.extents(source)
        axis = normal_axis(lowering.node.attribute("axis", 0), len(shape))
        axes = Axes(shape, frozenset({axis}))
        best = lowering.temporary(source.dtype, axes.kept)
        last = bool(lowering.node.attribute("select_last_index", 0))
        none = b.index(-1) if last else axes.positions

        def candidate(i: tuple[Variable, ...], k: tuple[Variable, ...]) -> Expression:
            place = axes.source(i, k)
            matches = b.same(b.load(source, *place), b.load(best, *axes.row(place)))
            return b.select(matches, k[0], none)

        def legal(found: Expression) -> Expression:
            return b.select(b.equal(found, none), 0, found)  # no bits match: a custom datatype with several NaNs

        choose: BinaryOperator = "max" if last else "min"
        return (
            rows(best, operator, axes, lambda place: b.load(source, *place)),
            b.reduce(target, choose, axes.extents, candidate, none, legal if is_custom(source.dtype) else None),
        )

    return lower


_place = functools.partial(
    define, traits=frozenset({Trait.ROW_WISE}), cost=per_input(2), varies=anything, shapes=shapes.chosen,
    attributes=(check.AXIS,),
)  # fmt: skip
_place("ArgMax", lower=_lower_arg("max"))
_place("ArgMin", lower=_lower_arg("min"))
