"""Products of rows by a constant matrix over packed dot operands, for any number of rows: of bytes, or in bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.dot_grouping import (
    PACKED_DTYPE,
    Sum,
    group_bfloat16,
    group_bytes,
    multiplies_pairs,
)
from graft.core.schedule.products.packed_dot import SmallRows
from graft.core.schedule.products.product_axes import Multiply
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Axis, Bitcast, Buffer, Expression, Load, Ramp, Stage, Variable
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, substitute


@dataclass(frozen=True, slots=True)
class PackedRows:
    """A sum of products over packed operands: ``left`` is one of a row, ``right`` one of a column of ``source``."""

    anchor: Stage
    left: Expression
    right: Expression
    multiply: Multiply
    source: Buffer
    sums: tuple[Sum, ...]
    run_time_sums: Mapping[Buffer, Stage]
    """The sums that each call makes, by the buffers that the start reads; theirs are the memory for them."""
    rows: Stage | None = None
    """What makes the rows numbers of 16 bits, before all else."""

    @property
    def before(self) -> tuple[Stage, ...]:
        """What each call computes first."""
        return (*self.run_time_sums.values(), *(() if self.rows is None else (self.rows,)))

    @property
    def term(self) -> Axis:
        """The axis of the sum, in packed operands."""
        assert self.anchor.reduction is not None, self.anchor.buffer.name
        return self.anchor.reduction.axes[0]

    def matrix(self, contents: np.ndarray) -> np.ndarray:
        """Return the packed operands of the right factor: a row for each term."""
        column, extent = self.anchor.axes[-1], self.anchor.buffer.shape[-1]
        whole = Buffer("factor", self.right.type.dtype, (self.term.extent, extent), memory="scratch")
        stage = Stage(whole, (self.term.variable, column), self.right)
        return run_stages([stage], {self.source: contents})[whole]

    def start(
        self,
        places: Mapping[Variable, Expression],
        lanes: int,
        mask: Expression | None,
        constants: Mapping[Buffer, tuple[Buffer, int]],
    ) -> Expression:
        """Return what a vector of sums starts from; sums that are known are where ``constants`` say."""
        assert self.anchor.reduction is not None, self.anchor.buffer.name
        made = self.run_time_sums

        def rule(node: Expression) -> Expression:
            if not isinstance(node, Load):
                return node
            if node.buffer in constants:
                buffer, begin = constants[node.buffer]
                return Load(buffer, (b.add(node.indices[0], begin),))
            return Load(made[node.buffer].buffer, node.indices) if node.buffer in made else node

        value = ExpressionMap(rule)(self.anchor.reduction.initial)
        return wide(vectorize_expression(value, places, mask), lanes)


def packed_rows(
    stage: Stage, constants: Mapping[Buffer, np.ndarray], others: Sequence[Expression], target: Target
) -> PackedRows | None:
    """Return a sum of products of bytes over packed operands; None unless its columns are those of one constant matrix.

    ``others`` are what else is computed from the kernel's inputs: the matrix is replaced and must not be among it.
    """
    grouped = group_bytes(stage, constants, widens=multiplies_pairs(target))
    factors = None if grouped is None else factors_of(grouped.anchor)
    if grouped is None or factors is None or grouped.anchor.reduction is None or not stage.axes:
        return None
    if len(grouped.anchor.reduction.axes) != 1 or stage.reduction is None:
        return None
    left, right, dot = factors
    column, term = stage.axes[-1], grouped.anchor.reduction.axes[0].variable
    swapped = column in free_variables(left)
    if swapped:
        left, right = right, left
    if column in free_variables(left) or free_variables(right) != {column, term}:
        return None
    sources = {load.buffer for load in loads(right)}
    if len(sources) != 1 or not sources <= constants.keys() or sources & {one.buffer for one in loads(left, *others)}:
        return None
    own = [one for one in grouped.sums if one.constants is not None]
    if any(one.axes != (len(stage.axes) - 1,) for one in own):
        return None
    (axis,) = stage.reduction.axes
    value, width, rows = grouped.factors[int(swapped)].value, DOTS[dot].width, None
    small = SmallRows(value, grouped.variable, constant_extent(axis.extent))
    if small.can_be_packed(width):
        left = small.packed_operand(term, width)
    elif dot == "dot2_s16":
        rows, left = _narrow_rows(stage, value, grouped.variable, term, width)
    made = {one.buffer: _in_memory(one) for one in grouped.sums if one.constants is None}
    return PackedRows(grouped.anchor, left, right, Multiply(dot, swapped), sources.pop(), grouped.sums, made, rows)


def rounded_rows(
    stage: Stage, constants: Mapping[Buffer, np.ndarray], others: Sequence[Expression]
) -> PackedRows | None:
    """Return a float32 sum of products over pairs of rounded numbers; None unless its right factor is constant."""
    grouped = group_bfloat16(stage)
    factors = None if grouped is None else factors_of(grouped.anchor)
    if grouped is None or factors is None or grouped.anchor.reduction is None or stage.reduction is None:
        return None
    if len(grouped.anchor.reduction.axes) != 1 or not stage.axes:
        return None
    left, right, dot = factors
    column, term = stage.axes[-1], grouped.anchor.reduction.axes[0].variable
    swapped = column in free_variables(left)
    right = left if swapped else right
    small = grouped.factors[int(swapped)].value
    if column in free_variables(small) or free_variables(right) != {column, term}:
        return None
    sources = {load.buffer for load in loads(right)}
    if len(sources) != 1 or not sources <= constants.keys() or sources & {one.buffer for one in loads(small, *others)}:
        return None
    made, read = _narrow_rows(stage, small, grouped.variable, term, DOTS[dot].width)
    return PackedRows(grouped.anchor, read, right, Multiply(dot, swapped), sources.pop(), (), {}, made)


def _narrow_rows(
    stage: Stage, small: Expression, variable: Variable, term: Variable, width: int
) -> tuple[Stage, Expression]:
    """Return what stores the 16-bit elements of all rows, and the group ``term`` of a row as a packed operand.

    ``small`` speaks of ``variable``, the number of a term; behind the last stand zeros.
    """
    assert stage.reduction is not None, stage.buffer.name
    extent, own = constant_extent(stage.reduction.axes[0].extent), free_variables(small)
    axes = tuple(axis for axis in stage.axes if axis in own)
    fresh = {axis: Variable(axis.name) for axis in (*axes, variable)}
    shape = [size for axis, size in zip(stage.axes, stage.buffer.shape, strict=True) if axis in own]
    count = -(-extent // width)
    buffer = Buffer("narrow", small.type.dtype, (*shape, b.index(count * width)), None, "scratch", 64)
    place = fresh[variable]
    value = substitute(small, {**fresh, variable: b.minimum(place, extent - 1)} if extent % width else fresh)
    if extent % width:
        value = b.select(b.less(place, extent), value, b.constant(0, small.type.dtype))
    read = Bitcast(Load(buffer, (*axes, Ramp(b.multiply(term, width), 1, width))), PACKED_DTYPE)
    return Stage(buffer, tuple(fresh.values()), value), read


def _in_memory(made: Sum) -> Stage:
    (stage,) = made.stages
    return replace(stage, buffer=replace(made.buffer, memory="scratch"))
