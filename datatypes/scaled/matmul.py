"""The operator MatMul on scaled types: `matmul_scaled` as kernels, the same bits.

The products of a block's elements are summed in the narrowest float in which that is exact, so schedules may split and
fuse these sums as they like: float32 for E2M1, E2M3, E3M2 and MXINT8 in blocks of 32, float64 for E4M3. Blocks are
then scaled and added in a custom datatype, whose sums nothing regroups: one after the other. A right side of three
dimensions is a matrix for each place of the left side's last axis but one: groups of a convolution.
"""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import elements, traffic
from graft.core.operators.definition.facts import Facts, Shape
from graft.core.operators.definition.table import Cost, Lowering, Operator, Trait
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format
from graft.datatypes.scaled.operators import DEFAULT, DOMAIN, infer_float32, schema_of, tensor_scale
from graft.datatypes.scaled.products import FLOAT32, bits_of_sum, sums_format, sums_type
from graft.datatypes.scaled.scaled_type import ScaledType
from graft.errors import GraftError

SIDES = ("left", "right")
INPUTS = [
    ("left_elements", "A"), ("left_scales", "B"), ("right_elements", "C"), ("right_scales", "D"),
    ("left_tensor_scale", "F"), ("right_tensor_scale", "F"),
]  # fmt: skip


def types_of(node: NodeView) -> list[ScaledType]:
    """Return the types of both sides; raise DatatypeError where the attributes say none."""
    block = node.attribute("block", DEFAULT.block)
    return [
        ScaledType(
            node.attribute(f"{side}_element", DEFAULT.element), node.attribute(f"{side}_scale", DEFAULT.scale), block,
            tensor_scale=node.input(4 + number) is not None,
        )
        for number, side in enumerate(SIDES)
    ]  # fmt: skip


def matmul_operator() -> Operator:
    """Return the row."""
    own: dict[str, object] = {
        f"{side}_{field}": getattr(DEFAULT, field) for side in SIDES for field in ("element", "scale")
    }
    own |= {"block": DEFAULT.block, "accumulate": FLOAT32}
    schema = schema_of("MatMul", INPUTS, [("y", "F")], own)
    schema.set_type_and_shape_inference_function(infer_float32)
    return Operator(
        "MatMul",
        frozenset({Trait.CONTRACTION}),
        _lower,
        _cost,
        _accepts,
        domain=DOMAIN,
        schema=schema,
        demands=_demands,
        shapes=_shapes,
        varies=_varies,
        attributes=(_fault_of_types,),
    )


def _lower(lowering: Lowering) -> tuple[Stage, ...]:
    """Both sides decoded, padded to whole blocks; exact sums of blocks; these scaled and added in order."""
    types = types_of(lowering.node)
    formats = types[0].element_format, types[1].element_format
    left, right = lowering.input(0), lowering.input(2)
    along = len(right.shape) - 2
    (depth,), block = b.numbers(right, along, along + 1), types[0].block or 1
    blocks = -(-depth // block)
    kind = _exact_kind(formats, block)
    target = lowering.output()
    *groups, _, columns = b.extents(right)
    rows = b.extents(left)[:-1]
    decoded = [
        _decoded(lowering, left, formats[0], kind, (*rows, blocks * block), depth, len(rows)),
        _decoded(lowering, right, formats[1], kind, (*groups, blocks * block, columns), depth, along),
    ]
    scales = [_scales(lowering, 1, types[0]), _scales(lowering, 3, types[1])]
    sums = lowering.temporary(kind, (*rows, blocks, columns))
    total = lowering.temporary(sums_type(lowering.node.attribute("accumulate", FLOAT32)), b.extents(target))

    def group(rows: tuple[Expression, ...]) -> tuple[Expression, ...]:
        return rows[len(rows) - along :]

    def product(i: tuple[Expression, ...], k: tuple[Expression, ...]) -> Expression:
        *leading, number, column = i
        place = b.add(b.multiply(number, block), k[0])
        right = b.load(decoded[1].buffer, *group(i[:-2]), place, column)
        return b.multiply(b.load(decoded[0].buffer, *leading, place), right)

    def part(i: tuple[Expression, ...], k: tuple[Expression, ...]) -> Expression:
        factor = Value(b.load(scales[0].buffer, *i[:-1], k[0])) * Value(
            b.load(scales[1].buffer, *group(i[:-1]), k[0], i[-1])
        )
        scaled = Value(b.load(sums, *i[:-1], k[0], i[-1])).cast("float64") * factor
        return b.cast(scaled.expression, total.dtype)

    def result(i: tuple[Expression, ...]) -> Expression:
        found = Value(b.cast(b.load(total, *i), "float32"))
        if any(type.tensor_scale for type in types):
            whole = [tensor_scale(lowering, 4 + number)(found.cast("float64")) for number in range(2)]
            # A plain product might be fused with what is added behind it; one that adds nothing is rounded here.
            found = found.times_plus((whole[0] * whole[1]).cast("float32"), -0.0)
        return found.expression

    added = b.reduce(total, "add", (blocks,), part)
    return (*decoded, *scales, b.contract(sums, (block,), product), added, b.compute(target, result))


def _exact_kind(formats: tuple[Format, Format], block: int) -> str:
    return "float32" if bits_of_sum(formats, block) <= 24 else "float64"


def _decoded(
    lowering: Lowering, source: Buffer, format: Format, kind: str, shape: tuple[b.Extent, ...], depth: int, axis: int
) -> Stage:
    """Return the stage of elements as numbers, with zeros behind the last one of an axis."""

    def number(i: tuple[Expression, ...]) -> Expression:
        is_whole = shape[axis] == depth
        place = [b.minimum(one, depth - 1) if n == axis and not is_whole else one for n, one in enumerate(i)]
        known = format.decode(Value(b.load(source, *place))).cast(kind)
        inside = Value(b.less(i[axis], depth))
        return known.expression if is_whole else select(inside, known, known.constant(0.0)).expression

    return b.compute(lowering.temporary(kind, shape), number)


def _scales(lowering: Lowering, number: int, type: ScaledType) -> Stage:
    source = lowering.input(number)
    return b.compute(
        lowering.temporary("float64", b.extents(source)),
        lambda i: type.scale_format.number(Value(b.load(source, *i))).expression,
    )


# ---- Limits and shapes ----


def _accepts(node: NodeView) -> Reject | None:
    types = types_of(node)
    formats = types[0].element_format, types[1].element_format
    places = [type.scale_format.significant or 53 for type in types]
    block = types[0].block or 1
    if not all(format.has_quire for format in formats) or bits_of_sum(formats, block) > 53:
        return Reject("dtype", f"sums of {block} products of {types[0].element} and {types[1].element} exceed 53 bits")
    if places != [1, 1] and bits_of_sum(formats, block) + sum(places) > 53:
        return Reject("dtype", f"sums of {block} products under {types[0].scale} and {types[1].scale} exceed 53 bits")
    return None


def _varies(node: NodeView) -> Reject | None:
    """Take any extents of the left side but the one that is summed over; the right side is of numbers."""
    right = node.input(2)
    if right is None or right.static_shape is None:
        return Reject("dynamic-shape", f"{node.op_type} wants numbers for the shape of its right side")
    return None


def _demands(node: NodeView) -> Iterator[Equation]:
    block = node.attribute("block", DEFAULT.block)
    rank = 3 if demand.rank_of(node.input(2)) == 3 else 2
    yield from demand.ranked({2: rank, 3: rank, 4: 0, 5: 0})(node)
    yield from demand.same(0, -1, 2, -2)(node)
    if rank == 3:
        yield from demand.same(0, -2, 2, 0)(node)
    yield from demand.alike(1, 0, but=-1)(node)
    yield from demand.alike(3, 2, but=rank - 2)(node)
    for scales, elements_of, axis in ((1, 0, -1), (3, 2, rank - 2)):
        blocks = demand.divided_up(demand.operand(node, elements_of, axis), block)
        yield from demand.equation(demand.operand(node, scales, axis), blocks)


def _shapes(facts: Facts) -> list[Shape | None]:
    return [(*facts.known(0)[:-1], facts.known(2)[-1])]


def _cost(node: NodeView) -> Cost:
    right = node.input(2)
    shape = None if right is None else right.static_shape
    assert shape is not None, node.where
    return Cost(2 * elements(node.outputs[0]) * shape[-2], traffic(node))


def _fault_of_types(node: NodeView) -> str | None:
    if node.attribute("block", DEFAULT.block) < 1:
        return f"block is {node.attribute('block')}, where at least 1 is expected"
    try:
        types_of(node)
        sums_format(node.attribute("accumulate", FLOAT32))
    except GraftError as error:
        return error.message
    return None
