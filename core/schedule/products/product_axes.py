"""Sums of products taken apart: which axes are rows, columns and outer loops, and what the two factors are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graft.core.machine.instructions import DOTS
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.products.accumulation import Reduced
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Bitcast, Constant, Expression, Intrinsic, Variable
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads, walk_expressions
from graft.core.types import Type


@dataclass(frozen=True, slots=True)
class Multiply:
    """How a left and a right factor are multiplied and added to a sum: fused, or as a dot product of packed operands.

    ``dot`` is the intrinsic's name, "" for none, and ``swapped`` whether the left factor is its second operand.
    """

    dot: str = ""
    swapped: bool = False

    def __call__(self, left: Expression, right: Expression, addend: Expression) -> Expression:
        """Return ``addend + left * right``."""
        if not self.dot:
            return multiply_add(left, right, addend)
        kinds, operands = DOTS[self.dot], (right, left) if self.swapped else (left, right)
        first, second = Bitcast(operands[0], kinds.left), Bitcast(operands[1], kinds.right)
        return Intrinsic(self.dot, (addend, first, second), addend.type)

    def kind(self, *, of_left: bool) -> str:
        """Return the type of the small elements of a factor."""
        kinds = DOTS[self.dot]
        return kinds.left if of_left != self.swapped else kinds.right

    def summed(self, elements: Expression, addend: Expression, *, of_left: bool) -> Expression:
        """Return ``addend`` plus the small elements of one factor."""
        one = Constant(1, Type(self.kind(of_left=not of_left), elements.type.lanes))
        operands = (elements, one) if of_left != self.swapped else (one, elements)
        return Intrinsic(self.dot, (addend, *operands), addend.type)


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products taken apart: ``left`` depends on the rows, ``right`` on the columns.

    ``rows`` is None where no axis belongs to the left factor alone. Extents that are known only when the kernel runs
    are `VARIES` in ``shape`` and ``depth``; there the axes ``before`` the rows, outermost first, are counted through
    with them, since no two of them can be made one.
    """

    epilogue: Epilogue
    left: Expression
    right: Expression
    rows: int | None
    columns: int
    outer: tuple[int, ...]
    shape: tuple[int, ...]
    depth: tuple[Reduced, ...]
    multiply: Multiply = Multiply()
    before: tuple[int, ...] = ()

    @property
    def total(self) -> Type:
        """The type of the sums."""
        reduction = self.epilogue.anchor.reduction
        assert reduction is not None, "a sum of products without a sum"
        return reduction.initial.type

    @property
    def axes(self) -> tuple[Variable, ...]:
        """One variable per axis of the output."""
        return self.epilogue.anchor.axes

    @property
    def extents(self) -> tuple[Expression, ...]:
        """The extents of the output."""
        return self.epilogue.anchor.buffer.shape

    @property
    def varies(self) -> bool:
        """Whether some extent is known only when the kernel runs."""
        return VARIES in self.shape or self.terms == VARIES

    @property
    def every_row(self) -> tuple[int, ...]:
        """The axes of the rows, the outermost first."""
        return () if self.rows is None else (*self.before, self.rows)

    @property
    def height(self) -> int:
        """The number of rows, or `VARIES`."""
        return _product(self.shape[axis] for axis in self.every_row)

    @property
    def row_count(self) -> Expression:
        """The number of rows as an expression."""
        rows: Expression = b.index(1)
        for axis in self.every_row:
            rows = b.multiply(rows, self.extents[axis])
        return rows

    def at_row(self, number: Expression) -> dict[int, Expression]:
        """Return the index along each axis of the rows that row ``number`` has."""
        places: dict[int, Expression] = {}
        for axis in reversed(self.every_row):
            is_first = axis == self.every_row[0]
            places[axis] = number if is_first else b.modulo(number, self.extents[axis])
            number = number if is_first else b.divide(number, self.extents[axis])
        return places

    @property
    def width(self) -> int:
        """The number of columns, or `VARIES`."""
        return self.shape[self.columns]

    @property
    def terms(self) -> int:
        """The number of products in each sum, or `VARIES`."""
        return _product(loop.extent for loop in self.depth)

    @property
    def last_terms(self) -> Expression:
        """The extent of the innermost loop of the sum."""
        reduction = self.epilogue.anchor.reduction
        assert reduction is not None, "a sum of products without a sum"
        return reduction.axes[-1].extent if reduction.axes else b.index(1)

    @property
    def column(self) -> Variable:
        """The variable of the columns."""
        return self.axes[self.columns]

    def held_vectors(self, usual: int) -> int:
        """Return how many registers hold what a short epilogue uses for all rows: numbers, and a bias or the like.

        ``usual`` is the number of vectors across a tile, for each of which there is such a bias.
        """
        if self.epilogue.branches:
            own = (_held(branch.epilogue, self.columns, usual) for branch in self.epilogue.branches)
            return max(own)
        return _held(self.epilogue, self.columns, usual)

    def term(self) -> Expression:
        """Return the number of the current product within its sum."""
        number: Expression = b.index(0)
        for loop in self.depth:
            number = b.add(b.multiply(number, loop.extent), loop.variable)
        return number

    @property
    def batch(self) -> int:
        """The number of products of matrices, as far as it is known."""
        return math.prod(max(1, self.shape[axis]) for axis in self.outer)


def by_rows(epilogue: Epilogue, left: Expression, right: Expression, rows: Sequence[int]) -> Contraction:
    """Return a sum of products of the last axis' columns by rows of several axes, all counted through."""
    stage = epilogue.anchor
    shape = tuple(_known(extent) for extent in stage.buffer.shape)
    terms = () if stage.reduction is None else stage.reduction.axes
    depth = tuple(Reduced(axis.variable, _known(axis.extent)) for axis in terms)
    outer = tuple(axis for axis in range(len(shape) - 1) if axis not in rows)
    last = rows[-1] if rows else None
    return Contraction(epilogue, left, right, last, len(shape) - 1, outer, shape, depth, before=tuple(rows[:-1]))


def analyse(epilogue: Epilogue) -> Contraction | None:
    """Take the anchor of a kernel apart, or return None if it does not say that it is a sum of products.

    The columns are the innermost output axis; one factor must depend on them (the right one) and the other not.
    """
    stage = epilogue.anchor
    assert stage.reduction is not None
    shape = tuple(_known(extent) for extent in stage.buffer.shape)
    depth = tuple(Reduced(axis.variable, _known(axis.extent)) for axis in stage.reduction.axes)
    operands = factors_of(stage)
    if operands is None or not shape or 0 in shape or (len(depth) > 1 and _product(one.extent for one in depth) < 0):
        return None
    left, right, dot = operands
    swapped = False
    columns = max((axis for axis, extent in enumerate(shape) if extent != 1), default=len(shape) - 1)
    if stage.axes[columns] in free_variables(left):
        left, right, swapped = right, left, True
    in_left, in_right = free_variables(left), free_variables(right)
    if stage.axes[columns] in in_left or (shape[columns] != 1 and stage.axes[columns] not in in_right):
        return None
    own = [axis for axis, v in enumerate(stage.axes) if v in in_left and v not in in_right and shape[axis] != 1]
    rows = own[-1] if own else None
    varies = VARIES in (*shape, *(one.extent for one in depth))
    before = tuple(own[:-1]) if varies else ()
    outer = tuple(axis for axis in range(len(shape)) if axis not in (*before, rows, columns))
    return Contraction(epilogue, left, right, rows, columns, outer, shape, depth, Multiply(dot, swapped), before)


def _known(extent: Expression) -> int:
    return int(extent.value) if isinstance(extent, Constant) else VARIES


def _product(extents: Iterable[int]) -> int:
    """Return the product of extents, `VARIES` if one of them does."""
    known = list(extents)
    return VARIES if VARIES in known else math.prod(known)


def contraction_of(kernel: Kernel) -> Contraction | None:
    """Return the sum of products that a kernel is around, with what is fused behind it; None if it is none."""
    stages = fused_stages(kernel)
    epilogue = stages and epilogue_of(stages, kernel.outputs)
    return analyse(epilogue) if epilogue else None


def _held(epilogue: Epilogue, columns: int, usual: int) -> int:
    if epilogue.is_heavy:
        return 0
    followers = epilogue.followers
    own = {stage.axes[columns] for stage in followers}
    nodes = walk_expressions(*(stage.value for stage in followers))
    numbers = {node.value for node in nodes if isinstance(node, Constant) and node.type.is_float}
    read = [(load.buffer, free_variables(*load.indices)) for stage in followers for load in loads(stage.value)]
    return len(numbers) + usual * len({buffer for buffer, free in read if free and free <= own})
