"""Operators that move elements without changing them: the position in the output says the position in one input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import moved
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import OPERATORS, Lowering, Operator, Trait
from graft.core.operators.definition.varying import anything, fixed, varying_axis
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import stated_extents as claims
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, Stage

INJECTIVE = frozenset({Trait.INJECTIVE})
MOVEMENT = INJECTIVE | {Trait.DATA_MOVEMENT}
Indices = Sequence[Expression]


def constants_required(*numbers: int) -> Callable[[NodeView], Reject | None]:
    """Return the check that the inputs of these numbers, where present, are known at compile time."""

    def accepts(node: NodeView) -> Reject | None:
        for number in numbers:
            value = node.input(number)
            if value is not None and not value.is_constant:
                return Reject("constant-required", f"input '{value.name}' of {node.op_type} is computed at run time")
        return None

    return accepts


def integers(array: np.ndarray | None) -> list[int] | None:
    """Return the elements of a constant input as ints, None where it is absent."""
    return None if array is None else [int(value) for value in array.reshape(-1)]


# ---- Order --------------------------------------------------------------------------------------------------------


def _lower_transpose(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    rank = len(source.shape)
    order = lowering.node.attribute("perm") or list(reversed(range(rank)))
    place = [order.index(dimension) for dimension in range(rank)]
    return (b.compute(lowering.output(), lambda axes: b.load(source, *(axes[p] for p in place))),)


def _channel(block: int, depth: int, position: Sequence[Expression], mode: str) -> Expression:
    """The channel of the deep image where channel, row and column of a block stand; ``depth`` is the shallow one's."""
    c, row, column = position
    within = b.add(b.multiply(row, block), column)
    return b.add(b.multiply(within, depth), c) if mode == "DCR" else b.add(b.multiply(c, block * block), within)


def _lower_depth_to_space(lowering: Lowering) -> tuple[Stage, ...]:
    source, target, block = lowering.input(0), lowering.output(), lowering.node.attribute("blocksize")
    depth, mode = b.numbers(target, 1, 2)[0], lowering.node.attribute("mode", "DCR")

    def value(i: Indices) -> Expression:
        within = (i[1], *(b.modulo(place, block) for place in i[2:]))
        channel = _channel(block, depth, within, mode)
        return b.load(source, i[0], channel, *(b.divide(place, block) for place in i[2:]))

    return (b.compute(target, value),)


def _lower_space_to_depth(lowering: Lowering) -> tuple[Stage, ...]:
    source, block = lowering.input(0), lowering.node.attribute("blocksize")
    depth, mode = b.numbers(source, 1, 2)[0], lowering.node.attribute("mode", "DCR")

    def value(i: Indices) -> Expression:
        if mode == "DCR":
            c, within = b.modulo(i[1], depth), b.divide(i[1], depth)
        else:
            c, within = b.divide(i[1], block * block), b.modulo(i[1], block * block)
        places = (b.divide(within, block), b.modulo(within, block))
        spread = (b.add(b.multiply(place, block), offset) for place, offset in zip(i[2:], places, strict=True))
        return b.load(source, i[0], c, *spread)

    return (b.compute(lowering.output(), value),)


def _permutation(node: NodeView) -> str | None:
    """``perm`` holds each axis once."""
    rank, given = check.rank_of(node, 0), node.attribute("perm")
    if rank is None or given is None or sorted(given) == list(range(rank)):
        return None
    return f"perm {list(given)} is no order of the {rank} axes of its input"


_IMAGE_ORDER = check.one_of("mode", "DCR", "CRD")


OPERATORS.add(
    Operator(
        "Transpose",
        MOVEMENT,
        _lower_transpose,
        moved,
        varies=anything,
        shapes=shapes.transpose,
        contents=contents.transpose,
        attributes=(_permutation,),
    )
)
OPERATORS.add(
    Operator(
        "DepthToSpace",
        MOVEMENT,
        _lower_depth_to_space,
        moved,
        varies=fixed(1),
        shapes=shapes.depth_to_space,
        attributes=(check.divides("blocksize", 1, lambda block: block * block), _IMAGE_ORDER),
    )
)
OPERATORS.add(
    Operator(
        "SpaceToDepth",
        MOVEMENT,
        _lower_space_to_depth,
        moved,
        varies=fixed(1),
        shapes=shapes.space_to_depth,
        attributes=(check.divides("blocksize", 2), check.divides("blocksize", 3), _IMAGE_ORDER),
    )
)

# ---- Parts --------------------------------------------------------------------------------------------------------


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
    """The position of the first element of a slice, whose length the result's shape says."""
    if isinstance(extent, int):
        return b.index(slice(start, None, step).indices(extent)[0])
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


def _element(lowering: Lowering, number: int, place: int, default: int) -> b.Count:
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
        start = b.extent(_element(lowering, 1, number, 0))
        step, axis = (_element(lowering, *which) for which in ((4, number, 1), (3, number, number)))
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


OPERATORS.add(
    Operator(
        "Concat",
        MOVEMENT,
        _lower_concat,
        moved,
        varies=anything,
        demands=_concat_demands,
        shapes=shapes.concat,
        contents=contents.concat,
        attributes=(check.AXIS,),
    )
)
OPERATORS.add(
    Operator(
        "Split",
        MOVEMENT,
        _lower_split,
        moved,
        varies=anything,
        demands=_split_demands,
        shapes=shapes.split,
        contents=contents.split,
        attributes=(check.AXIS, check.at_least(1, "num_outputs")),
        stated=Stated(claims.split),
    )
)
OPERATORS.add(
    Operator(
        "Slice",
        MOVEMENT,
        _lower_slice,
        moved,
        varies=_slice_varies,
        demands=demand.as_long(1, 2, 3, 4),
        shapes=shapes.slice_,
        contents=contents.slice_,
        attributes=(check.axes(3),),
        stated=Stated(claims.slice_, (1, 2, 3, 4)),
    )
)

# ---- Repetition ---------------------------------------------------------------------------------------------------


def _lower_expand(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    shape = b.extents(lowering.output())
    return (b.compute(lowering.output(), lambda axes: b.broadcast(source, axes, shape)),)


def _lower_tile(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()

    def value(axes: Indices) -> Expression:
        pairs = zip(axes, b.extents(source), b.extents(target), strict=True)
        return b.load(source, *(axis if inner == outer else b.modulo(axis, inner) for axis, inner, outer in pairs))

    return (b.compute(target, value),)


OPERATORS.add(
    Operator(
        "Expand",
        MOVEMENT,
        _lower_expand,
        moved,
        varies=anything,
        demands=demand.expanding_to_result(0),
        shapes=shapes.expand,
        contents=contents.expand,
        bounds=shapes.expand_bounds,
        stated=Stated(claims.expand),
    )
)
OPERATORS.add(
    Operator(
        "Tile",
        MOVEMENT,
        _lower_tile,
        moved,
        varies=anything,
        demands=demand.counted(1, 0, lambda node: demand.rank_of(node.input(0))),
        shapes=shapes.tile,
        contents=contents.tile,
        stated=Stated(claims.tile),
    )
)

# ---- Padding ------------------------------------------------------------------------------------------------------


def _lower_pad(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    shape = b.extents(source)
    axes_in = integers(lowering.constant(3))
    chosen = [normal_axis(axis, len(shape)) for axis in (range(len(shape)) if axes_in is None else axes_in)]
    begins = {axis: _element(lowering, 1, number, 0) for number, axis in enumerate(chosen)}
    mode = lowering.node.attribute("mode", "constant")
    return (_padded(lowering, begins, mode),)


def _padded(lowering: Lowering, begins: Mapping[int, b.Count], mode: str) -> Stage:
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
        turned = b.maximum(position, b.subtract(b.index(0), position))
        return b.minimum(turned, b.subtract(b.index(2 * (extent - 1)), turned))
    period = extent if mode == "wrap" else max(2 * (extent - 1), 1)
    lift = -(-padded // period) * period
    rest = b.modulo(b.add(position, lift), period)
    if mode == "wrap":
        return rest
    return b.minimum(rest, b.subtract(b.index(period), rest)) if extent > 1 else b.index(0)


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
    named = demand.operand(node, 3, 0)
    yield from demand.equation(demand.operand(node, 1, 0), 2 * rank if named is None else demand.times(named, 2))
    axes = demand.numbers_in(node, 3) if node.input(3) is not None else [*range(rank)]
    amounts = demand.numbers_in(node, 1)
    if mode == "constant" or axes is None or amounts is None or len(amounts) != 2 * len(axes):
        return
    for axis, *ends in zip(axes, amounts, amounts[len(axes) :], strict=False):
        if max(ends) > 0:
            least = max(ends) + 1 if mode == "reflect" else 1
            yield from demand.equation(least, demand.operand(node, 0, axis), "at most")


OPERATORS.add(
    Operator(
        "Pad",
        INJECTIVE,
        _lower_pad,
        moved,
        _accept_pad,
        varies=anything,
        demands=_pad_demands,
        shapes=shapes.pad,
        attributes=(check.one_of("mode", "constant", "reflect", "edge", "wrap"), check.axes(3)),
        stated=Stated(claims.pad, (1, 3)),
    )
)


def _lower_center_crop_pad(lowering: Lowering) -> tuple[Stage, ...]:
    shape, full = b.extents(lowering.input(0)), b.extents(lowering.output())
    begins: dict[int, b.Count] = {}
    for dimension, (inner, outer) in enumerate(zip(shape, full, strict=True)):
        if inner != outer:  # the quotient is truncated, so that as much is cut off as would be added
            begins[dimension] = b.counted(b.divide(b.subtract(b.extent(outer), b.extent(inner)), 2))
    return (_padded(lowering, begins, "constant"),)


OPERATORS.add(
    Operator(
        "CenterCropPad",
        INJECTIVE,
        _lower_center_crop_pad,
        moved,
        varies=anything,
        demands=demand.counted(1, 0, lambda node: len(node.attribute("axes") or ()) or demand.rank_of(node.input(0))),
        shapes=shapes.center_crop_pad,
        attributes=(check.axes("axes"),),
        stated=Stated(claims.crop_or_pad),
    )
)

# ---- Triangles ----------------------------------------------------------------------------------------------------


def _lower_trilu(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output()
    upper = lowering.node.attribute("upper", 1)
    diagonal = b.cast(bound(lowering, 1), "int64") if lowering.optional(1) is not None else b.index(0)

    def value(axes: Indices) -> Expression:
        limit = b.add(axes[-2], diagonal)
        keep = b.greater_equal(axes[-1], limit) if upper else b.less_equal(axes[-1], limit)
        return b.select(keep, b.load(source, *axes), b.constant(0, source.dtype))

    return (b.compute(target, value),)


def _lower_eye(lowering: Lowering) -> tuple[Stage, ...]:
    offset = lowering.node.attribute("k", 0)
    target = lowering.output()

    def value(axes: Indices) -> Expression:
        on_diagonal = b.equal(b.subtract(axes[1], axes[0]), offset)
        return b.select(on_diagonal, b.constant(1, target.dtype), 0)

    return (b.compute(target, value),)


OPERATORS.add(Operator("Trilu", INJECTIVE, _lower_trilu, moved, varies=anything, shapes=LIKE_FIRST))
OPERATORS.add(Operator("EyeLike", INJECTIVE, _lower_eye, moved, varies=anything, shapes=LIKE_FIRST))

# ---- Contents from shapes and scalars -----------------------------------------------------------------------------


def _lower_constant_of_shape(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()
    value = lowering.node.attribute("value")
    fill = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    return (b.compute(target, lambda axes: b.constant(fill, target.dtype)),)


def _lower_shape(lowering: Lowering) -> tuple[Stage, ...]:
    shape = b.dims(lowering.input(0))
    start, end = lowering.node.attribute("start", 0), lowering.node.attribute("end")
    extents = shape[start:end]

    def value(axes: Indices) -> Expression:
        result: Expression = b.index(extents[-1] if extents else 0)
        for number in range(len(extents) - 2, -1, -1):
            result = b.select(b.equal(axes[0], number), b.index(extents[number]), result)
        return result

    return (b.compute(lowering.output(), value),)


def _lower_size(lowering: Lowering) -> tuple[Stage, ...]:
    return (b.compute(lowering.output(), lambda axes: b.index(math.prod(b.dims(lowering.input(0))))),)


def _lower_range(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()

    def value(axes: Indices) -> Expression:
        kind = b.wide(target.dtype)
        start, step = (b.cast(bound(lowering, number), kind) for number in (0, 2))
        return b.add(start, b.multiply(b.cast(axes[0], kind), step))

    return (b.compute(target, value),)


SHAPE_ONLY = INJECTIVE | {Trait.SHAPE_ONLY}
OPERATORS.add(
    Operator(
        "ConstantOfShape",
        INJECTIVE,
        _lower_constant_of_shape,
        moved,
        varies=anything,
        shapes=shapes.constant_of_shape,
        contents=contents.constant_of_shape,
        stated=Stated(claims.given_by(0), (0,)),
    )
)
OPERATORS.add(
    Operator(
        "Range",
        INJECTIVE,
        _lower_range,
        moved,
        varies=anything,
        shapes=shapes.range_,
        contents=contents.range_,
        stated=Stated(claims.range_, (0, 1, 2)),
    )
)
OPERATORS.add(Operator("Shape", SHAPE_ONLY, _lower_shape, moved, shapes=shapes.shape_of, contents=contents.shape_of))
OPERATORS.add(Operator("Size", SHAPE_ONLY, _lower_size, moved, shapes=shapes.size_of, contents=contents.size_of))
