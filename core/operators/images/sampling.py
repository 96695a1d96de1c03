"""Images read between their pixels and at computed places: GridSample, AffineGrid, DeformConv, Col2Im, MaxUnpool."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import add, floordiv, multiply, subtract
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.cost import moved, per_output
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.images import checks, pool_derivatives, shapes
from graft.core.operators.images import derivatives as derivative
from graft.core.operators.images.plain_sampling import deformed_convolution, grid_sample, sampled
from graft.core.operators.images.resize_positions import cubic_weights
from graft.core.operators.movement.manipulation import INJECTIVE, integers
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Axis, Buffer, Expression, Load, Scatter, Stage
from graft.core.types import FLOATS
from graft.runtime.extents import Extent

Indices = Sequence[Expression]

# ---- GridSample ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One axis of the image that is sampled: its extent, and what is said of places outside."""

    extent: b.Count
    kind: str
    aligned: bool
    padding: str

    @property
    def size(self) -> Expression:
        """The extent as a number of the grid's type."""
        return b.cast(b.extent(self.extent), self.kind)

    def place(self, normal: Expression) -> Expression:
        """Return the position that a coordinate in [-1, 1] stands for."""
        if self.aligned:
            return b.multiply(b.divide(b.add(normal, 1.0), 2.0), b.subtract(self.size, 1.0))
        return b.divide(b.subtract(b.multiply(b.add(normal, 1.0), self.size), 1.0), 2.0)

    def inside(self, place: Expression) -> Expression:
        """Return a position as the padding moves it: to the border, by reflections at it, or not at all."""
        match self.padding:
            case "border":
                return b.minimum(b.maximum(place, 0.0), b.subtract(self.size, 1.0))
            case "reflection":
                return self._reflected(place)
            case _:
                return place

    def _reflected(self, place: Expression) -> Expression:
        low = b.constant(0.0 if self.aligned else -0.5, self.kind)
        high = b.subtract(self.size, 1.0 if self.aligned else 0.5)
        length = b.maximum(b.subtract(high, low), 0.0)
        beyond = b.maximum(b.subtract(low, place), b.subtract(place, high))
        times = b.unary("trunc", b.divide(beyond, length))
        rest = b.subtract(beyond, b.multiply(times, length))
        even = b.equal(b.subtract(times, b.multiply(b.unary("floor", b.divide(times, 2.0)), 2.0)), 0.0)
        from_low = b.equal(even, b.less(place, low))
        reflected = b.select(from_low, b.add(low, rest), b.subtract(high, rest))
        reflected = b.select(b.equal(length, 0.0), low, reflected)
        return b.select(b.greater(beyond, 0.0), reflected, place)

    def pixel(self, place: Expression) -> tuple[Expression, list[Expression]]:
        """Return the pixel at a whole position, an int64, and under which conditions there is one."""
        if self.padding == "zeros":
            return place, list(b.inside(place, self.extent))
        if self.padding == "reflection":
            place = b.cast(self._reflected(b.cast(place, self.kind)), "int64")
        return b.clamp(place, self.extent), []

    def taps(self, mode: str, place: Expression) -> list[tuple[Expression, Expression | None]]:
        """Return the whole positions around one, each with its weight; None: it is the only one."""
        if mode == "nearest":
            return [(b.cast(place, "int64"), None)]
        whole = b.unary("floor", place)
        first, fraction = b.cast(whole, "int64"), b.subtract(place, whole)
        if mode in ("linear", "bilinear"):
            return [(first, b.subtract(b.constant(1.0, self.kind), fraction)), (b.add(first, 1), fraction)]
        weights = cubic_weights(fraction, -0.75)
        return [(b.add(first, offset), weight) for offset, weight in zip((-1, 0, 1, 2), weights, strict=True)]


def _lower_grid_sample(lowering: Lowering) -> tuple[Stage, ...]:
    """The position along each axis, once for all channels; then the weighted sum of the pixels around it."""
    source, grid, target, node = lowering.input(0), lowering.input(1), lowering.output(), lowering.node
    kind, mode = b.wide(grid.dtype), node.attribute("mode", "linear")
    aligned, padding = bool(node.attribute("align_corners", 0)), node.attribute("padding_mode", "zeros")
    shape = b.counts(source)
    sides = [_Side(extent, kind, aligned, padding) for extent in shape[2:]]
    stages: list[Stage] = []
    for number, side in enumerate(sides):
        last = len(sides) - 1 - number

        def position(i: Indices, side: _Side = side, last: int = last) -> Expression:
            place = side.place(b.cast(b.load(grid, *i, last), kind))
            if mode in ("cubic", "bicubic"):  # as PyTorch and ONNX Runtime: the taps alone move
                return place
            return side.inside(b.unary("round_even", place) if mode == "nearest" else place)

        stages.append(b.compute(lowering.temporary(kind, (shape[0], *b.counts(target)[2:])), position))
    places = [stage.buffer for stage in stages]

    def value(i: Indices) -> Expression:
        positions = [b.load(place, i[0], *i[2:]) for place in places]
        return _interpolated(source, i[:2], sides, positions, mode)

    return (*stages, b.compute(target, value))


def _interpolated(
    source: Buffer, leading: Indices, sides: Sequence[_Side], positions: Indices, mode: str
) -> Expression:
    """The sum over the taps of the first axis of the sums over those of the others."""
    kind = source.dtype if mode == "nearest" else b.wide(source.dtype)

    def along(number: int, places: list[Expression], conditions: list[Expression]) -> Expression:
        if number == len(sides):
            return b.cast(b.masked_load(source, [*leading, *places], conditions), kind)
        total: Expression | None = None
        for place, weight in sides[number].taps(mode, positions[number]):
            pixel, own = sides[number].pixel(place)
            inner = along(number + 1, [*places, pixel], [*conditions, *own])
            term = inner if weight is None else b.multiply(b.cast(weight, kind), inner)
            total = term if total is None else b.add(total, term)
        assert total is not None
        return total

    return along(0, [], [])


def _accept_grid_sample(node: NodeView) -> Reject | None:
    if node.dtype not in FLOATS and not (node.attribute("mode") == "nearest" and node.dtype != "bool"):
        return Reject("dtype", f"GridSample of {node.dtype} with interpolation is not lowered")
    return None


def _grid_demands(node: NodeView) -> Iterator[Equation]:
    """A grid for each image, with as many coordinates as that has axes; without zeros around it, it has a pixel."""
    yield from demand.same(0, 0, 1, 0)(node)
    rank = demand.rank_of(node.input(0))
    if rank is None:
        return
    yield from demand.counted(1, -1, rank - 2)(node)
    if node.attribute("padding_mode", "zeros") != "zeros":
        for axis in range(2, rank):
            yield from demand.equation(1, demand.operand(node, 0, axis), "at most")


SAMPLING = frozenset({Trait.INJECTIVE})
define(
    "GridSample",
    SAMPLING,
    _lower_grid_sample,
    per_output(24),
    _accept_grid_sample,
    varies=anything,
    demands=_grid_demands,
    shapes=shapes.grid_sample,
    attributes=(
        check.one_of("mode", "linear", "nearest", "cubic", "bilinear", "bicubic"),
        check.one_of("padding_mode", "zeros", "border", "reflection"),
    ),
    function=grid_sample,
    vjp=sampled,
)

# ---- AffineGrid ---------------------------------------------------------------------------------------------------


def _lower_affine_grid(lowering: Lowering) -> tuple[Stage, ...]:
    """Each row of theta times the coordinates of a pixel, x first, and 1."""
    theta, target = lowering.input(0), lowering.output()
    kind, extents = b.wide(theta.dtype), b.counts(target)[1:-1]
    aligned = bool(lowering.node.attribute("align_corners", 0))

    def coordinate(place: Expression, extent: b.Count) -> Expression:
        at, size = b.cast(place, kind), b.cast(b.extent(extent), kind)
        if aligned:
            steps = b.subtract(size, 1.0)
            spread = b.subtract(b.divide(b.multiply(at, 2.0), steps), 1.0)
            return b.select(b.equal(steps, 0.0), b.constant(-1.0, kind), spread)
        return b.subtract(b.divide(b.add(b.multiply(at, 2.0), 1.0), size), 1.0)

    def value(i: Indices) -> Expression:
        total = b.cast(b.load(theta, i[0], i[-1], len(extents)), kind)
        for number, (place, extent) in enumerate(zip(reversed(i[1:-1]), reversed(extents), strict=True)):
            factor = b.cast(b.load(theta, i[0], i[-1], number), kind)
            total = b.add(b.multiply(factor, coordinate(place, extent)), total)
        return total

    return (b.compute(target, value),)


def _affine_demands(node: NodeView) -> Iterator[Equation]:
    """A matrix for each image of the result, for its axes and 1."""
    rank = demand.rank_of(node.outputs[0])
    yield from demand.equation(demand.operand(node, 0, 0), demand.result(node, 0, 0))
    if rank is not None:
        yield from demand.counted(0, 1, rank - 2)(node)
        yield from demand.counted(0, 2, rank - 1)(node)


define(
    "AffineGrid", INJECTIVE, _lower_affine_grid, per_output(8), varies=anything, demands=_affine_demands,
    shapes=shapes.affine_grid,
)  # fmt: skip

# ---- DeformConv ---------------------------------------------------------------------------------------------------


def _lower_deform_conv(lowering: Lowering) -> tuple[Stage, ...]:
    """What every weight reads, between four pixels at its offset; then the products with the weights."""
    node, source, weights, offsets = lowering.node, lowering.input(0), lowering.input(1), lowering.input(2)
    bias, mask, target = lowering.optional(3), lowering.optional(4), lowering.output()
    kind, groups, offset_groups = b.wide(source.dtype), node.attribute("group", 1), node.attribute("offset_group", 1)
    images, channels = b.counts(source)[0], b.dims(source)[1]
    outputs, width, *kernel = b.dims(weights)
    strides, dilations = node.attribute("strides") or [1, 1], node.attribute("dilations") or [1, 1]
    pads = node.attribute("pads") or [0, 0, 0, 0]
    sides = [_Side(extent, kind, True, "zeros") for extent in b.counts(source)[2:]]
    each = channels // offset_groups

    def read(i: Indices) -> Expression:
        image, row, column, channel, *out = i  # places are those of a tap, for all channels behind it
        group = b.divide(channel, each) if offset_groups > 1 else b.index(0)
        tap = b.add(b.multiply(row, kernel[1]), column)
        number = b.add(b.multiply(group, kernel[0] * kernel[1]), tap)
        positions = []
        for axis, (at, offset) in enumerate(zip(out, (row, column), strict=True)):
            fixed = b.subtract(b.add(b.multiply(at, strides[axis]), b.multiply(offset, dilations[axis])), pads[axis])
            moved_by = b.cast(b.load(offsets, image, b.add(b.multiply(number, 2), axis), *out), kind)
            positions.append(b.add(b.cast(fixed, kind), moved_by))
        pixel = _interpolated(source, (image, channel), sides, positions, "linear")
        return pixel if mask is None else b.multiply(pixel, b.cast(b.load(mask, image, number, *out), kind))

    spatial, terms = b.counts(target)[2:], [*kernel, width]
    patches = b.compute(lowering.temporary(kind, (images, *kernel, channels, *spatial)), read)

    def product(image: Expression, group: Expression, output: Expression, k: Indices, out: Indices) -> Expression:
        channel = b.add(b.multiply(group, width), k[2])
        patch = b.load(patches.buffer, image, k[0], k[1], channel, *out)
        return b.multiply(b.cast(b.load(weights, output, k[2], k[0], k[1]), kind), patch)

    if groups == 1:
        sums = b.contract(
            target if bias is None and kind == target.dtype else lowering.temporary(kind, b.counts(target)),
            terms,
            lambda i, k: product(i[0], b.index(0), i[1], k, i[2:]),
        )
    else:  # what the outputs of a group read is the same
        per = outputs // groups
        sums = b.contract(
            lowering.temporary(kind, (images, groups, per, *spatial)),
            terms,
            lambda i, k: product(i[0], i[1], b.add(b.multiply(i[1], per), i[2]), k, i[3:]),
        )
    if sums.buffer is target:
        return patches, sums

    def result(i: Indices) -> Expression:
        place = (i[1],) if groups == 1 else (b.divide(i[1], outputs // groups), b.modulo(i[1], outputs // groups))
        total = b.load(sums.buffer, i[0], *place, *i[2:])
        return total if bias is None else b.add(total, b.cast(b.load(bias, i[1]), kind))

    return patches, sums, b.compute(target, result)


def _accept_deform_conv(node: NodeView) -> Reject | None:
    if node.inputs[0] is None or node.inputs[0].rank != 4:
        return Reject("rank", "DeformConv is lowered of images with two axes")
    return None


def _deformed(node: NodeView, axis: int) -> Extent | None:
    """Return how many places a window has along an axis."""
    source, kernel = demand.operand(node, 0, 2 + axis), demand.operand(node, 1, 2 + axis)
    if source is None or kernel is None:
        return None
    stride, dilation = ((node.attribute(name) or [1, 1])[axis] for name in ("strides", "dilations"))
    pads = node.attribute("pads") or [0, 0, 0, 0]
    room = subtract(add(source, pads[axis] + pads[2 + axis] - 1), multiply(dilation, subtract(kernel, 1)))
    return add(floordiv(room, stride), 1)


def _deform_demands(node: NodeView) -> Iterator[Equation]:
    """Channels and bias as a Conv has them; an offset along each axis, and a factor, for each tap at each place."""
    groups, sets = int(node.attribute("group", 1)), int(node.attribute("offset_group", 1))
    yield from demand.equation(demand.operand(node, 0, 1), demand.times(demand.operand(node, 1, 1), groups))
    yield from demand.vectors(3, of=1, axis=0)(node)
    yield from demand.ranked(dict.fromkeys((2, 4), demand.rank_of(node.input(0)) or 4))(node)
    taps = demand.times(demand.operand(node, 1, 2), demand.operand(node, 1, 3))
    for number, each in ((2, 2), (4, 1)):
        yield from demand.same(number, 0, 0, 0)(node)
        yield from demand.equation(demand.operand(node, number, 1), demand.times(taps, sets * each))
        for axis in (0, 1):
            yield from demand.equation(demand.operand(node, number, 2 + axis), _deformed(node, axis))


define(
    "DeformConv", frozenset({Trait.CONTRACTION}), _lower_deform_conv, per_output(64), _accept_deform_conv,
    demands=_deform_demands, shapes=shapes.deformed_convolution,
    attributes=(*checks.WINDOWS, check.at_least(1, "group", "offset_group")), asked_when_loaded=True,
    vjp=through(deformed_convolution),
)  # fmt: skip

# ---- Col2Im and MaxUnpool -----------------------------------------------------------------------------------------


def _lower_col2im(lowering: Lowering) -> tuple[Stage, ...]:
    """For each pixel the sum over the places in a block that it may have had, where a block has it there."""
    source, target, node = lowering.input(0), lowering.output(), lowering.node
    (_, rows, columns), (_, channels, *image) = b.counts(source), b.counts(target)
    rank, known = len(image), integers(lowering.constant(2))
    given = [b.maximum(b.cast(b.load(lowering.input(2), axis), "int64"), 1) for axis in range(rank)]
    blocks: list[b.Count] = [*given] if known is None else [*known]
    strides, dilations = node.attribute("strides") or [1] * rank, node.attribute("dilations") or [1] * rank
    pads = node.attribute("pads") or [0] * 2 * rank

    def count(axis: int) -> Expression:
        """The blocks along an axis."""
        reach = b.multiply(b.subtract(b.extent(blocks[axis]), 1), dilations[axis])
        room = b.subtract(b.add(b.extent(image[axis]), pads[axis] + pads[rank + axis] - 1), reach)
        return b.add(b.divide(room, strides[axis]), 1)

    def element(i: Indices, k: Indices) -> Expression:
        offsets = k if len(k) == rank and known is not None else _digits(k[0], blocks)
        row: Expression = i[1]
        column: Expression = b.index(0)
        conditions: list[Expression] = []
        for axis in range(rank):
            at = b.subtract(b.add(i[2 + axis], pads[axis]), b.multiply(offsets[axis], dilations[axis]))
            number = b.divide(at, strides[axis])
            conditions += [b.greater_equal(at, 0), b.equal(b.modulo(at, strides[axis]), 0)]
            conditions.append(b.less(number, count(axis)))
            row = b.add(b.multiply(row, b.extent(blocks[axis])), offsets[axis])
            column = b.add(b.multiply(column, count(axis)), number)
        conditions += [*b.inside(row, rows), *b.inside(column, columns)]
        return b.cast(b.masked_load(source, [i[0], row, column], conditions), b.wide(source.dtype))

    if known is None:  # then all is static (`_col2im_varies`)
        rows, channels = b.dims(source)[1], b.dims(target)[1]
        return (b.reduce(target, "add", [rows // channels if channels else 0], element),)
    return (b.reduce(target, "add", known, element),)


def _col2im_varies(node: NodeView) -> Reject | None:
    block = node.input(2)
    if block is not None and block.is_constant:
        return None
    return Reject("dynamic-shape", "Col2Im of blocks whose size is computed is lowered of static shapes")


def _digits(number: Expression, bases: Sequence[b.Count]) -> list[Expression]:
    """Return the digits of a number, the last one the lowest."""
    found: list[Expression] = []
    for base in reversed(bases):
        found.insert(0, b.modulo(number, b.extent(base)))
        number = b.divide(number, b.extent(base))
    return found


def _col2im_demands(node: NodeView) -> Iterator[Equation]:
    """A row for each place in a block of each channel, and a column for each block."""
    image, block = demand.numbers_in(node, 1), demand.numbers_in(node, 2)
    if image is None or block is None:
        return
    rank = len(block)
    strides, dilations = node.attribute("strides") or [1] * rank, node.attribute("dilations") or [1] * rank
    pads = node.attribute("pads") or [0] * 2 * rank
    blocks = (
        (image[d] + pads[d] + pads[rank + d] - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1 for d in range(rank)
    )
    rows = demand.times(demand.result(node, 0, 1), math.prod(block))
    yield from demand.equation(demand.operand(node, 0, 1), rows)
    yield from demand.equation(demand.operand(node, 0, 2), math.prod(blocks))


define(
    "Col2Im", frozenset({Trait.REDUCTION}), _lower_col2im, per_output(8), varies=_col2im_varies,
    demands=_col2im_demands, shapes=shapes.fold_columns,
    attributes=(check.at_least(1, "strides", "dilations"), check.at_least(0, "pads")), vjp=derivative.columns,
)  # fmt: skip


def _lower_max_unpool(lowering: Lowering) -> tuple[Stage, ...]:
    """Zeros, and every element at its index among those of the unpooled image; a larger result begins with that."""
    source, indices, target, node = lowering.input(0), lowering.input(1), lowering.output(), lowering.node
    inner, kernel = b.dims(source), node.attribute("kernel_shape")
    rank = len(kernel)
    strides, pads = node.attribute("strides") or [1] * rank, node.attribute("pads") or [0] * 2 * rank
    image = [
        (inner[2 + axis] - 1) * strides[axis] - pads[axis] - pads[rank + axis] + kernel[axis] for axis in range(rank)
    ]
    loops = b.variables(len(inner), "k")
    first, *others = b.dims(target)
    rest = b.clamp(Load(indices, loops), first * inner[1] * math.prod(image))
    at: list[Expression] = []
    for within, extent in zip((*reversed(image), inner[1]), reversed(others), strict=True):
        others_before = b.divide(rest, within)
        place = b.subtract(rest, b.multiply(others_before, within))  # no modulo: in an offset the quotients cancel
        at.insert(0, place if within <= extent else b.clamp(place, extent))
        rest = others_before
    at.insert(0, rest)
    over = tuple(Axis(variable, b.index(extent)) for variable, extent in zip(loops, inner, strict=True))
    scatter = Scatter(over, tuple(at), "set", Load(source, loops))
    return (Stage(target, b.variables(len(inner)), b.constant(0, target.dtype), order=scatter),)


define(
    "MaxUnpool", frozenset({Trait.RECURRENT}), _lower_max_unpool, moved,
    demands=demand.alike(0, 1), shapes=shapes.unpooled, vjp=pool_derivatives.unpooled,
    attributes=(check.at_least(1, "kernel_shape", "strides"), check.at_least(0, "pads")),
)  # fmt: skip
