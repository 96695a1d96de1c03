"""Sums of products: MatMul, Gemm, Einsum and their integer forms.

The product is exactly one stage that ends in an ``add`` reduction; scaling and bias follow as further stages, so that
a schedule can apply them to the accumulators. (Einsums of several operands are written as such of two before:
`graft.core.passes.split_einsums`.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.checks import scales
from graft.core.operators.definition.cost import elements, traffic
from graft.core.operators.definition.demands import Demand
from graft.core.operators.definition.table import Cost, Lowering, Trait, define
from graft.core.operators.definition.varying import anything
from graft.core.operators.products import derivatives as derivative
from graft.core.operators.products import shapes
from graft.core.reject import Reject
from graft.core.tensor_ir.anchors import Contraction
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.runtime.extents import Agreement

CONTRACTION = frozenset({Trait.CONTRACTION})
QUANTIZABLE = CONTRACTION | {Trait.QUANTIZABLE}
Indices = Sequence[Expression]
Element = Callable[[Indices], Expression]


def element(buffer: Buffer, kind: str) -> Element:
    """Return the function that loads an element of ``buffer`` as ``kind``."""
    return lambda place: b.cast(b.load(buffer, *place), kind)


def shape_of(value: ValueView | None) -> tuple[int, ...]:
    """Return the static shape of a value that must have one."""
    shape = None if value is None else value.static_shape
    assert shape is not None
    return shape


def _broadcast_place(
    shape: Sequence[b.Extent], batch: Indices, extents: Sequence[b.Extent], matrix: Indices
) -> list[Expression]:
    """The index of a batched matrix operand: leading dimensions broadcast, then the matrix position."""
    skipped = len(batch) - (len(shape) - len(matrix))
    triples = zip(shape, extents[skipped:], batch[skipped:], strict=False)
    return [
        *(b.index(0) if own == 1 else b.broadcast_place(own, wanted, axis) for own, wanted, axis in triples),
        *matrix,
    ]


def product(
    target: Buffer, left: tuple[Sequence[b.Extent], Element], right: tuple[Sequence[b.Extent], Element], kind: str
) -> Stage:
    """Return the stage of NumPy's ``matmul``; each operand is its shape and its element function."""
    (left_shape, x), (right_shape, y) = left, right
    has_m, has_n = len(left_shape) > 1, len(right_shape) > 1
    extents = b.extents(target)

    def value(axes: Indices, k: Indices) -> Expression:
        batch = axes[: len(axes) - has_m - has_n]
        m = [axes[len(batch)]] if has_m else []
        n = [axes[-1]] if has_n else []
        a = x(_broadcast_place(left_shape, batch, extents, [*m, *k]))
        return b.multiply(a, y(_broadcast_place(right_shape, batch, extents, [*k, *n])))

    return b.contract(target, [left_shape[-1]], value)


def _lower_matmul(lowering: Lowering) -> tuple[Stage, ...]:
    x, y, target = lowering.input(0), lowering.input(1), lowering.output()
    kind = b.wide(target.dtype)
    return (product(target, (b.extents(x), element(x, kind)), (b.extents(y), element(y, kind)), kind),)


def _matmul_cost(node: NodeView) -> Cost:
    return Cost(2 * elements(node.outputs[0]) * shape_of(node.input(0))[-1], traffic(node))


def _inner(first: int, second: int) -> Demand:
    """Columns of one matrix, or elements of a vector, are the rows of another."""
    rows = lambda node: -2 if (demand.rank_of(node.input(second)) or 0) > 1 else -1  # noqa: E731 - an axis in two words
    return demand.all_of(demand.same(first, -1, second, rows), demand.broadcasting(first, second, own=2))


MATRICES = _inner(0, 1)
define(
    "MatMul", QUANTIZABLE, _lower_matmul, _matmul_cost, varies=anything, demands=MATRICES, shapes=shapes.matmul,
    channels_of_weights=lambda node: -1, vjp=derivative.matrices,
)  # fmt: skip

# ---- Gemm ---------------------------------------------------------------------------------------------------------


def _lower_gemm(lowering: Lowering) -> tuple[Stage, ...]:
    x, y, bias, target = lowering.input(0), lowering.input(1), lowering.optional(2), lowering.output()
    node, kind = lowering.node, b.wide(target.dtype)
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    turn_x, turn_y = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    depth = b.extents(x)[0 if turn_x else 1]

    def value(axes: Indices, k: Indices) -> Expression:
        left = [*k, axes[0]] if turn_x else [axes[0], *k]
        right = [axes[1], *k] if turn_y else [*k, axes[1]]
        return b.multiply(element(x, kind)(left), element(y, kind)(right))

    plain = alpha == 1.0 and (bias is None or beta == 0.0)
    sums = target if plain and kind == target.dtype else lowering.temporary(kind, b.extents(target))
    stages = [b.contract(sums, [depth], value)]
    if sums is not target:
        stages.append(b.compute(target, lambda i: _biased(b.load(sums, *i), bias, i, b.extents(target), alpha, beta)))
    return tuple(stages)


def _biased(
    total: Expression, bias: Buffer | None, i: Indices, shape: Sequence[b.Extent], alpha: float, beta: float
) -> Expression:
    """``alpha * total + beta * bias``, the factors left out where they are 1."""
    integer = total.type.is_integer
    scaled = total if alpha == 1.0 else b.multiply(total, int(alpha) if integer else alpha)
    if bias is None or beta == 0.0:
        return scaled
    added = b.cast(b.broadcast(bias, i, shape), total.type.dtype)
    return b.add(scaled, added if beta == 1.0 else b.multiply(added, int(beta) if integer else beta))


def _gemm_cost(node: NodeView) -> Cost:
    depth = shape_of(node.input(0))[0 if node.attribute("transA", 0) else 1]
    return Cost(2 * elements(node.outputs[0]) * (depth + 1), traffic(node))


def _gemm_demands(node: NodeView) -> Iterator[Equation]:
    transposed = node.attribute("transA", 0), node.attribute("transB", 0)
    yield from demand.same(0, 0 if transposed[0] else 1, 1, 1 if transposed[1] else 0)(node)
    yield from demand.all_of(demand.ranked({2: 2}, "at most"), demand.expanding_to_result(2))(node)


def _accept_gemm(node: NodeView) -> Reject | None:
    factors = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if "int" in node.dtype and any(factor != int(factor) for factor in factors):
        return Reject("attribute", f"Gemm of {node.dtype} with fractional factors {factors}")
    return None


define(
    "Gemm", QUANTIZABLE, _lower_gemm, _gemm_cost, _accept_gemm, varies=anything, demands=_gemm_demands,
    shapes=shapes.gemm, asked_when_loaded=True,
    channels_of_weights=lambda node: 0 if node.attribute("transB", 0) else 1, vjp=derivative.gemm,
)  # fmt: skip

# ---- Einsum -------------------------------------------------------------------------------------------------------


def parse_einsum(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of each operand and of the result; an ellipsis becomes labels ``.0, .1, ...`` from the right.

    Without ``->`` the result has the ellipsis, then the labels that occur once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    operands = [_labels(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    dots = max((sum(label[0] == "." for label in labels) for labels in operands), default=0)
    shared = [f".{number}" for number in range(dots - 1, -1, -1)]
    if arrow:
        before, ellipsis, after = right.partition("...")
        return operands, [*before, *(shared if ellipsis else []), *after]
    letters = [label for labels in operands for label in labels if label[0] != "."]
    return operands, [*shared, *sorted(label for label in set(letters) if letters.count(label) == 1)]


def _labels(term: str, rank: int) -> list[str]:
    before, ellipsis, after = term.partition("...")
    count = rank - len(before) - len(after) if ellipsis else 0
    return [*before, *(f".{number}" for number in range(count - 1, -1, -1)), *after]


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """An operand of an Einsum: its elements, a label for each axis, and the extents."""

    element: Element
    labels: Sequence[str]
    shape: Sequence[b.Extent]

    def at(self, of: Mapping[str, Expression], extents: Mapping[str, b.Count]) -> Expression:
        """Return the element where labels have these values; an axis of one element has it everywhere."""
        pairs = zip(self.labels, self.shape, strict=True)
        return self.element(
            [b.index(0) if own == 1 else b.broadcast_place(own, extents[label], of[label]) for label, own in pairs]
        )


def _lower_einsum(lowering: Lowering) -> tuple[Stage, ...]:
    target = lowering.output()
    sources = [lowering.input(number) for number in range(len(lowering.inputs))]
    shapes = [b.extents(source) for source in sources]
    operands, result = parse_einsum(lowering.node.attribute("equation"), [len(shape) for shape in shapes])
    kind = b.wide(target.dtype)
    triples = zip(sources, operands, shapes, strict=True)
    factors = [_Factor(element(source, kind), labels, shape) for source, labels, shape in triples]
    return (_summed(target, factors, result),)


def _extents(factors: Sequence[_Factor]) -> dict[str, b.Count]:
    """Return the extent of each label: of two that may differ only by one of them being 1, the other."""
    extents: dict[str, b.Count] = {}
    for factor in factors:
        for label, extent in zip(factor.labels, factor.shape, strict=True):
            known = extents.get(label, 1)
            extents[label] = known if extent in (1, known) else extent if known == 1 else _either(known, extent)
    return extents


def _either(left: b.Count, right: b.Count) -> b.Count:
    """Return what is not 1 of two extents, of which one may be 0: ``l*r // max(1, min(l, r))``; numbers are not 1."""
    numbers = [one for one in (left, right) if isinstance(one, int)]
    if numbers:
        return numbers[0]
    one, other = b.extent(left), b.extent(right)
    return b.divide(b.multiply(one, other), b.maximum(b.minimum(one, other), 1))


def _summed(target: Buffer, factors: Sequence[_Factor], result: Sequence[str]) -> Stage:
    """Return the sums of products of factors over the labels that the result lacks."""
    extents = _extents(factors)
    summed = [label for label in extents if label not in result]

    def value(axes: Indices, k: Indices) -> Expression:
        of = dict(zip([*result, *summed], [*axes, *k], strict=True))
        total = factors[0].at(of, extents)
        for factor in factors[1:]:
            total = b.multiply(total, factor.at(of, extents))
        return total

    if not summed:
        return b.compute(target, lambda i: value(i, ()))
    structure = Contraction() if len(factors) > 1 else None
    return b.reduce(target, "add", [extents[label] for label in summed], value, structure=structure)


def _einsum_cost(node: NodeView) -> Cost:
    shapes = [shape_of(value) for value in node.inputs]
    operands, _ = parse_einsum(node.attribute("equation"), [len(shape) for shape in shapes])
    pairs = zip(operands, shapes, strict=True)
    extents = {label: extent for labels, shape in pairs for label, extent in zip(labels, shape, strict=True)}
    return Cost(2 * math.prod(extents.values()), traffic(node))


def _einsum_demands(node: NodeView) -> Iterator[Equation]:
    """Axes of one label broadcast with each other; of two in one operand, which are a diagonal, they are equal."""
    ranks = [demand.rank_of(value) for value in node.inputs]
    if (known := [rank for rank in ranks if rank is not None]) and len(known) == len(ranks):
        operands, _ = parse_einsum(node.attribute("equation"), known)
        first: dict[str, tuple[int, int]] = {}
        for number, labels in enumerate(operands):
            for axis, label in enumerate(labels):
                other = first.setdefault(label, (number, axis))
                kind: Agreement = "equal" if other[0] == number else "broadcast"
                yield from demand.equation(demand.operand(node, *other), demand.operand(node, number, axis), kind)


define(
    "Einsum", CONTRACTION, _lower_einsum, _einsum_cost, varies=anything, demands=_einsum_demands,
    shapes=shapes.einsum, vjp=derivative.einsum,
)  # fmt: skip

# ---- Integers -----------------------------------------------------------------------------------------------------


def zero_point(buffer: Buffer | None, place: Indices) -> Expression:
    """Return the zero point for an element as int32: 0, the scalar, or the one of the element's row or column."""
    if buffer is None:
        return b.constant(0, "int32")
    shape = b.extents(buffer)
    pairs = zip(shape, place[len(place) - len(shape) :] if shape else (), strict=False)
    return b.cast(b.load(buffer, *(b.index(0) if extent == 1 else axis for extent, axis in pairs)), "int32")


def centred(buffer: Buffer, point: Buffer | None, *, of_rows: bool = False) -> Element:
    """Return the function that loads an element as int32 and subtracts its zero point.

    A vector of zero points counts columns, or rows where ``of_rows``.
    """

    def load(place: Indices) -> Expression:
        raw = b.cast(b.load(buffer, *place), "int32")
        if point is None:
            return raw
        by = [*place[:-2], place[-2]] if of_rows and len(point.shape) == 1 and len(place) > 1 else place
        return b.subtract(raw, zero_point(point, by))

    return load


def _lower_matmul_integer(lowering: Lowering) -> tuple[Stage, ...]:
    x, y, target = lowering.input(0), lowering.input(1), lowering.output()
    left = centred(x, lowering.optional(2), of_rows=True)
    right = centred(y, lowering.optional(3))
    return (product(target, (b.extents(x), left), (b.extents(y), right), "int32"),)


def requantized(total: Expression, scale: Expression, point: Expression, dtype: str) -> Expression:
    """Return ``saturate(round_even(total * scale) + point)`` as ``dtype``; the sum saturates in int32."""
    rounded = b.unary("round_even", b.multiply(b.cast(total, scale.type.dtype), scale))
    shifted = b.add(rounded, b.cast(point, scale.type.dtype))
    return b.cast(shifted, dtype)


def _lower_qlinear_matmul(lowering: Lowering) -> tuple[Stage, ...]:
    x, y, target = lowering.input(0), lowering.input(3), lowering.output()
    x_scale, y_scale, out_scale = lowering.input(1), lowering.input(4), lowering.input(6)
    sums = lowering.temporary("int32", b.extents(target))
    left = centred(x, lowering.optional(2), of_rows=True)
    right = centred(y, lowering.optional(5))

    def value(i: Indices) -> Expression:
        def at(buffer: Buffer, place: Indices) -> Expression:
            return b.cast(b.broadcast(buffer, place, b.extents(target)[: len(place)]), "float32")

        row = i if len(x_scale.shape) != 1 else i[:-1]
        scale = b.divide(b.multiply(at(x_scale, row), at(y_scale, i)), at(out_scale, i))
        return requantized(b.load(sums, *i), scale, at(lowering.input(7), i), target.dtype)

    return (product(sums, (b.extents(x), left), (b.extents(y), right), "int32"), b.compute(target, value))


define(
    "MatMulInteger", CONTRACTION, _lower_matmul_integer, _matmul_cost, varies=anything,
    demands=demand.all_of(MATRICES, demand.parameters(2, of=0, axis=-2), demand.parameters(3, of=1, axis=-1)),
    shapes=shapes.matmul,
)  # fmt: skip
define(
    "QLinearMatMul", CONTRACTION, _lower_qlinear_matmul, _matmul_cost, varies=anything,
    demands=demand.all_of(
        _inner(0, 3), demand.parameters(1, 2, of=0, axis=-2), demand.parameters(4, 5, 6, 7, of=3, axis=-1)
    ),
    shapes=shapes.quantized_matmul, attributes=(scales(1, 4, divisor=6),),
    channels_of_weights=lambda node: -1,
)  # fmt: skip
