"""Convolutions: Conv, ConvTranspose and the integer forms.

One stage holds the sum of products; bias and requantisation follow as further stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.checks import scales
from graft.core.operators.definition.cost import elements, traffic
from graft.core.operators.definition.table import Cost, Lowering, Trait, define
from graft.core.operators.definition.varying import fixed, varying_axis
from graft.core.operators.images import checks, shapes
from graft.core.operators.images import derivatives as derivative
from graft.core.operators.images.windows import known_pads, positions, windows_of
from graft.core.operators.products.contraction import requantized, shape_of, zero_point
from graft.core.reject import Reject, first
from graft.core.tensor_ir.anchors import Window, Windows
from graft.core.tensor_ir.ir import Buffer, Expression, Stage

CONVOLUTION = frozenset({Trait.CONVOLUTION})
QUANTIZABLE = frozenset({Trait.QUANTIZABLE})
Indices = Sequence[Expression]
Weight = Callable[[Indices], Expression]
Pixel = Callable[[Indices, Indices], Expression]


def _windows(lowering: Lowering, weight: int) -> Windows:
    source, target = (b.extents(buffer)[2:] for buffer in (lowering.input(0), lowering.output()))
    return windows_of(lowering.node, source, b.numbers(lowering.input(weight), 2), target)


def sliding_product(
    lowering: Lowering, sums: Buffer, weights: Buffer, pixel: Pixel, weight: Weight, w: Windows
) -> Stage:
    """Return the stage ``sums[n, o, ...] = sum over c, k of pixel * weight``.

    ``pixel(place, conditions)`` loads from the input, zero where a condition fails; ``weight`` from the weights.
    """
    group = lowering.node.attribute("group", 1)
    outputs, channels = b.dims(weights)[:2]
    source = b.extents(lowering.input(0))[2:]

    def value(axes: Indices, k: Indices) -> Expression:
        places, conditions = positions(w, axes[2:], k[1:], source)
        first = b.multiply(b.divide(axes[1], outputs // group), channels) if group > 1 else b.index(0)
        channel = first if channels == 1 else b.add(first, k[0])
        within = b.index(0) if channels == 1 else k[0]
        return b.multiply(pixel([axes[0], channel, *places], conditions), weight([axes[1], within, *k[1:]]))

    axes = tuple(range(w.rank + 2))
    window = Window("left", w, group, channels, outputs // group, layout=axes, result=axes, reduced=axes[:-1])
    return b.contract(sums, [channels, *w.kernel], value, window)


def _lower_conv(lowering: Lowering) -> tuple[Stage, ...]:
    x, weights, bias, target = lowering.input(0), lowering.input(1), lowering.optional(2), lowering.output()
    kind = b.wide(target.dtype)

    def pixel(place: Indices, conditions: Indices) -> Expression:
        return b.cast(b.masked_load(x, place, conditions), kind)

    sums = target if bias is None and kind == target.dtype else lowering.temporary(kind, b.extents(target))
    window = _windows(lowering, 1)
    stage = sliding_product(lowering, sums, weights, pixel, lambda place: b.cast(b.load(weights, *place), kind), window)
    return (stage,) if sums is target else (stage, _channel_bias(sums, bias, target))


def _channel_bias(sums: Buffer, bias: Buffer | None, target: Buffer) -> Stage:
    def value(i: Indices) -> Expression:
        total = b.load(sums, *i)
        return total if bias is None else b.add(total, b.cast(b.load(bias, i[1]), sums.dtype))

    return b.compute(target, value)


def _conv_cost(weight: int) -> Callable[[NodeView], Cost]:
    def cost(node: NodeView) -> Cost:
        return Cost(2 * elements(node.outputs[0]) * math.prod(shape_of(node.input(weight))[1:]), traffic(node))

    return cost


def _convolution_varies(node: NodeView, weight: int = 1) -> Reject | None:
    """Take images of any extents, with windows and pads that are numbers.

    Channels may have a name: its range is the number that the weights say (`windows.channels_of_weights`).
    """
    return first(_channels_vary(node, weight), known_pads(node))


def _channels_vary(node: NodeView, weight: int) -> Reject | None:
    weights = node.input(weight)
    if weights is not None and weights.static_shape is None:
        axis = next(axis for axis, extent in enumerate(weights.shape or ()) if not isinstance(extent, int))
        return varying_axis(node, weights, axis)
    image = node.input(0)
    is_named = image is not None and image.shape is not None and str(image.shape[1]).isidentifier()
    return None if is_named else fixed(1)(node)


def _windows_demand(weight: int, *bias: int) -> demand.Demand:
    """Each filter has as many channels as a group of the image, and the bias one element for each filter."""

    def channels(node: NodeView) -> Iterator[Equation]:
        per_group = demand.operand(node, weight, 1)
        yield from demand.equation(demand.operand(node, 0, 1), demand.times(per_group, int(node.attribute("group", 1))))
        for axis, extent in enumerate(node.attribute("kernel_shape") or ()):
            yield from demand.equation(demand.operand(node, weight, 2 + axis), int(extent))

    return demand.all_of(channels, demand.vectors(*bias, of=weight, axis=0))


define(
    "Conv", CONVOLUTION | QUANTIZABLE, _lower_conv, _conv_cost(1), varies=_convolution_varies,
    demands=_windows_demand(1, 2), shapes=shapes.convolution(), bounds=shapes.convolution_bounds(),
    attributes=(*checks.WINDOWS, checks.groups()), asked_when_loaded=True,
    channels_of_weights=lambda node: 0, vjp=derivative.convolved,
)  # fmt: skip

# ---- Integers -----------------------------------------------------------------------------------------------------


def _centred_pixel(x: Buffer, point: Buffer | None) -> Pixel:
    """An input element less its zero point; outside the input the difference is zero."""

    def pixel(place: Indices, conditions: Indices) -> Expression:
        raw = b.cast(b.masked_load(x, place, conditions), "int32")
        if point is None:
            return raw
        difference = b.subtract(raw, zero_point(point, ()))
        mask = b.all_of(conditions)
        return difference if mask is None else b.select(mask, difference, 0)

    return pixel


def _centred_weight(weights: Buffer, point: Buffer | None) -> Weight:
    def weight(place: Indices) -> Expression:
        raw = b.cast(b.load(weights, *place), "int32")
        return raw if point is None else b.subtract(raw, zero_point(point, place[:1]))

    return weight


def _lower_conv_integer(lowering: Lowering) -> tuple[Stage, ...]:
    weights = lowering.input(1)
    pixel = _centred_pixel(lowering.input(0), lowering.optional(2))
    weight = _centred_weight(weights, lowering.optional(3))
    return (sliding_product(lowering, lowering.output(), weights, pixel, weight, _windows(lowering, 1)),)


def _lower_qlinear_conv(lowering: Lowering) -> tuple[Stage, ...]:
    weights, bias, target = lowering.input(3), lowering.optional(8), lowering.output()
    pixel = _centred_pixel(lowering.input(0), lowering.optional(2))
    weight = _centred_weight(weights, lowering.optional(5))
    sums = lowering.temporary("int32", b.extents(target))

    def at(number: int, channel: Expression) -> Expression:
        buffer = lowering.input(number)
        return b.load(buffer, *(b.index(0) if extent == 1 else channel for extent in b.dims(buffer)))

    def value(i: Indices) -> Expression:
        total = b.load(sums, *i)
        if bias is not None:
            total = b.add(total, b.load(bias, i[1]))
        scale = b.divide(b.multiply(at(1, i[1]), at(4, i[1])), at(6, i[1]))
        return requantized(total, scale, at(7, i[1]), target.dtype)

    stage = sliding_product(lowering, sums, weights, pixel, weight, _windows(lowering, 3))
    return stage, b.compute(target, value)


define(
    "ConvInteger", CONVOLUTION, _lower_conv_integer, _conv_cost(1), varies=_convolution_varies,
    demands=demand.all_of(_windows_demand(1), demand.parameters(3, of=1, axis=0)),
    shapes=shapes.convolution(), bounds=shapes.convolution_bounds(), attributes=(*checks.WINDOWS, checks.groups()),
    asked_when_loaded=True,
)  # fmt: skip
define(
    "QLinearConv", CONVOLUTION, _lower_qlinear_conv, _conv_cost(3),
    varies=lambda node: _convolution_varies(node, 3),
    demands=demand.all_of(_windows_demand(3, 8), demand.parameters(4, 5, of=3, axis=0)),
    shapes=shapes.convolution(3), bounds=shapes.convolution_bounds(3),
    attributes=(*checks.WINDOWS, checks.groups(3), scales(1, 4, divisor=6)), asked_when_loaded=True,
    channels_of_weights=lambda node: 0,
)  # fmt: skip

# ---- ConvTranspose ------------------------------------------------------------------------------------------------


def _lower_conv_transpose(lowering: Lowering) -> tuple[Stage, ...]:
    """Gather form: output ``p`` takes input ``(p + begin - k * dilation) / stride`` where that is whole and inside.

    Elsewhere there is no product: the weight is not read either, which may be infinite.
    """
    x, weights, bias, target = lowering.input(0), lowering.input(1), lowering.optional(2), lowering.output()
    kind, group = b.wide(target.dtype), lowering.node.attribute("group", 1)
    per_group, inputs = b.dims(weights)[1], b.dims(weights)[0] // group
    w, extents = _transposed_windows(lowering), b.extents(x)[2:]

    def value(axes: Indices, k: Indices) -> Expression:
        places, conditions = [], []
        for d in range(w.rank):
            reach = (w.kernel[d] - 1) * w.dilations[d]
            back = b.subtract(b.add(axes[2 + d], w.begins[d]), b.multiply(k[1 + d], w.dilations[d]))
            lifted = b.add(back, -(-reach // w.strides[d]) * w.strides[d])
            place = b.subtract(b.divide(lifted, w.strides[d]), -(-reach // w.strides[d]))
            places.append(place)
            conditions += [b.equal(b.modulo(lifted, w.strides[d]), 0)] if w.strides[d] > 1 else []
            conditions += b.inside(place, extents[d])
        number = b.divide(axes[1], per_group) if group > 1 else b.index(0)
        channel = b.add(b.multiply(number, inputs), k[0])
        within = b.subtract(axes[1], b.multiply(number, per_group))
        pixel = b.cast(b.masked_load(x, [axes[0], channel, *places], conditions), kind)
        weight = b.masked_load(weights, [channel, within, *k[1:]], conditions)
        return b.multiply(pixel, b.cast(weight, kind))

    sums = target if bias is None and kind == target.dtype else lowering.temporary(kind, b.extents(target))
    stage = b.contract(sums, [inputs, *w.kernel], value)
    return (stage,) if sums is target else (stage, _channel_bias(sums, bias, target))


def _transposed_windows(lowering: Lowering) -> Windows:
    """The windows of a ConvTranspose; with ``auto_pad`` or ``output_shape`` the pads follow from the output shape.

    With ``auto_pad`` alone that has ``stride`` elements for each of the input, however many there are.
    """
    node = lowering.node
    w = _windows(lowering, 1)
    mode, stated = node.attribute("auto_pad", "NOTSET"), bool(node.attribute("output_shape"))
    if mode in ("NOTSET", "VALID") and not stated:
        return w
    extra = node.attribute("output_padding") or [0] * w.rank
    totals = [
        (w.strides[d] * w.source[d] - w.target[d] if stated else 0)
        + (w.kernel[d] - 1) * w.dilations[d] + 1 + extra[d] - w.strides[d]
        for d in range(w.rank)
    ]  # fmt: skip
    begins = tuple(t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals)
    ends = tuple(t - begin for t, begin in zip(totals, begins, strict=True))
    return Windows(w.source, w.kernel, w.target, w.strides, w.dilations, begins, ends)


def _transpose_cost(node: NodeView) -> Cost:
    return Cost(2 * elements(node.input(0)) * math.prod(shape_of(node.input(1))[1:]), traffic(node))


def _transposed_varies(node: NodeView) -> Reject | None:
    if node.attribute("output_shape"):
        return Reject("dynamic-shape", "output_shape of ConvTranspose pads as the extents say")
    return _channels_vary(node, 1)


def _transposed_demands(node: NodeView) -> Iterator[Equation]:
    per_group = demand.operand(node, 1, 1)
    yield from demand.all_of(demand.same(0, 1, 1, 0), demand.ranked({2: 1}))(node)
    yield from demand.equation(demand.operand(node, 2, 0), demand.times(per_group, int(node.attribute("group", 1))))


TRANSPOSED = frozenset({Trait.REDUCTION})
define(
    "ConvTranspose", TRANSPOSED | QUANTIZABLE, _lower_conv_transpose, _transpose_cost, varies=_transposed_varies,
    demands=_transposed_demands, shapes=shapes.transposed_convolution,
    attributes=(*checks.WINDOWS, checks.groups(transposed=True)), asked_when_loaded=True,
    channels_of_weights=lambda node: 1, vjp=derivative.convolved_back,
)  # fmt: skip
