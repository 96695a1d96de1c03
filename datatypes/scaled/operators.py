"""Operators on scaled types, in a domain of their own: `Encode` numbers to elements and scales, and `Decode` these.

Attributes are the fields of `ScaledType` (``block`` 0 is the whole axis), the ``axis`` of blocks, and of Encode the
``rounding`` and its ``seed``. A type whose tensors have a scale takes it as the last input, a float32. What kernels
compute are the bits of `encode_scaled` and `decode_scaled`, the latter's numbers rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import onnx
from onnx.defs import OpSchema

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import ceildiv
from graft.core.graph.view import NodeView, data_type
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import Facts, Shape, normal_axis, replaced
from graft.core.operators.definition.table import Lowering, Operator, Trait
from graft.core.operators.definition.varying import varying_axis
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import is_custom, storage_dtype
from graft.datatypes.philox import draw
from graft.datatypes.rounding import ROUNDINGS
from graft.datatypes.scaled.scaled_type import ScaledType
from graft.datatypes.scaled.shared_scale import scaled_element, shared_scale
from graft.errors import GraftError

DOMAIN = "com.graft.scaled"
"""Like a plugin's, no part of ONNX's domains."""
DEFAULT = ScaledType("custom[float4e2m1]4")
Named = list[tuple[str, str]]


def attributes_of(type: ScaledType) -> dict[str, Any]:
    """Return the attributes by which nodes say a type; one with a scale of the tensor has it as its last input."""
    return {"element": type.element, "scale": type.scale, "block": type.block or 0, "rule": type.rule}


def scaled_type_of(node: NodeView) -> ScaledType:
    """Return the type of a node; raise DatatypeError where its attributes say none."""
    element, scale = node.attribute("element", DEFAULT.element), node.attribute("scale", DEFAULT.scale)
    last = 1 if node.op_type == "Encode" else 2
    return ScaledType(
        element, scale, node.attribute("block", DEFAULT.block) or None, node.attribute("rule", DEFAULT.rule),
        node.input(last) is not None,
    )  # fmt: skip


def operators() -> list[Operator]:
    """Return the rows."""
    row = partial(Operator, domain=DOMAIN, varies=_varies)
    faults = (_fault_of_type, check.at_least(0, "block", "seed"), check.axis(default=-1))
    return [
        row(
            "Encode",
            frozenset({Trait.ROW_WISE}),
            _lower_encode,
            per_output(40),
            schema=_encode_schema(),
            shapes=_encoded_shapes,
            attributes=(*faults, check.one_of("rounding", *ROUNDINGS)),
        ),
        row(
            "Decode",
            frozenset({Trait.ELEMENTWISE}),
            _lower_decode,
            per_output(20),
            schema=_decode_schema(),
            shapes=lambda facts: [facts.shape(0)],
            attributes=faults,
            demands=_one_scale_for_each_block,
        ),
    ]


# ---- Lowering ----


def _lower_encode(lowering: Lowering) -> tuple[Stage, ...]:
    """The largest magnitudes, as bits (whose order is that of magnitudes, NaN above all); scales; elements."""
    node, source = lowering.node, lowering.input(0)
    type, elements, scales = scaled_type_of(node), lowering.output(0), lowering.output(1)
    axis = _axis(node, len(source.shape))
    extent = b.numbers(source, axis, axis + 1)[0]
    block = type.block or max(extent, 1)
    largest = lowering.temporary("int32", b.extents(scales))
    whole = tensor_scale(lowering, 1)

    def magnitude(i: tuple[Expression, ...], k: tuple[Expression, ...]) -> Expression:
        # What is behind the last number of a short block is that number once more.
        inside = b.minimum(b.add(b.multiply(i[axis], block), k[0]), extent - 1)
        return (Value(b.load(source, *_with(i, axis, inside))).bits("int32") & 0x7FFFFFFF).expression

    def scale(i: tuple[Expression, ...]) -> Expression:
        size = Value(b.load(largest, *i)).bits("float32").cast("float64")
        return shared_scale(type, size, whole(size)).expression

    def element(i: tuple[Expression, ...]) -> Expression:
        number = Value(b.load(source, *i)).cast("float64")
        own = Value(b.load(scales, *_with(i, axis, b.divide(i[axis], block))))
        rounding = node.attribute("rounding", "nearest")
        random = draw(_place(source, i), node.attribute("seed", 0)) if rounding == "stochastic" else None
        return scaled_element(type, number, own, whole(number), rounding, random).expression

    return b.reduce(largest, "max", (block,), magnitude), b.compute(scales, scale), b.compute(elements, element)


def _lower_decode(lowering: Lowering) -> tuple[Stage, ...]:
    """An element times the scale of its block, and that of the tensor, rounded to float32."""
    elements, scales = lowering.input(0), lowering.input(1)
    type = scaled_type_of(lowering.node)
    axis = _axis(lowering.node, len(elements.shape))
    block = type.block or max(b.numbers(elements, axis, axis + 1)[0], 1)
    whole = tensor_scale(lowering, 2)

    def number(i: tuple[Expression, ...]) -> Expression:
        element = type.element_format.number(Value(b.load(elements, *i)))
        scale = type.scale_format.number(Value(b.load(scales, *_with(i, axis, b.divide(i[axis], block)))))
        factor = scale * whole(scale) if type.tensor_scale else scale
        # A plain product might be fused with what is added behind it; one that adds nothing is rounded here.
        return element.times_plus(factor, -0.0).cast("float32").expression

    return (b.compute(lowering.output(), number),)


def _axis(node: NodeView, rank: int) -> int:
    return normal_axis(node.attribute("axis", -1), rank)


def _with(places: tuple[Expression, ...], axis: int, place: Expression) -> list[Expression]:
    return [place if dimension == axis else one for dimension, one in enumerate(places)]


def tensor_scale(lowering: Lowering, number: int) -> Callable[[Value], Value]:
    """Return what gives the scale of the tensor (1 for types without one) as a float64 like another."""
    buffer = lowering.optional(number)
    if buffer is None:
        return lambda like: like.constant(1.0)
    return lambda like: Value(b.load(buffer)).cast("float64")


def _place(source: Buffer, places: tuple[Expression, ...]) -> Value:
    """Return the number of an element in row-major order."""
    total: Expression = b.index(0)
    for extent, place in zip(b.extents(source), places, strict=True):
        total = b.add(b.multiply(total, b.extent(extent)), place)
    return Value(total).cast("uint64")


# ---- Shapes, types, limits ----


def _encoded_shapes(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    given = facts.view.attribute("axis", -1)
    if shape is None or not -len(shape) <= given < len(shape):
        return [shape, shape]  # what is wrong with the axis, its check says
    axis = normal_axis(given, len(shape))
    block, extent = facts.view.attribute("block", DEFAULT.block), shape[axis]
    count = 1 if not block else None if extent is None else ceildiv(extent, block)
    return [shape, replaced(shape, axis, count)]


def _one_scale_for_each_block(node: NodeView) -> Iterator[Equation]:
    axis, block = node.attribute("axis", -1), node.attribute("block", DEFAULT.block)
    yield from demand.alike(1, 0, but=axis)(node)
    blocks = demand.divided_up(demand.operand(node, 0, axis), block) if block else 1
    yield from demand.equation(demand.operand(node, 1, axis), blocks)
    yield from demand.ranked({2: 0})(node)


def _varies(node: NodeView) -> Reject | None:
    """Take any extents but that of the axis of blocks."""
    source = node.input(0)
    shape = () if source is None or source.shape is None else source.shape
    axis = _axis(node, len(shape))
    return None if source is None or isinstance(shape[axis], int) else varying_axis(node, source, axis)


def _fault_of_type(node: NodeView) -> str | None:
    try:
        scaled_type_of(node)
    except GraftError as error:
        return error.message
    return None


def _encode_schema() -> OpSchema:
    def infer(context: Any) -> None:
        for number, name in enumerate(("element", "scale")):
            given = context.get_attribute(name)
            text = given.s.decode() if given is not None else getattr(DEFAULT, name)
            if is_custom(text):
                context.set_output_type(number, _tensor(data_type(storage_dtype(text)).value))

    own = {**attributes_of(DEFAULT), "axis": -1, "rounding": "nearest", "seed": 0}
    schema = schema_of("Encode", [("x", "F"), ("tensor_scale", "F")], [("elements", "C"), ("scales", "S")], own)
    schema.set_type_and_shape_inference_function(infer)
    return schema


def _decode_schema() -> OpSchema:
    inputs = [("elements", "C"), ("scales", "S"), ("tensor_scale", "F")]
    schema = schema_of("Decode", inputs, [("y", "F")], {**attributes_of(DEFAULT), "axis": -1})
    schema.set_type_and_shape_inference_function(infer_float32)
    return schema


def infer_float32(context: Any) -> None:
    """Say that the result of a node is of float32; the row says its shape."""
    context.set_output_type(0, _tensor(onnx.TensorProto.FLOAT))


def schema_of(name: str, inputs: Named, outputs: Named, attributes: dict[str, Any]) -> OpSchema:
    """Return a schema of tensors by name and type variable: F is float32, the others are storage bits."""
    option = OpSchema.FormalParameterOption
    kinds = sorted({kind for _, kind in (*inputs, *outputs)})
    bits = ["tensor(uint8)", "tensor(uint16)", "tensor(uint32)"]
    given = [
        OpSchema.FormalParameter(
            one, kind, param_option=option.Optional if one.endswith("tensor_scale") else option.Single
        )
        for one, kind in inputs
    ]
    return OpSchema(
        name,
        DOMAIN,
        1,
        inputs=given,
        outputs=[OpSchema.FormalParameter(one, kind) for one, kind in outputs],
        type_constraints=[(kind, ["tensor(float)"] if kind == "F" else bits, "") for kind in kinds],
        attributes=[
            OpSchema.Attribute(one, onnx.helper.make_attribute(one, value), "") for one, value in attributes.items()
        ],
    )


def _tensor(element: int) -> onnx.TypeProto:
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = element
    return kind
