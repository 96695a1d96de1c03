"""Operators that read or write at positions given by data.

Positions from the end (negative) count as ONNX says. A position outside the array is an error, which a check finds
before the operator runs (`index_check` of the schedules); here it is moved to the nearest legal one, so that it cannot
reach foreign memory where the check is switched off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import index_bounds
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import LIKE_FIRST, like
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, define
from graft.core.operators.definition.varying import anything, varying_axis
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.manipulation import INJECTIVE, MOVEMENT
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Expression, Stage

Indices = Sequence[Expression]


def position(value: Expression, extent: b.Extent, node: NodeView | None = None) -> Expression:
    """Return the position in ``[0, extent)`` that an index means; one from the end is negative, if a node has such."""
    wide = b.cast(value, "int64")
    if node is not None and index_bounds.FROM_FRONT in node.node.metadata_props:
        fits = isinstance(extent, int) and extent < 1 << 31
        return b.cast(b.clamp(value, extent), "int64") if fits else b.clamp(wide, extent)
    return b.clamp(b.select(b.less(wide, 0), b.add(wide, extent), wide), extent)


def _element(lowering: Lowering, number: int, axes: Indices, extent: b.Extent) -> Expression:
    """Element ``axes`` of the index input ``number`` as a position; folded if the input is one known scalar."""
    known = lowering.constant(number)
    if known is not None and known.size == 1:
        value = int(known.reshape(-1)[0])
        return b.clamp(b.add(b.index(value), extent) if value < 0 else b.index(value), extent)
    return position(b.load(lowering.input(number), *axes), extent, lowering.node)


def _lower_gather(lowering: Lowering) -> tuple[Stage, ...]:
    data, indices = lowering.input(0), lowering.input(1)
    axis = normal_axis(lowering.node.attribute("axis", 0), len(data.shape))
    rank, extent = len(indices.shape), b.extents(data)[axis]

    def value(axes: Indices) -> Expression:
        chosen = _element(lowering, 1, axes[axis : axis + rank], extent)
        return b.load(data, *axes[:axis], chosen, *axes[axis + rank :])

    return (b.compute(lowering.output(), value),)


def _lower_gather_elements(lowering: Lowering) -> tuple[Stage, ...]:
    data = lowering.input(0)
    axis = normal_axis(lowering.node.attribute("axis", 0), len(data.shape))

    def value(axes: Indices) -> Expression:
        chosen = _element(lowering, 1, axes, b.extents(data)[axis])
        return b.load(data, *axes[:axis], chosen, *axes[axis + 1 :])

    return (b.compute(lowering.output(), value),)


def _lower_gather_nd(lowering: Lowering) -> tuple[Stage, ...]:
    data, indices = lowering.input(0), lowering.input(1)
    batch = lowering.node.attribute("batch_dims", 0)
    shape, rank, (depth,) = b.extents(data), len(indices.shape), b.numbers(indices, len(indices.shape) - 1)

    def value(axes: Indices) -> Expression:
        tuple_of = axes[: rank - 1]
        chosen = [
            position(b.load(indices, *tuple_of, number), shape[batch + number])  #
            for number in range(depth)
        ]
        return b.load(data, *axes[:batch], *chosen, *axes[rank - 1 :])

    return (b.compute(lowering.output(), value),)


def _lower_one_hot(lowering: Lowering) -> tuple[Stage, ...]:
    indices, values, target = lowering.input(0), lowering.input(2), lowering.output()
    axis = normal_axis(lowering.node.attribute("axis", -1), len(target.shape))
    depth = b.extents(target)[axis]

    def value(axes: Indices) -> Expression:
        wide = b.cast(b.load(indices, *axes[:axis], *axes[axis + 1 :]), "int64")
        hot = b.equal(b.select(b.less(wide, 0), b.add(wide, depth), wide), axes[axis])
        return b.select(hot, b.load(values, 1), b.load(values, 0))

    return (b.compute(target, value),)


def _lower_reverse_sequence(lowering: Lowering) -> tuple[Stage, ...]:
    source, lengths = lowering.input(0), lowering.input(1)
    batch, time = lowering.node.attribute("batch_axis", 1), lowering.node.attribute("time_axis", 0)

    def value(axes: Indices) -> Expression:
        length = b.cast(b.load(lengths, axes[batch]), "int64")
        step = axes[time]
        reversed_step = b.select(b.less(step, length), b.subtract(b.subtract(length, 1), step), step)
        place = list(axes)
        place[time] = b.clamp(reversed_step, b.extents(source)[time])
        return b.load(source, *place)

    return (b.compute(lowering.output(), value),)


def _known_depth(node: NodeView) -> Reject | None:
    """Take any extents, where it is a number how many positions are chosen by together."""
    indices = node.input(1)
    shape = (None if indices is None else indices.shape) or ()
    return None if indices is None or isinstance(shape[-1], int) else varying_axis(node, indices, len(shape) - 1)


def _gather_nd_demands(node: NodeView) -> Iterator[Equation]:
    for axis in range(int(node.attribute("batch_dims", 0))):
        yield from demand.same(0, axis, 1, axis)(node)


def _batch_dimensions(node: NodeView) -> str | None:
    """GatherND: the leading axes that data and indices share leave an axis of both."""
    given, ranks = node.attribute("batch_dims", 0), (check.rank_of(node, 0), check.rank_of(node, 1))
    least = min((rank for rank in ranks if rank is not None), default=None)
    if least is None or 0 <= given < least:
        return None
    shown = f"data and indices of ranks {ranks[0]} and {ranks[1]} allow 0 to {least - 1}"
    return f"batch_dims {given} is out of range: {shown}"


def _reversed_axes(node: NodeView) -> str | None:
    """ReverseSequence: batch and time are the first two axes, each one of them."""
    found = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    if sorted(found) == [0, 1]:
        return None
    return f"batch_axis {found[0]} and time_axis {found[1]}; one of them is 0, the other 1"


define(
    "Gather", MOVEMENT, _lower_gather, moved, varies=anything, shapes=shapes.gather, contents=contents.gather,
    attributes=(check.AXIS,), indices=index_bounds.along_axis, vjp=derivative.gathered,
)  # fmt: skip
define(
    "GatherElements", MOVEMENT, _lower_gather_elements, moved, varies=anything,
    demands=demand.within(1, 0, but=demand.attribute("axis", 0)), shapes=like(1),
    attributes=(check.AXIS,), asked_when_loaded=True, indices=index_bounds.along_axis,
    vjp=derivative.gathered_elements,
)  # fmt: skip
define(
    "GatherND", MOVEMENT, _lower_gather_nd, moved, varies=_known_depth, demands=_gather_nd_demands,
    shapes=shapes.gather_nd, attributes=(_batch_dimensions,), indices=index_bounds.tuples,
    vjp=derivative.gathered_slices,
)  # fmt: skip
define(
    "OneHot", INJECTIVE, _lower_one_hot, moved, varies=anything, demands=demand.counted(2, 0, 2),
    shapes=shapes.one_hot, attributes=(check.axis(more=1),), stated=Stated(claims.one_hot), vjp=derivative.one_hot,
)  # fmt: skip
define(
    "ReverseSequence", MOVEMENT, _lower_reverse_sequence, moved, varies=anything,
    demands=demand.vectors(1, of=0, axis=demand.attribute("batch_axis", 1)), shapes=LIKE_FIRST,
    attributes=(_reversed_axes,), asked_when_loaded=True,
    indices=index_bounds.counts(1, lambda node: int(node.attribute("time_axis", 0))), vjp=derivative.reversed_sequence,
)  # fmt: skip
