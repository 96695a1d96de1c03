"""Factors of dot products at run time: rows copied as groups of small elements, and the sums of those elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import in_vectors, operand_at, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression, zero_of
from graft.core.schedule.products.dot_grouping import Sum, group
from graft.core.schedule.products.factor_packing import PackedFactor
from graft.core.schedule.products.product_axes import Contraction, Multiply, analyse
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, substitute
from graft.core.types import Type, element_bits


@dataclass(frozen=True, slots=True)
class SmallRows:
    """The small elements of a left factor along an axis of the sum, of ``extent``; ``value`` speaks of ``variable``."""

    value: ir.Expression
    variable: ir.Variable
    extent: int

    @property
    def dtype(self) -> str:
        """The type of the elements."""
        return self.value.type.dtype

    def can_be_packed(self, width: int) -> bool:
        """Whether groups of ``width`` elements can be read as packed operands where they lie."""
        return self.lies_along() and self.extent % width == 0

    def lies_along(self) -> bool:
        """Whether neighbouring elements are neighbours in one buffer, and nothing is in front of them or masked."""
        value = self.value
        if not isinstance(value, ir.Load) or value.mask is not None or value.buffer.strides is not None:
            return False
        return self._is_contiguous(value)

    def operands(self, begin: ir.Expression, count: int, mask: ir.Expression | None, dtype: str) -> ir.Expression:
        """Return ``count`` elements as operands of a type, if they lie along the axis; zeros where a mask is off."""
        elements = vectorize_expression(self.value, {self.variable: ramp(begin, count)}, mask)
        return elements if elements.type.dtype == dtype else ir.Bitcast(elements, dtype)

    def is_contiguous(self) -> bool:
        """Whether neighbouring elements are neighbours in memory, wherever they come from."""
        return all(self._is_contiguous(load) for load in loads(self.value))

    def _is_contiguous(self, load: ir.Load) -> bool:
        *before, last = load.indices
        outside = free_variables(*before, *(() if load.mask is None else (load.mask,)))
        return last is self.variable or self.variable not in outside | free_variables(last)

    def packed_operand(self, place: ir.Expression, width: int) -> ir.Expression:
        """Return the group ``place`` as an int32, if it `can_be_packed`."""
        return ir.Bitcast(substitute(self.value, {self.variable: ir.Ramp(b.multiply(place, width), 1, width)}), "int32")


@dataclass(frozen=True, slots=True)
class Dots:
    """A product of narrow numbers over packed operands: its parts, the sums that it starts from, its elements."""

    parts: Contraction
    sums: tuple[Sum, ...]
    small: SmallRows | None
    """Those of the left factor; None where terms go over several axes."""
    right: SmallRows | None


def with_packed_operands(plain: Contraction, constants: Mapping[ir.Buffer, np.ndarray], target: Target) -> Dots | None:
    """Return a product as one of dot products; None if it is not one of small numbers, or would turn round."""
    grouped = group(plain.epilogue.anchor, constants, target)
    parts = None if grouped is None else analyse(replace(plain.epilogue, anchor=grouped.anchor))
    if grouped is None or parts is None or (parts.rows, parts.columns) != (plain.rows, plain.columns):
        return None
    if len(plain.depth) > 1:
        return Dots(parts, grouped.sums, None, None)
    (terms,), is_swapped = plain.depth, int(parts.multiply.swapped)
    elements = [SmallRows(factor.value, terms.variable, terms.extent) for factor in grouped.factors]
    return Dots(parts, grouped.sums, elements[is_swapped], elements[1 - is_swapped])


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Rows of a left factor as groups: in ``elements``, small ones, or packed in int32; perhaps with their sums."""

    buffer: ir.Buffer
    sums: ir.Buffer | None
    width: int

    def packed_operand(self, row: ir.Expression, place: ir.Expression) -> ir.Expression:
        """Return a group as an int32."""
        if self.buffer.dtype == "int32":
            return ir.Load(self.buffer, (row, place))
        return operand_at(self.buffer, row, place, self.width)

    def around(self, body: ir.Statement) -> ir.Statement:
        """Return ``body`` with the memory that it needs."""
        return allocate([one for one in (self.sums, self.buffer) if one is not None], body)


def copied_rows(
    small: SmallRows | None, count: int, packed: int, multiply: Multiply, lanes: int, sums: bool
) -> CopiedRows:
    """Return where ``count`` rows go: as small elements where these are vectors in memory, else as packed operands."""
    width = DOTS[multiply.dot].width
    chunk = lanes * width
    own = scratch("row_sums", "int32", count) if sums else None
    if small is None or not small.is_contiguous():
        return CopiedRows(scratch("rows", "int32", count, packed), own, width)
    return CopiedRows(scratch("rows", small.dtype, count, -(-packed // lanes) * chunk), own, width)


def copy_elements(
    small: SmallRows,
    rows: CopiedRows,
    row: ir.Variable,
    places: dict[ir.Variable, ir.Expression],
    multiply: Multiply,
    lanes: int,
) -> ir.Statement:
    """Return what copies a row of small elements, whole vectors at a time, zeros behind the last."""
    value = substitute(small.value, places)
    widest = max((element_bits(load.type.dtype) for load in loads(value)), default=0)
    chunk = lanes * min(rows.width, max(1, 32 // widest)) if widest else lanes * rows.width
    total, own = ir.Buffer("total", "int32", (b.index(lanes),), memory="register"), (ramp(0, lanes),)

    def copy(begin: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
        place = ramp(begin, chunk)
        elements = wide(vectorize_expression(value, {small.variable: place}, mask), chunk)
        if mask is not None:
            elements = ir.Select(mask, elements, wide(zero_of(Type(small.dtype)), chunk))
        stores: list[ir.Statement] = [ir.Store(rows.buffer, (row, place), elements)]
        if rows.sums is not None:
            stores.append(ir.Store(total, own, multiply.summed(elements, ir.Load(total, own), of_left=True)))
        return ir.Block(tuple(stores))

    copies = in_vectors("step", small.extent, chunk, copy)
    if rows.sums is None:
        return copies
    cleared = ir.Store(total, own, wide(b.constant(0, "int32"), lanes))
    result = ir.Load(total, own)
    kept = ir.Store(rows.sums, (row,), result if lanes == 1 else ir.Horizontal("add", result))
    return ir.Allocate(total, ir.Block((cleared, copies, kept)))


def copy_packed(
    operand: ir.Expression,
    rows: CopiedRows,
    row: ir.Variable,
    place: ir.Expression,
    multiply: Multiply,
    loops: Callable[[ir.Statement], ir.Statement],
) -> ir.Statement:
    """Return what copies a row operand by operand; ``operand`` and ``place`` are in the variables of ``loops``."""
    total = ir.Buffer("total", "int32", (b.index(1),), memory="register")
    own = (b.index(0),)
    stores: list[ir.Statement] = [ir.Store(rows.buffer, (row, place), operand)]
    if rows.sums is None:
        return loops(stores[0])
    group = ir.Bitcast(ir.Load(rows.buffer, (row, place)), multiply.kind(of_left=True))
    stores.append(ir.Store(total, own, multiply.summed(group, ir.Load(total, own), of_left=True)))
    cleared, kept = ir.Store(total, own, b.constant(0, "int32")), ir.Store(rows.sums, (row,), ir.Load(total, own))
    return ir.Allocate(total, ir.Block((cleared, loops(ir.Block(tuple(stores))), kept)))


class Starts:
    """Where the sums of elements are that the start of a sum reads: behind a packed constant, or summed at run time."""

    def __init__(self, sums: Sequence[Sum], swapped: bool) -> None:
        self.sums = {one.buffer: one for one in sums}
        self._left = int(swapped)
        self._places: dict[ir.Buffer, tuple[ir.Buffer, int]] = {}
        self.columns: ir.Buffer | None = None
        """The sums of the right factor's columns, if they are made at run time."""

    @property
    def are_known(self) -> bool:
        """Whether no sum that is known at compile time only is of a factor that is not packed then."""
        return all(len(one.stages) == 1 or one.buffer in self._places for one in self.sums.values())

    def packed(
        self, left: PackedFactor | None, right: PackedFactor | None
    ) -> tuple[PackedFactor | None, PackedFactor | None]:
        """Return packed factors with their sums behind them."""
        factors = {self._left: left, 1 - self._left: right}
        for one in self.sums.values():
            factor = factors[one.factor]
            if factor is None or one.constants is None:
                continue
            begin = factor.stored.size
            longer = factors[one.factor] = factor.with_tail(one.contents())
            self._places[one.buffer] = (longer.buffer, begin)
        return factors[self._left], factors[1 - self._left]

    @property
    def of_left(self) -> Sum | None:
        """The sums of rows that are made at run time."""
        return self._at_run_time(self._left)

    @property
    def of_right(self) -> Sum | None:
        """The sums of columns that are made at run time."""
        return self._at_run_time(1 - self._left)

    def _at_run_time(self, factor: int) -> Sum | None:
        found = (one for one in self.sums.values() if one.factor == factor and one.buffer not in self._places)
        return next(found, None)

    def read(
        self, initial: ir.Expression, rows: CopiedRows | None, row: ir.Expression, column: ir.Expression
    ) -> tuple[ir.Expression, dict[ir.Variable, ir.Expression]]:
        """Return ``initial`` with its sums read where they are; those made at run time become variables.

        ``row`` is the place in the copied rows, ``column`` those of a vector in `columns`.
        """
        values: dict[ir.Variable, ir.Expression] = {}

        def rule(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer not in self.sums:
                return node
            if node.buffer in self._places:
                buffer, begin = self._places[node.buffer]
                return ir.Load(buffer, (b.add(flat_place(node), begin),))
            variable = ir.Variable(node.buffer.name, Type("int32"))
            if self.sums[node.buffer].factor == self._left:
                assert rows is not None and rows.sums is not None, "sums of rows that are not copied"
                values[variable] = ir.Load(rows.sums, (row,))
            else:
                assert self.columns is not None, "sums of columns that are not packed"
                values[variable] = ir.Load(self.columns, (column,))
            return variable

        return ExpressionMap(rule)(initial), values


def flat_place(load: ir.Load) -> ir.Expression:
    """Return where an element of a contiguous buffer lies."""
    place: ir.Expression = b.index(0)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        place = b.add(b.multiply(place, extent), index)
    return place
