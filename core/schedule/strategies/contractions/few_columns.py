"""The schedule of products of few columns: sums along vectors of terms.

Where a product has less columns than a vector has lanes, most lanes of a register tile are empty. Both factors are read
along their terms instead, a vector of each at a time, and the sums of a tile of rows and columns are added up across
their lanes at the end: heads of a few classes or boxes, gates of experts, adapters of low rank. A constant factor is
laid out so when the model is compiled; another one must lie so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapsed, with_sources
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.loop_frames import nested, shared, taken
from graft.core.schedule.primitives.loop_kinds import Jam, Parallel
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.statements import in_vectors, ramp, registers, wide
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import finished
from graft.core.schedule.products.dot_grouping import Sum
from graft.core.schedule.products.factor_packing import PackedFactor, evaluate
from graft.core.schedule.products.packed_dot import SmallRows, Starts, with_packed_operands
from graft.core.schedule.products.product_axes import Contraction, contraction_of
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import (
    Allocate,
    Block,
    Buffer,
    Expression,
    Function,
    Horizontal,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import element_bits

MOST_SUMS = 16
"""Sums of a tile, each in a vector."""
MOST_ROWS = 4
ADDED = 4.0
"""Cycles in which the lanes of a vector are added up."""

Side = Callable[[Expression, Expression | None], Expression]
"""A vector of a factor: of so many terms from one on, which a mask may switch off."""


@dataclass(frozen=True, slots=True)
class FewColumns:
    """A product whose factors are read along the terms, by vectors of ``chunk`` elements: ``lanes`` operands."""

    kernel: Kernel
    parts: Contraction
    left: Side
    right: Side
    packed: PackedFactor | None
    starts: Starts
    lanes: int
    terms: int
    chunk: int

    @property
    def rows(self) -> int:
        """The rows of a tile."""
        return rows_of(self.parts)

    def function(self) -> Function:
        """Return the kernel in loops."""
        parts = self.parts
        outer = {axis: Variable(f"b{axis}") for axis in parts.outer if parts.shape[axis] != 1}
        row, column = Variable("i"), Variable("j")
        places = {**dict.fromkeys(parts.outer, b.index(0)), **outer, **parts.at_row(row), parts.columns: column}
        known = {parts.axes[axis]: place for axis, place in places.items()}
        point = [places[axis] for axis in range(len(parts.shape))]
        initial, values = self.starts.read(substitute(parts.epilogue.initial, known), None, row, column)
        assert not values, "sums of rows that are made at run time"
        total, own = registers("total", parts.total.dtype, self.lanes), (ramp(0, self.lanes),)

        def add(begin: Expression, mask: Expression | None) -> Statement:
            left, right = (substitute(side(begin, mask), known) for side in (self.left, self.right))
            return Store(total, own, parts.multiply(left, right, Load(total, own)))

        clear = Store(total, own, wide(b.constant(0, parts.total.dtype), self.lanes))
        whole = b.add(initial, Horizontal("add", Load(total, own)))
        finish = Block(tuple(parts.epilogue.stores(point, whole, None)))
        element = Allocate(total, Block((clear, in_vectors("k", self.terms, self.chunk, add), finish)))
        axes = [LoopAxis.over(variable, parts.extents[axis]) for axis, variable in outer.items()]
        body = loops_over([(row, parts.row_count), (column, b.index(parts.width))], element)
        replaced = {} if self.packed is None else {self.packed.source: self.packed.buffer}
        made = self.kernel.function(taken(nested(axes, body), tuple(self.steps(axes)), axes), replaced)
        return replace(made, body=finished(made.body, made.parameters))

    def steps(self, outer: Sequence[LoopAxis]) -> Iterator[Step]:
        """Yield the schedule: tiles of rows and columns, whose vectors of terms go side by side."""
        yield Jam("j")
        if self.rows > 1:
            yield from (Split("i", self.rows, "i.tile", "i", ("i.rest",)), Jam("i"))
        yield from shared(outer, None) if outer else (Parallel("i.tile" if self.rows > 1 else "i"),)


def few_columns(kernel: Kernel, target: Target) -> FewColumns | None:
    """Return a product of few columns whose factors lie, or can be laid out, along its terms; None of others."""
    plain = contraction_of(kernel)
    if plain is None or len(plain.depth) != 1 or plain.total.is_custom:
        return None
    known = [size for size in (plain.width, plain.height) if size != VARIES]
    if plain.epilogue.branches or plain.epilogue.picks or min(known, default=0) > MOST_SUMS:
        return None
    dots = with_packed_operands(plain, kernel.constants, target)
    (terms,) = plain.depth
    if dots is None:
        sides = [SmallRows(side, terms.variable, terms.extent) for side in (plain.left, plain.right)]
        return _along_terms(kernel, plain, (), sides, target)
    if dots.small is None or dots.right is None:
        return None
    return _along_terms(kernel, dots.parts, dots.sums, [dots.small, dots.right], target)


def _along_terms(
    kernel: Kernel, parts: Contraction, sums: Sequence[Sum], sides: Sequence[SmallRows], target: Target
) -> FewColumns | None:
    """Return a product by the elements of its factors, None where these lie otherwise; its rows may be columns."""
    left, right = sides
    if parts.width == VARIES or parts.width > MOST_SUMS:
        single = next((axis for axis in reversed(parts.outer) if parts.shape[axis] == 1), None)
        columns = single if parts.rows is None else parts.rows
        if columns is None or parts.before:
            return None
        outer = tuple(axis for axis in parts.outer if axis != columns)
        multiply = replace(parts.multiply, swapped=not parts.multiply.swapped)
        parts = replace(parts, left=parts.right, right=parts.left, outer=outer, multiply=multiply)
        parts = replace(parts, rows=parts.columns, columns=columns)
        left, right = right, left
    lanes = lanes_of(parts.left.type.dtype, target)
    if VARIES in (parts.width, parts.terms) or lanes == 1 or parts.width > MOST_SUMS or not saves(parts, lanes, target):
        return None
    width = DOTS[parts.multiply.dot].width if parts.multiply.dot else 1
    packed, starts, chunk = None, Starts(sums, parts.multiply.swapped), lanes * width
    found = evaluate(kernel, parts, parts.right, parts.left, parts.columns)
    if found is not None:
        source, matrix, axes = found
        matrix = np.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, -parts.terms % lanes)])
        buffer = Buffer(f"{source.name}_rows", parts.right.type.dtype, (b.index(matrix.size),))
        packed = PackedFactor(source, buffer, matrix.reshape(-1), axes, matrix.shape[: len(axes)])
    _, packed = starts.packed(None, packed)
    known = starts.are_known and starts.of_left is None and starts.of_right is None
    if not known or not left.lies_along() or not (packed is not None or right.lies_along()):
        return None

    def of_right(begin: Expression, mask: Expression | None) -> Expression:
        if packed is None:
            return right.operands(begin, chunk, mask, parts.right.type.dtype)
        row = b.multiply(parts.axes[parts.columns], -(-parts.terms // lanes) * lanes)
        place = b.add(packed.begin({axis: parts.axes[axis] for axis in packed.axes}), row)
        return Load(packed.buffer, (ramp(b.add(place, b.divide(begin, width)), lanes),))

    def of_left(begin: Expression, mask: Expression | None) -> Expression:
        return left.operands(begin, chunk, mask, parts.left.type.dtype)

    return FewColumns(kernel, parts, of_left, of_right, packed, starts, lanes, left.extent, chunk)


def saves(parts: Contraction, lanes: int, target: Target) -> bool:
    """Whether sums along terms take fewer cycles than a vector of columns of which so many lanes are empty.

    A single column of floats is a reduction of rows, whose loops of several vectors of one row are as good.
    """
    if parts.width == 1 and not parts.multiply.dot:
        return False
    machine = target.machine
    along = parts.width * (-(-parts.terms // lanes) / machine.costs.loads + ADDED)
    size = parts.width * parts.terms * element_bits(parts.right.type.dtype) // 8
    if size > machine.cache(1).size and (parts.height == VARIES or parts.height >= MOST_ROWS):
        along = max(along, size / rows_of(parts) / machine.cache(2).bandwidth)  # each tile of rows reads it again
    return along < parts.terms / machine.costs.fused


def rows_of(parts: Contraction) -> int:
    """Return the rows of a tile."""
    most = max(1, min(MOST_ROWS, MOST_SUMS // parts.width))
    return most if parts.height == VARIES else min(most, parts.height)


def _found(anchor: Anchor, target: Target) -> FewColumns | None:
    return few_columns(collapsed(anchor.kernel)[0], target)


def _applies(anchor: Anchor, target: Target) -> Answer:
    return OTHER_FORM if _found(anchor, target) is None else True


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    found = _found(anchor, target)
    return None if found is None else found.parts.multiply.dot == "dot2_bf16"


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, sources = collapsed(anchor.kernel)
    found = few_columns(kernel, target)
    assert found is not None, "built only where it applies"
    contents = {} if found.packed is None else {found.packed.source: found.packed.stored}
    return with_sources(Scheduled(found.function, contents, knobs={"rows": found.rows}), sources)


STRATEGY = Strategy("few_columns", frozenset({Trait.CONTRACTION}), _build, _applies, rounds=_rounds, varies=None)
