"""Pad and CenterCropPad: elements beyond the edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import is_filled_with
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import shapes
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.manipulation import INJECTIVE, Indices, constants_required, integers
from graft.core.operators.movement.parts import element_of
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Constant, Expression, Stage


def _lower_pad(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    shape = b.extents(source)
    axes_in = integers(lowering.constant(3))
    chosen = [normal_axis(axis, len(shape)) for axis in (range(len(shape)) if axes_in is None else axes_in)]
    begins = {axis: element_of(lowering, 1, number, 0) for number, axis in enumerate(chosen)}
    mode, is_known = lowering.node.attribute("mode", "constant"), lowering.constant(1) is not None
    return (_padded(lowering, begins, mode, is_once=mode == "reflect" and is_known),)


def _padded(lowering: Lowering, begins: Mapping[int, b.Count], mode: str, *, is_once: bool = False) -> Stage:
    """Return what pads; ``is_once``: the node demands that an index is reflected at most once at each end."""
    source, target = lowering.input(0), lowering.output()
    shape, full = b.extents(source), b.extents(target)
    fill = bound(lowering, 2) if lowering.optional(2) is not None else b.constant(0, source.dtype)

    def value(axes: Indices) -> Expression:
        positions = [b.subtract(axis, begins.get(d, 0)) for d, axis in enumerate(axes)]
        if mode != "constant":
            places = []
            for dimension, position in enumerate(positions):
                begin, extent, padded = begins.get(dimension, 0), shape[dimension], full[dimension]
                if begin == 0 and extent == padded:
                    places.append(position)
                elif isinstance(begin, int) and isinstance(extent, int) and isinstance(padded, int):
                    places.append(mirrored(position, extent, padded, mode, begin))
                elif is_once:
                    places.append(_reflected(position, extent))
                else:
                    places.append(_mirrored_anywhere(position, extent, mode))
            varying = [extent for extent in shape if not isinstance(extent, int)]
            return b.masked_load(source, places, [b.greater(extent, 0) for extent in varying])
        conditions: list[Expression] = []
        for dimension, position in enumerate(positions):
            if begins.get(dimension, 0) or shape[dimension] != full[dimension]:
                conditions += b.inside(position, shape[dimension])
        element = b.masked_load(source, positions, conditions)
        mask = b.all_of(conditions)
        zero = isinstance(fill, Constant) and not fill.value
        return element if mask is None or zero else b.select(mask, element, fill)

    return b.compute(target, value)


def mirrored(position: Expression, extent: int, padded: int, mode: str, begin: int | None = None) -> Expression:
    """Return the position inside ``[0, extent)`` that Pad's ``reflect``, ``edge`` or ``wrap`` reads at ``position``.

    ``position`` lies in ``(-padded, padded)``, with ``begin`` in ``[-begin, padded - begin)``.
    """
    if mode == "edge":
        return b.clamp(position, extent)
    if mode == "reflect" and begin is not None and max(begin, padded - extent - begin) < extent:  # at most once
        return _reflected(position, extent)
    period = extent if mode == "wrap" else max(2 * (extent - 1), 1)
    lift = -(-padded // period) * period
    rest = b.modulo(b.add(position, lift), period)
    if mode == "wrap":
        return rest
    return b.minimum(rest, b.subtract(b.index(period), rest)) if extent > 1 else b.index(0)


def _reflected(position: Expression, extent: b.Extent) -> Expression:
    """The position that is reflected at most once at each end."""
    reflected = b.maximum(position, b.subtract(b.index(0), position))
    return b.minimum(reflected, b.subtract(b.multiply(b.subtract(b.extent(extent), 1), 2), reflected))


def _mirrored_anywhere(position: Expression, extent: b.Extent, mode: str) -> Expression:
    """The same where extent or amounts are known only when the kernel runs, for any position."""
    if mode == "edge":
        return b.clamp(position, extent)
    size = b.extent(extent)
    period = b.maximum(size if mode == "wrap" else b.multiply(b.subtract(size, 1), 2), 1)
    rest = b.modulo(b.add(b.modulo(position, period), period), period)
    return b.clamp(rest if mode == "wrap" else b.minimum(rest, b.subtract(period, rest)), extent)


def _accept_pad(node: NodeView) -> Reject | None:
    if node.attribute("mode", "constant") not in ("constant", "reflect", "edge", "wrap"):
        return Reject("attribute", f"Pad mode '{node.attribute('mode')}' is not known")
    return constants_required(3)(node)


def _pad_demands(node: NodeView) -> Iterator[Equation]:
    """Two numbers for each axis that is padded, which has elements to repeat, and others than its edge to reflect."""
    rank, mode = demand.rank_of(node.input(0)), node.attribute("mode", "constant")
    if rank is None:
        return
    padded = rank if node.input(3) is None else demand.operand(node, 3, 0)
    yield from demand.equation(demand.operand(node, 1, 0), demand.times(padded, 2))
    axes = demand.numbers_in(node, 3) if node.input(3) is not None else [*range(rank)]
    amounts = demand.numbers_in(node, 1)
    if mode == "constant" or axes is None or amounts is None or len(amounts) != 2 * len(axes):
        return
    for axis, *ends in zip(axes, amounts, amounts[len(axes) :], strict=False):
        if max(ends) > 0:
            least = max(ends) + 1 if mode == "reflect" else 1
            yield from demand.equation(least, demand.operand(node, 0, axis), "at most")


define(
    "Pad", INJECTIVE, _lower_pad, moved, _accept_pad, varies=anything, demands=_pad_demands,
    shapes=shapes.pad, identity=lambda facts: facts.keeps_shape and is_filled_with(facts, 1, 0),
    attributes=(check.one_of("mode", "constant", "reflect", "edge", "wrap"), check.axes(3)),
    stated=Stated(claims.pad, (1, 3)), vjp=derivative.padded,
)  # fmt: skip


def _lower_center_crop_pad(lowering: Lowering) -> tuple[Stage, ...]:
    shape, full = b.extents(lowering.input(0)), b.extents(lowering.output())
    begins: dict[int, b.Count] = {}
    for dimension, (inner, outer) in enumerate(zip(shape, full, strict=True)):
        if inner != outer:  # the quotient is truncated, so that as much is cut off as would be added
            begins[dimension] = b.counted(b.divide(b.subtract(b.extent(outer), b.extent(inner)), 2))
    return (_padded(lowering, begins, "constant"),)


define(
    "CenterCropPad", INJECTIVE, _lower_center_crop_pad, moved, varies=anything,
    demands=demand.counted(1, 0, lambda node: len(node.attribute("axes") or ()) or demand.rank_of(node.input(0))),
    shapes=shapes.center_crop_pad, attributes=(check.axes("axes"),), stated=Stated(claims.crop_or_pad),
)  # fmt: skip
