"""Concat, Split and Slice: parts of an axis."""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.facts import Facts, normal_axis
from graft.core.operators.definition.shape_rules import is_alone, is_filled_with
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import anything, varying_axis
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.manipulation import MOVEMENT, Indices, integers
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage


def _lower_concat(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()
    axis = normal_axis(lowering.node.attribute("axis"), len(target.shape))
    sources = [lowering.input(number) for number in range(len(lowering.inputs))]
    sources = [source for source in sources if b.extents(source)[axis] != 0]
    starts: list[Expression] = [b.index(0)]
    for source in sources:
        starts.append(b.add(starts[-1], b.extents(source)[axis]))

    def value(axes: Indices) -> Expression:
        if not sources:
            return b.constant(0, target.dtype)
        result: Expression | None = None
        for source, start, end in reversed(list(zip(sources, starts, starts[1:], strict=False))):
            position = b.subtract(axes[axis], start)
            mask = [] if len(sources) == 1 else b.inside(position, b.extents(source)[axis])
            part = b.masked_load(source, [*axes[:axis], position, *axes[axis + 1 :]], mask)
            result = part if result is None else b.select(b.less(axes[axis], end), part, result)
        assert result is not None
        return result

    return (b.compute(target, value),)


def _lower_split(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    axis = normal_axis(lowering.node.attribute("axis", 0), len(source.shape))
    extents = _part_extents(lowering, axis)
    is_checked = lowering.optional(1) is not None and lowering.constant(1) is None
    start: Expression = b.index(0)
    stages = []
    for number, extent in enumerate(extents):
        target = lowering.optional_output(number)
        if target is not None:
            stages.append(_slice(source, target, {axis: (start, 1)}, is_checked=is_checked))
        start = b.add(start, b.extent(extent))
    return tuple(stages)


def _part_extents(lowering: Lowering, axis: int) -> list[b.Count]:
    """The extents of the parts of a Split: as they are given, else alike but for the last."""
    whole, count = b.extents(lowering.input(0))[axis], len(lowering.outputs)
    given = lowering.optional(1)
    if given is None:
        if isinstance(whole, int):
            return [-(-whole // count)] * count
        return [b.divide(b.add(whole, count - 1), count)] * count
    known = integers(lowering.constant(1))
    if known is not None:
        return [*known]
    return [b.cast(b.load(given, number), "int64") for number in range(count)]


def _slice(
    source: Buffer, target: Buffer, steps: dict[int, tuple[Expression, b.Count]], *, is_checked: bool = False
) -> Stage:
    """Where it ``is_checked``, no position leaves the source, whatever the starts are."""

    def value(axes: Indices) -> Expression:
        moved_axes = list(axes)
        for axis, (start, step) in steps.items():
            place = b.add(b.multiply(axes[axis], step), start)
            moved_axes[axis] = b.clamp(place, b.extents(source)[axis]) if is_checked else place
        return b.load(source, *moved_axes)

    return b.compute(target, value)


def _first(start: int, step: int, extent: b.Extent) -> Expression:
    """The position of the first element of a slice, whose length the result's shape says.

    A start before the first element is that element in either direction (ONNX's Slice); Python's slices of negative
    steps are empty then, and begin at -1.
    """
    if isinstance(extent, int):
        return b.index(max(0, slice(start, None, step).indices(extent)[0]))
    place = b.index(start) if start >= 0 else b.maximum(b.add(extent, start), 0)
    return place if step > 0 else b.minimum(place, b.subtract(extent, 1))


def _slice_varies(node: NodeView) -> Reject | None:
    """Take every shape, if it is known along how many axes is cut."""
    starts = node.input(1)
    return None if starts is None or starts.static_shape is not None else varying_axis(node, starts, 0)


def _lower_slice(lowering: Lowering) -> tuple[Stage, ...]:
    """Where a slice begins and ends need not be constants: how long it is, the shape of the result says."""
    source = lowering.input(0)
    shape = b.extents(source)
    starts, given = integers(lowering.constant(1)), lowering.input(1)
    (count,) = (len(starts),) if starts is not None else b.dims(given)
    if starts is None or any(_is_computed(lowering, number) for number in (3, 4)):
        moves = _computed_slice(lowering, count)
        return (_slice(source, lowering.output(), moves, is_checked=True),)
    axes = integers(lowering.constant(3)) or list(range(count))
    steps = integers(lowering.constant(4)) or [1] * count
    known: dict[int, tuple[Expression, b.Count]] = {}
    for start, axis, step in zip(starts, axes, steps, strict=True):
        place = normal_axis(axis, len(shape))
        known[place] = (_first(start, step, shape[place]), step)
    return (_slice(source, lowering.output(), known),)


def _is_computed(lowering: Lowering, number: int) -> bool:
    return lowering.optional(number) is not None and lowering.constant(number) is None


def element_of(lowering: Lowering, number: int, place: int, default: int) -> b.Count:
    """Element ``place`` of an integer input: a number where it is known, ``default`` where the input is absent."""
    known = integers(lowering.constant(number))
    if known is not None:
        return known[place]
    given = lowering.optional(number)
    return default if given is None else b.cast(b.load(given, place), "int64")


def _computed_slice(lowering: Lowering, count: int) -> dict[int, tuple[Expression, b.Count]]:
    """The first position and the step by axis of a slice of which some numbers are known only when it is computed."""
    shape = b.extents(lowering.input(0))
    moves: dict[int, tuple[Expression, b.Count]] = {}
    for number in range(count):
        start = b.extent(element_of(lowering, 1, number, 0))
        step, axis = (element_of(lowering, *which) for which in ((4, number, 1), (3, number, number)))
        if isinstance(axis, int):
            place = normal_axis(axis, len(shape))
            moves[place] = (_computed_first(start, step, shape[place]), step)
            continue
        wanted = b.modulo(b.add(axis, len(shape)), len(shape))
        for place, extent in enumerate(shape):
            is_this = b.equal(wanted, place)
            first, by = moves.get(place, (b.index(0), b.index(1)))
            computed = _computed_first(start, step, extent)
            moves[place] = (b.select(is_this, computed, first), b.select(is_this, b.extent(step), b.extent(by)))
    return moves


def _computed_first(start: Expression, step: b.Count, extent: b.Extent) -> Expression:
    """The position of the first element of a slice whose start is known only when it is computed."""
    place = b.maximum(b.select(b.less(start, 0), b.add(start, extent), start), 0)
    if isinstance(step, int):
        last = b.extent(extent) if step > 0 else b.subtract(b.extent(extent), 1)
    else:
        last = b.subtract(b.extent(extent), b.cast(b.less(step, 0), "int64"))
    return b.minimum(place, last)


def _concat_demands(node: NodeView) -> Iterator[Equation]:
    for number in range(1, len(node.inputs)):
        yield from demand.alike(0, number, but=int(node.attribute("axis")))(node)


def _split_demands(node: NodeView) -> Iterator[Equation]:
    """The parts that are given come to the whole."""
    axis = int(node.attribute("axis", 0))
    if node.input(1) is not None:
        yield from demand.counted(1, 0, len(node.outputs))(node)
        parts = [demand.result(node, number, axis) for number in range(len(node.outputs))]
        if None not in parts:
            yield from demand.equation(demand.plus(*parts), demand.operand(node, 0, axis))


def _takes_everything(facts: Facts) -> bool:
    """Whether a Slice of one step keeps all extents."""
    steps = facts.view.input(4)
    return facts.keeps_shape and (steps is None or is_filled_with(facts, 4, 1))


define(
    "Concat", MOVEMENT | {Trait.JOINING}, _lower_concat, moved, varies=anything, demands=_concat_demands,
    shapes=shapes.concat, contents=contents.concat, identity=is_alone, attributes=(check.AXIS,),
    vjp=derivative.concatenated,
)  # fmt: skip
define(
    "Split", MOVEMENT, _lower_split, moved, varies=anything, demands=_split_demands,
    shapes=shapes.split, contents=contents.split,
    attributes=(check.AXIS, check.at_least(1, "num_outputs")), stated=Stated(claims.split),
    vjp=derivative.split,
)  # fmt: skip
define(
    "Slice", MOVEMENT, _lower_slice, moved, varies=_slice_varies, demands=demand.as_long(1, 2, 3, 4),
    shapes=shapes.slice_, contents=contents.slice_, identity=_takes_everything,
    attributes=(check.axes(3),), stated=Stated(claims.slice_, (1, 2, 3, 4)), vjp=derivative.sliced,
)  # fmt: skip
