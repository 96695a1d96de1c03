"""Quantisation: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.definition.varying import anything, varying_axis
from graft.core.operators.elementwise.arithmetic import ELEMENTWISE
from graft.core.operators.reductions import derivatives as derivative
from graft.core.operators.reductions.reduction import Axes, rows
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import INTEGERS

Indices = Sequence[Expression]


def parameter(lowering: Lowering, number: int, i: Indices) -> Expression | None:
    """Return the scale or zero point (input ``number``) of element ``i``: per tensor, per axis or per block."""
    buffer = lowering.optional(number)
    if buffer is None:
        return None
    return b.load(buffer, *_place(lowering, buffer, i))


def _place(lowering: Lowering, buffer: Buffer, i: Indices) -> list[Expression]:
    shape, rank = b.extents(buffer), len(i)
    axis = normal_axis(lowering.node.attribute("axis", 1), rank) if rank else 0
    if len(shape) <= 1:
        return [i[axis] if extent != 1 else b.index(0) for extent in shape]
    block = lowering.node.attribute("block_size", 0)
    if not block:  # as many as make the extent, both of which are numbers
        block = -(-b.dims(lowering.input(0))[axis] // b.dims(buffer)[axis])
    return [b.divide(place, block) if dimension == axis else place for dimension, place in enumerate(i)]


def is_all(lowering: Lowering, number: int, value: int) -> bool:
    """Whether a parameter is known to be ``value`` everywhere: then it need not be computed with."""
    array = lowering.constant(number)
    return array is not None and bool((array == value).all())


def _lower_quantize(lowering: Lowering) -> tuple[Stage, ...]:
    """``saturate(round_even(x / scale) + zero_point)``."""
    source, target = lowering.input(0), lowering.output()

    def value(i: Indices) -> Expression:
        scale = parameter(lowering, 1, i)
        assert scale is not None
        kind = b.wide(scale.type.dtype)
        quotient = b.cast(b.load(source, *i), kind)
        if not is_all(lowering, 1, 1):
            quotient = b.divide(quotient, b.cast(scale, kind))
        point = parameter(lowering, 2, i)
        rounded = b.unary("round_even", quotient)
        return rounded if point is None or is_all(lowering, 2, 0) else b.add(rounded, b.cast(point, kind))

    return (b.compute(target, value),)


def _lower_dequantize(lowering: Lowering) -> tuple[Stage, ...]:
    """``(x - zero_point) * scale``."""
    source, target = lowering.input(0), lowering.output()
    common = _common_point(lowering)
    low = _lowest_of_four_bits(lowering) if len(source.shape) == 2 else None

    def value(i: Indices) -> Expression:
        scale, point = parameter(lowering, 1, i), parameter(lowering, 2, i)
        assert scale is not None
        kind = b.wide(scale.type.dtype)
        x = b.cast(b.load(source, *i), "int32" if source.dtype in INTEGERS else kind)
        if low is not None:
            x = b.add(b.binary("and", b.subtract(x, low), 15), low)  # says to schedules how few bits there are
        if common is not None:
            x = b.subtract(x, common) if common else x
        elif point is not None:
            x = b.subtract(x, b.cast(point, x.type.dtype))
        return b.multiply(b.cast(x, kind), b.cast(scale, kind))

    return (b.compute(target, value),)


def _contents(lowering: Lowering, number: int) -> np.ndarray | None:
    """Return a constant input, however large."""
    value = lowering.node.input(number)
    return None if value is None else value.constant


def _common_point(lowering: Lowering) -> int | None:
    """Return the zero point that all blocks of integers have; None if they differ, or it is not known."""
    points = _contents(lowering, 2)
    if points is None or points.ndim < 2 or not points.size or lowering.input(0).dtype not in INTEGERS:
        return None
    first = points.reshape(-1)[0]
    return int(first) if bool((points == first).all()) else None


def _lowest_of_four_bits(lowering: Lowering) -> int | None:
    """Return the least number that constant elements of bytes have if 4 bits hold them all, otherwise None."""
    elements = _contents(lowering, 0)
    if elements is None or not elements.size or elements.dtype not in (np.uint8, np.int8):
        return None
    low = 0 if elements.dtype == np.uint8 else -8
    return low if low <= int(elements.min()) and int(elements.max()) <= low + 15 else None


def _lower_dynamic(lowering: Lowering) -> tuple[Stage, ...]:
    """The range of the input, widened to hold 0, is mapped to [0, 255].

    Of zeros alone it is 1, as in `onnx.reference` (ONNX Runtime's scale is 1): ONNX's formula gives a scale of 0, and
    NaN for what is divided by it.
    """
    source, target, scale, point = lowering.input(0), *(lowering.output(number) for number in range(3))
    axes = Axes(b.extents(source), frozenset(range(len(source.shape))))
    low, high = lowering.temporary("float32", ()), lowering.temporary("float32", ())

    def x(place: Indices) -> Expression:
        return b.load(source, *place)

    def quantized(value: Expression) -> Expression:
        return b.unary("round_even", b.divide(value, b.load(scale)))

    def step(_: Indices) -> Expression:
        extent = b.subtract(b.load(high), b.load(low))
        return b.divide(b.select(b.equal(extent, 0), 1.0, extent), 255)

    return (
        rows(low, "min", axes, x, lambda least: b.minimum(least, 0)),
        rows(high, "max", axes, x, lambda most: b.maximum(most, 0)),
        b.compute(scale, step),
        b.compute(point, lambda _: quantized(b.subtract(b.constant(0, "float32"), b.load(low)))),
        b.compute(target, lambda i: b.add(quantized(x(i)), b.cast(b.load(point), "float32"))),
    )


def _accept(node: NodeView) -> Reject | None:
    stored = node.outputs[0].dtype if node.op_type == "QuantizeLinear" else node.dtype
    if stored not in INTEGERS:
        return Reject("dtype", f"{node.op_type} with {stored}; only integers of 8 to 32 bits are lowered")
    return None


def _varies(node: NodeView) -> Reject | None:
    """Take any extents with parameters of the whole, or of an axis; those of blocks are of numbers alone."""
    source = node.input(0)
    shape = () if source is None or source.shape is None else source.shape
    for value in node.inputs[1:]:
        own = () if value is None or value.shape is None else value.shape
        axis = normal_axis(node.attribute("axis", 1), len(shape))
        if value is not None and source is not None and len(own) > 1:
            return Reject("dynamic-shape", f"'{value.name}' holds parameters of blocks of '{source.name}'")
        if value is not None and source is not None and own and own[0] not in (1, shape[axis]):
            return varying_axis(node, source, axis)
    return None


def _demands(node: NodeView) -> Iterator[Equation]:
    """One parameter of the whole, one for each place along an axis, or one for each block along it."""
    axis, block = int(node.attribute("axis", 1)), int(node.attribute("block_size", 0))
    yield from demand.alike(2, 1)(node)
    yield from demand.parameters(1, 2, of=0, axis=axis)(node)
    rank = demand.rank_of(node.input(0))
    if block and rank is not None and demand.rank_of(node.input(1)) == rank:
        yield from demand.alike(1, 0, but=axis)(node)
        blocks = demand.divided_up(demand.operand(node, 0, axis), block)
        yield from demand.equation(demand.operand(node, 1, axis), blocks)


def _quantised_axis(node: NodeView) -> str | None:
    """The axis of a scale per slice; it is left aside where there is one scale, in whatever shape."""
    scale = node.input(1)
    return None if scale is not None and scale.static_shape in ((), (1,)) else check.AXIS(node)


_linear = partial(
    define, traits=ELEMENTWISE, accepts=_accept, varies=_varies, demands=_demands, shapes=LIKE_FIRST,
    asked_when_loaded=True,
)  # fmt: skip
_attributes = (_quantised_axis, check.at_least(0, "block_size"))
_linear(
    "QuantizeLinear", traits=ELEMENTWISE | {Trait.STRAIGHT_THROUGH}, lower=_lower_quantize, cost=per_output(4),
    vjp=derivative.quantized, attributes=(*_attributes, check.scales(divisor=1)),
)  # fmt: skip
_linear(
    "DequantizeLinear", lower=_lower_dequantize, cost=per_output(3), vjp=derivative.dequantized,
    attributes=(*_attributes, check.scales(1)),
)  # fmt: skip
define(
    "DynamicQuantizeLinear", frozenset({Trait.ROW_WISE}), _lower_dynamic, per_output(6), varies=anything,
    shapes=lambda facts: [facts.shape(0), (), ()],
)  # fmt: skip
